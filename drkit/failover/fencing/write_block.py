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
from dataclasses import dataclass

from drkit.failover.context.cluster_context import ClusterContext
from drkit.kafka.admin.write_block import BLOCK, is_blocked
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs import write_block_kind
from drkit.model.topology import LinkId
from drkit.model.wording import and_more
from drkit.state_topic.link_copy import read_copy

_DEFAULT = {"max.message.bytes": "1048588", "compression.type": "producer"}
"""Kafka's defaults, for a moment."""


def block_writes(estate: ClusterContext, link: LinkId, cluster: str, partitions: Mapping[str, int]) -> None:
    """Block writes to these topics (with their numbers of partitions), and see each leader refuse one.

    A note that is there stays: a topic that clients make in the place of a deleted one says nothing of its settings.

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
    kind = write_block_kind(cluster)
    noted = estate.store.notes(link, kind)
    wanted = {name: config for name, config in before.items() if name not in noted and not is_blocked(config)}
    estate.store.put_notes(link, kind, {name: json.dumps(own, sort_keys=True) for name, own in wanted.items()})
    admin.block_writes(partitions)


def let_writes_in(
    estate: ClusterContext, link: LinkId, cluster: str, also: Collection[str] = (), *, keep_notes: bool = False
) -> str:
    """Lift the block of all topics that a run has noted, for good; returns what was done, "" for nothing.

    The note of a topic that doesn't exist stays. `also`: more topics to look at, for a store that has lost its notes:
    their blocks are lifted, too (`settings_before`). Those whose settings drkit may not read are left out.
    `keep_notes`: a block got no answer, so the cluster may still put it after this: all notes stay.

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
    before = settings_before(estate, link, cluster, {*blocked, *(noted.keys() & there.keys())})
    new = {name: json.dumps(own, sort_keys=True) for name, own in before.settings.items() if name not in noted}
    estate.store.put_notes(link, write_block_kind(cluster), new)  # this may be interrupted, too
    noted = {**noted, **new}
    values = {**dict.fromkeys(blocked, _DEFAULT), **before.settings}
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
    if not keep_notes:
        estate.store.forget_notes(link, write_block_kind(cluster), sorted(noted.keys() & there.keys()))
    if not blocked:
        return ""
    return f"writes to {and_more(blocked)} on {cluster} are let in again{before.unknown}"


@dataclass(frozen=True, slots=True)
class SettingsBefore:
    """What blocked topics had of the block's settings before, by topic; `unknown`: a clause about those of which nobody
    knows, and what to give them instead."""

    settings: dict[str, dict[str, str]]
    unknown: str = ""


def settings_before(estate: ClusterContext, link: LinkId, cluster: str, blocked: Collection[str]) -> SettingsBefore:
    """By the store's notes; where it has lost them, by their copy in the link's state topic; else what the same topics
    have on the other cluster, to which the link's policy may have carried it. The others are left out.

    Raises:
        Unreachable: the store doesn't answer.
    """
    notes = estate.store.notes(link, write_block_kind(cluster))
    if set(blocked) - notes.keys():
        notes = {**_noted_in_copy(estate, link, cluster), **notes}
    known = {name: json.loads(notes[name]) for name in blocked if name in notes}
    lost = sorted(set(blocked) - known.keys())
    if not lost:
        return SettingsBefore(known)
    alike = _on_the_other_cluster(estate, link, cluster, lost)
    other = link.target if cluster == link.source else link.source
    instead = f"what they have on {other}" if alike else "Kafka's defaults"
    unknown = f"; what {and_more(lost)} had of {' and '.join(BLOCK)} before is unknown: they have {instead} now"
    return SettingsBefore({**alike, **known}, unknown)


def _on_the_other_cluster(
    estate: ClusterContext, link: LinkId, cluster: str, names: Collection[str]
) -> dict[str, dict[str, str]]:
    """What the same topics have of these settings there; those that it doesn't show are left out."""
    if cluster != link.source:
        return {}
    target_names = {name: estate.link(link).target_topic(name) for name in names}
    try:
        found = estate.admin(link.target, may_be_gone=True).topic_configs(target_names.values(), keys=list(BLOCK))
    except DrkitError:
        return {}
    return {
        name: found[there] for name, there in target_names.items() if there in found and not is_blocked(found[there])
    }


def _noted_in_copy(estate: ClusterContext, link: LinkId, cluster: str) -> dict[str, str]:
    """What the link's state topic says that blocked topics had before; nothing where it doesn't exist or answer."""
    target = link.target
    try:
        admin = estate.admin(target, may_be_gone=True)
        copy = read_copy(estate.link(link), estate.store, estate.config.clusters[target], admin)
    except DrkitError:
        return {}
    return {} if copy is None else dict(copy.notes.get(write_block_kind(cluster), {}))
