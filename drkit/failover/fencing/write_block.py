"""Blocks all writes to topics of an old primary while they are looked at for the last time and deleted.

A fence by ACLs doesn't bind super users, and where an operator has accepted an unfenced cluster it binds nobody. A
process may stand still between its last look and its deletion for any time. So the topics themselves take no more
records from before that look on (`drkit.kafka.admin.write_block`). A topic's value from before is noted first: a run
that is killed leaves the block behind, and whatever opens the cluster, or gives up the run, lifts it.

A deleted topic's settings come back to a topic that is created under its name as soon as a broker restarts and reads
the metadata log again (seen with Kafka 4.3.1: no record there removes them, and removing a setting that the controller
doesn't know writes none). So a value is set before it is removed, and a topic's note stays until it exists again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from drkit.failover.run.cluster_context import ClusterContext
from drkit.kafka.admin.write_block import BLOCK, is_blocked
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs.fence import write_block_kind
from drkit.model.topology import LinkId
from drkit.model.wording import and_more

_DEFAULT = {"max.message.bytes": "1048588", "compression.type": "producer"}
"""Kafka's defaults, for a moment."""


def block_writes(estate: ClusterContext, link: LinkId, cluster: str, partitions: Mapping[str, int]) -> None:
    """Block writes to these topics (with their numbers of partitions), and see each leader refuse one.

    Args:
        estate: clusters and store.
        link: the configured link.
        cluster: the topics' cluster, on either side of it.
        partitions: by topic.

    Raises:
        Refused: the cluster doesn't take the setting, or drkit may not set it.
        Unreachable: a leader or the store doesn't answer.
    """
    admin = estate.admin(cluster)
    before = admin.topic_configs(partitions, keys=list(BLOCK))
    values = {name: json.dumps(config, sort_keys=True) for name, config in before.items() if not is_blocked(config)}
    estate.store.put_notes(link, write_block_kind(cluster), values)
    admin.block_writes(partitions)


def let_writes_in(estate: ClusterContext, link: LinkId, cluster: str, also: Collection[str] = ()) -> str:
    """Lift the block of all topics that a run has noted, for good; returns what was done, "" for nothing.

    The note of a topic that doesn't exist stays. `also`: more topics to look at, for a store that has lost its notes:
    their blocks are lifted, too, and they then have the cluster's default. Those whose settings drkit may not read are
    left out.

    Raises:
        DrkitError: a block can't be lifted, or the cluster or the store doesn't answer.
    """
    noted = estate.store.notes(link, write_block_kind(cluster))
    names = sorted({*noted, *also})
    if not names:
        return ""
    admin = estate.admin(cluster)
    denied: set[str] = set()
    there = admin.topic_configs(names, keys=list(BLOCK), denied=denied)
    if hidden := sorted(denied & noted.keys()):
        raise Refused(
            f"drkit may not read the settings of {and_more(hidden)} on {cluster}, whose writes a scrub has blocked",
            remedy="Grant drkit's principal DESCRIBE_CONFIGS and ALTER_CONFIGS on them, then try again",
        )
    blocked = [name for name, config in there.items() if is_blocked(config)]
    values: dict[str, dict[str, str]] = {
        name: json.loads(noted[name]) if name in noted else _DEFAULT
        for name in there
        if name in noted or name in blocked
    }
    failures = admin.set_many_topic_configs(values)
    removed = {name: dict.fromkeys(value) for name, value in values.items() if name not in failures}
    failures |= admin.set_many_topic_configs(removed)
    now = admin.topic_configs([name for name in values if name in noted], keys=list(BLOCK))
    own = {
        name: {key: value for key, value in values[name].items() if config.get(key) != value}
        for name, config in now.items()
        if name not in failures
    }
    failures |= admin.set_many_topic_configs(own)
    if failures:
        name, why = next(iter(failures.items()))
        wanted = ", ".join(f"{key}={value}" for key, value in values[name].items())
        raise DrkitError(
            f"topic {name} on {cluster} still takes no writes: {why}",
            remedy=f"Remove the cause named, or set {wanted} by hand",
        )
    estate.store.forget_notes(link, write_block_kind(cluster), sorted(noted.keys() & there.keys()))
    if not blocked:
        return ""
    unknown = [name for name in blocked if name not in noted]
    lost = f"; what {and_more(unknown)} had of {' and '.join(BLOCK)} before is unknown: they have the default now"
    return f"writes to {and_more(blocked)} on {cluster} are let in again{lost if unknown else ''}"
