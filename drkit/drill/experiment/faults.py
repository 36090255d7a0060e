"""The faults of an experiment file.

Faults of a node stop it or its connections; faults of the network disturb the one between drkit and primary; faults of
the applications affect the credentials, the certificate or the clock of the drill's clients; faults of a topic damage
the workload's topic on one cluster, like an operator's mistake, an attack or a bad disk. The file of its name in a
folder of `drkit.drill.faults` injects each.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field

from drkit.drill.experiment.base import Cluster, DrillModel, OfLink

NO_CLUSTER: Final = ("cassandra", "mirror", "run")
"""The names of nodes that belong to no cluster."""


def _node(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*(-[1-9][0-9]*)?", name):
        raise ValueError(f"{name!r} is not the name of a node: one is an alias, or an alias and a number (primary-1)")
    return name


Node = Annotated[str, AfterValidator(_node)]
"""A node: of a cluster of the lab (`primary-1`; an alias: all its nodes), `cassandra`, `mirror` or `run`."""


# --- nodes --------------------------------------------------------------------------------------


class Kill(DrillModel):
    """SIGKILL a node (a cluster's alias: all its nodes; `mirror`: the mirror)."""

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
    """Stop a node if it runs, and start it again on its data."""

    do: Literal["restart"]
    node: Node


class FillDisk(DrillModel):
    """Fill a broker's disk: it can't write any more, and ends. A restarted broker can write again."""

    do: Literal["fill_disk"]
    node: Node


class Disconnect(DrillModel):
    """Tear down every TCP connection of the mirror (`ss -K`, which needs root)."""

    do: Literal["disconnect"]
    node: Literal["mirror"] = "mirror"


# --- the workload's topic -----------------------------------------------------------------------


class DeleteTopic(OfLink):
    """Delete the topic."""

    do: Literal["delete_topic"]
    cluster: Cluster


class RecreateTopic(OfLink):
    """Delete the topic, and create an empty one of the same name."""

    do: Literal["recreate_topic"]
    cluster: Cluster


class AddPartitions(OfLink):
    """Give the topic more partitions."""

    do: Literal["add_partitions"]
    cluster: Cluster
    by: int = Field(default=1, ge=1, le=100)


class PurgeTopic(OfLink):
    """Remove a part of each partition's records from its beginning, as retention does."""

    do: Literal["purge_topic"]
    cluster: Cluster
    part: float = Field(default=1.0, gt=0, le=1)


class WriteForeign(OfLink):
    """Write records that no client of the drill sent."""

    do: Literal["write_foreign"]
    cluster: Cluster
    records: int = Field(default=10, ge=1, le=100_000)


class LoseTail(OfLink):
    """Cut acknowledged records off each partition's end (whole batches: so many records, or a few more)."""

    do: Literal["lose_tail"]
    cluster: Cluster
    records: int = Field(default=50, ge=1, le=1_000_000)


class CorruptBatch(OfLink):
    """Make the last batch of a partition impossible to forward.

    `damage`: `checksum`: flip a byte of it on disk; `codec`: set an unknown compression codec on disk, with a matching
    checksum; `oversized`: write a batch of one record that is larger than the topic's limit, like one that was written
    before the limit was lowered.
    """

    do: Literal["corrupt_batch"]
    cluster: Cluster
    partition: int = Field(default=0, ge=0, le=999)
    damage: Literal["checksum", "codec", "oversized"] = "checksum"


class Flood(OfLink):
    """Write very many records to a topic beside the workload's (`TOPIC.flood`), as fast as possible."""

    do: Literal["flood"]
    cluster: Cluster
    records: int = Field(default=100_000, ge=1, le=10_000_000)
    value_bytes: int = Field(default=1_000, ge=1, le=100_000)


# --- the applications ---------------------------------------------------------------------------


class ExpireCredentials(DrillModel):
    """Make a cluster refuse the applications' credentials: their user is `deleted`, or its password `changed`.

    Open connections last a few seconds more, until they must reauthenticate.
    """

    do: Literal["expire_credentials"]
    cluster: Cluster
    how: Literal["deleted", "changed"] = "deleted"


class RenewCredentials(DrillModel):
    """Make a cluster accept the applications' credentials again."""

    do: Literal["renew_credentials"]
    cluster: Cluster


class ExpireCertificate(DrillModel):
    """Let a cluster show its applications a certificate that has expired, on every new connection.

    Open connections stay: they verified the certificate when they were made.
    """

    do: Literal["expire_certificate"]
    cluster: Cluster


class RenewCertificate(DrillModel):
    """Let a cluster show its applications a valid certificate again."""

    do: Literal["renew_certificate"]
    cluster: Cluster


class SkewClock(OfLink):
    """Set the producer's clock so many seconds ahead (negative: behind) for its records' timestamps."""

    do: Literal["skew_clock"]
    cluster: Cluster
    seconds: float = Field(default=-3_600.0, ge=-31_536_000, le=31_536_000)


class CorrectClock(OfLink):
    """Set the producer's clock to the correct time again."""

    do: Literal["correct_clock"]
    cluster: Cluster


# --- the network between drkit and primary ------------------------------------------------------


class DegradeNetwork(DrillModel):
    """Slow it down: `delay_ms` and `jitter_ms` each way, `loss` (share of packets), `kilobytes_per_second` each way."""

    do: Literal["degrade_network"]
    cluster: Literal["primary"] = "primary"
    delay_ms: float = Field(default=0, ge=0, le=60_000)
    jitter_ms: float = Field(default=0, ge=0, le=60_000)
    loss: float = Field(default=0, ge=0, lt=1)
    kilobytes_per_second: float | None = Field(default=None, gt=0)


class PartitionNetwork(DrillModel):
    """Block it in both directions, or in one.

    `forgets`: connections that are open meanwhile stay silent forever, like those that a firewall has forgotten.
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
    """End all disturbances of the network."""

    do: Literal["heal_network"]
    cluster: Literal["primary"] = "primary"


CredentialFault = ExpireCredentials | RenewCredentials
CertificateFault = ExpireCertificate | RenewCertificate
ApplicationFault = CredentialFault | CertificateFault | SkewClock | CorrectClock
NodeFault = Kill | Pause | Resume | Restart | FillDisk | Disconnect
TopicFault = DeleteTopic | RecreateTopic | AddPartitions | PurgeTopic | WriteForeign | LoseTail | CorruptBatch | Flood
NetworkFault = DegradeNetwork | PartitionNetwork | ResetNetwork | HealNetwork
Fault = NodeFault | TopicFault | ApplicationFault | NetworkFault
ENDS = Resume | HealNetwork | RenewCredentials | RenewCertificate | CorrectClock
"""Steps that end a fault, and are not faults themselves."""
AnyFault = Annotated[Fault, Field(discriminator="do")]
ON_DISK = LoseTail | CorruptBatch | RecreateTopic
"""Faults that change only one replica of a partition: they need a lab with one broker per cluster."""
TAKES_DATA = DeleteTopic | RecreateTopic | PurgeTopic | LoseTail | CorruptBatch


def word_of(kind: type[Fault]) -> str:
    """The name of a kind of fault in experiment files."""
    return str(get_args(kind.model_fields["do"].annotation)[0])


NODE_FAULTS: Final = tuple(word_of(kind) for kind in get_args(NodeFault))
TOPIC_FAULTS: Final = tuple(word_of(kind) for kind in get_args(TopicFault))
APPLICATION_FAULTS: Final = tuple(word_of(kind) for kind in get_args(ApplicationFault))
NETWORK_FAULTS: Final = tuple(word_of(kind) for kind in get_args(NetworkFault))


def is_disaster(fault: Fault, source: str) -> bool:
    """Whether it counts as a disaster of the links from `source`: RPO and RTO count from the first such fault."""
    if isinstance(fault, NetworkFault):
        return False  # the applications run beside the cluster
    if isinstance(fault, ApplicationFault):
        return fault.cluster == source and isinstance(fault, ExpireCredentials | ExpireCertificate)
    if isinstance(fault, TopicFault):
        return fault.cluster == source and isinstance(fault, TAKES_DATA)
    return fault.node.partition("-")[0] == source and not isinstance(fault, Resume)


def struck_cluster(fault: Fault) -> str | None:
    """The cluster that a fault strikes; None: it ends a fault, or strikes no cluster."""
    if isinstance(fault, ENDS):
        return None
    cluster = fault.node.partition("-")[0] if isinstance(fault, NodeFault) else fault.cluster
    return None if cluster in NO_CLUSTER else cluster
