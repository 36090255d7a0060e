"""The faults that an experiment file may name.

Those of a node take it away, or its connections; those of the network are of the line between drkit and primary; those
of the applications strike at what the drill's clients have; those of a topic at the workload's topic on one cluster, as
an operator's mistake, an attack, or a bad disk does. Each is injected by the file of its name in `drkit.drill.faults`.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field

from drkit.drill.experiment.base import SOURCE, Cluster, DrillModel


def _node(name: str) -> str:
    if not re.fullmatch(r"(primary|dr|cassandra)(-[1-9][0-9]*)?|mirror|run", name):
        raise ValueError(f"{name!r} is no node; known are primary, dr, cassandra (all nodes), primary-1 …, mirror, run")
    return name


def _broker(name: str) -> str:
    if not re.fullmatch(r"(primary|dr)(-[1-9][0-9]*)?", name):
        raise ValueError(f"{name!r} is no broker; known are primary, dr (all of its brokers), primary-1 …")
    return name


Node = Annotated[str, AfterValidator(_node)]
Broker = Annotated[str, AfterValidator(_broker)]


# --- of a node ----------------------------------------------------------------------------------


class Kill(DrillModel):
    """SIGKILL a node (a cluster's alias means all its nodes; `mirror` is the mirror)."""

    do: Literal["kill"]
    node: Node


class Pause(DrillModel):
    """SIGSTOP a node: it hangs, its connections stay open."""

    do: Literal["pause"]
    node: Node


class Resume(DrillModel):
    """SIGCONT a paused node."""

    do: Literal["resume"]
    node: Node


class Restart(DrillModel):
    """Stop a node where it runs, and start it again on its data."""

    do: Literal["restart"]
    node: Node


class FillDisk(DrillModel):
    """Have a broker's disk be full: it can't write a byte more, and ends. It has room again when it is restarted."""

    do: Literal["fill_disk"]
    node: Broker


class Disconnect(DrillModel):
    """Tear down every TCP connection of the mirror (`ss -K`: needs root)."""

    do: Literal["disconnect"]
    node: Literal["mirror"] = "mirror"


# --- of the workload's topic --------------------------------------------------------------------


class DeleteTopic(DrillModel):
    """Delete the topic."""

    do: Literal["delete_topic"]
    cluster: Cluster


class RecreateTopic(DrillModel):
    """Delete the topic, and make an empty one of its name."""

    do: Literal["recreate_topic"]
    cluster: Cluster


class AddPartitions(DrillModel):
    """Give the topic more partitions."""

    do: Literal["add_partitions"]
    cluster: Cluster
    by: int = Field(default=1, ge=1, le=100)


class PurgeTopic(DrillModel):
    """Remove a part of what each partition holds, from its beginning on, as retention does."""

    do: Literal["purge_topic"]
    cluster: Cluster
    part: float = Field(default=1.0, gt=0, le=1)


class WriteForeign(DrillModel):
    """Write records that no client of the drill sends."""

    do: Literal["write_foreign"]
    cluster: Cluster
    records: int = Field(default=10, ge=1, le=100_000)


class LoseTail(DrillModel):
    """Cut acknowledged records off each partition's end (whole batches: so many, or a few more)."""

    do: Literal["lose_tail"]
    cluster: Cluster
    records: int = Field(default=50, ge=1, le=1_000_000)


class CorruptBatch(DrillModel):
    """Have the last batch of a partition be one that can't be passed on.

    `damage`: `checksum`: a byte of it turns, on disk; `codec`: on disk it says to be compressed by a codec that nobody
    knows, and its checksum fits; `oversized`: a batch of one record is written that is larger than the topic's limit
    allows now, as one that was written before the limit was lowered.
    """

    do: Literal["corrupt_batch"]
    cluster: Cluster
    partition: int = Field(default=0, ge=0, le=999)
    damage: Literal["checksum", "codec", "oversized"] = "checksum"


class Flood(DrillModel):
    """Write very many records to a topic beside the workload's (`TOPIC.flood`), as fast as can be."""

    do: Literal["flood"]
    cluster: Cluster
    records: int = Field(default=100_000, ge=1, le=10_000_000)
    value_bytes: int = Field(default=1_000, ge=1, le=100_000)


# --- of the applications ------------------------------------------------------------------------


class ExpireCredentials(DrillModel):
    """Have a cluster refuse the applications' credentials: their user is `deleted`, or its password `changed`.

    What is connected stays so for a few seconds, until it has to authenticate again.
    """

    do: Literal["expire_credentials"]
    cluster: Cluster
    how: Literal["deleted", "changed"] = "deleted"


class RenewCredentials(DrillModel):
    """Have a cluster take the applications' credentials again."""

    do: Literal["renew_credentials"]
    cluster: Cluster


class SkewClock(DrillModel):
    """Have the producer stamp its records by a clock that is so many seconds ahead (negative: behind)."""

    do: Literal["skew_clock"]
    cluster: Cluster
    seconds: float = Field(default=-3_600.0, ge=-31_536_000, le=31_536_000)


class CorrectClock(DrillModel):
    """Have it stamp them by the right time again."""

    do: Literal["correct_clock"]
    cluster: Cluster


# --- of the line between drkit and primary ------------------------------------------------------


class DegradeNetwork(DrillModel):
    """Make it slow: `delay_ms` and `jitter_ms` each way, `loss` (share of packets), `kilobytes_per_second` each way."""

    do: Literal["degrade_network"]
    cluster: Literal["primary"] = "primary"
    delay_ms: float = Field(default=0, ge=0, le=60_000)
    jitter_ms: float = Field(default=0, ge=0, le=60_000)
    loss: float = Field(default=0, ge=0, lt=1)
    kilobytes_per_second: float | None = Field(default=None, gt=0)


class PartitionNetwork(DrillModel):
    """Have nothing pass: both ways, or in one direction only.

    `forgets`: connections that are open meanwhile stay silent for ever, as those that a firewall has forgotten.
    """

    do: Literal["partition_network"]
    cluster: Literal["primary"] = "primary"
    direction: Literal["both", "to_primary", "from_primary"] = "both"
    forgets: bool = False


class ResetNetwork(DrillModel):
    """Reset every connection."""

    do: Literal["reset_network"]
    cluster: Literal["primary"] = "primary"


class HealNetwork(DrillModel):
    """End what the others do."""

    do: Literal["heal_network"]
    cluster: Literal["primary"] = "primary"


CredentialFault = ExpireCredentials | RenewCredentials
ApplicationFault = CredentialFault | SkewClock | CorrectClock
NodeFault = Kill | Pause | Resume | Restart | FillDisk | Disconnect
TopicFault = DeleteTopic | RecreateTopic | AddPartitions | PurgeTopic | WriteForeign | LoseTail | CorruptBatch | Flood
NetworkFault = DegradeNetwork | PartitionNetwork | ResetNetwork | HealNetwork
Fault = NodeFault | TopicFault | ApplicationFault | NetworkFault
ENDS = Resume | HealNetwork | RenewCredentials | CorrectClock
"""What ends a fault, and is none."""
AnyFault = Annotated[Fault, Field(discriminator="do")]
ON_DISK = LoseTail | CorruptBatch | RecreateTopic
"""Faults that know one replica of a partition only: a lab of one broker a cluster."""
TAKES_DATA = DeleteTopic | RecreateTopic | PurgeTopic | LoseTail | CorruptBatch


def word_of(kind: type[Fault]) -> str:
    """What a file calls a kind of fault."""
    return str(get_args(kind.model_fields["do"].annotation)[0])


NODE_FAULTS: Final = tuple(word_of(kind) for kind in get_args(NodeFault))
TOPIC_FAULTS: Final = tuple(word_of(kind) for kind in get_args(TopicFault))
APPLICATION_FAULTS: Final = tuple(word_of(kind) for kind in get_args(ApplicationFault))
NETWORK_FAULTS: Final = tuple(word_of(kind) for kind in get_args(NetworkFault))


def is_disaster(fault: Fault) -> bool:
    """Whether it takes from primary what clients need: RPO and RTO are counted from the first such fault on."""
    if isinstance(fault, NetworkFault):
        return False  # applications live beside primary
    if isinstance(fault, ApplicationFault):
        return fault.cluster == SOURCE and isinstance(fault, ExpireCredentials)
    if isinstance(fault, TopicFault):
        return fault.cluster == SOURCE and isinstance(fault, TAKES_DATA)
    return fault.node.partition("-")[0] == SOURCE and not isinstance(fault, Resume)
