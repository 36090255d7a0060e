"""Detects a store that lacks a link, or that is older (a restored backup), by the copy of the link's state on the
target.

The copy is written after the store, so it is never ahead of the store that it was written from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.errors import Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import Link, TopicPartition
from drkit.state_topic import connection
from drkit.state_topic.link_copy import LinkCopy, copy_of
from drkit.state_topic.records import StateKind, section_of, state_topic
from drkit.store.api import Store

log = logging.getLogger(__name__)


RECOVERY = "recovery"
"""Kind of the note of a recovery: under `STATE`, `BEGUN` or its time; under `RESTORED`, the backup's time."""
STATE = "state"
RESTORED = "restored"
BEGUN = "begun"
_FAILED_OVER = frozenset({Direction.SEALED, Direction.REVERSED})


def begun(store: Store, link: Link) -> bool:
    """Whether a recovery of the link began in this store and didn't finish."""
    return store.notes(link.id, RECOVERY).get(STATE) == BEGUN


def holds(store: Store, link: Link) -> bool:
    """Whether the store has data of the link's mirroring, other than that of an interrupted recovery."""
    return bool(store.topic_states(link.id) or store.watermarks(link.id)) and not begun(store, link)


def check_recovered(store: Store, link: Link) -> None:
    """Raise `Refused` if the store has only the data of an interrupted recovery."""
    if begun(store, link):
        raise interrupted(link)


def interrupted(link: Link) -> Refused:
    """Why a partly filled store can't be used for its link."""
    return Refused(
        f"the recovery of {link.id} was interrupted: the store has only a part of its state",
        meaning="Positions, topics or decisions may be missing from it. Nothing was changed",
        remedy=f"Run drkit store recover --from {link.id.target} --link '{link.id}' again, to its end",
    )


def check_not_forgotten(link: Link, store: Store, keys: Iterable[bytes]) -> None:
    """Raise `Refused` if a state topic has records of topics (`keys`) and the store has no data of the link.

    Not if the target has other writers: there the mirror finds its position by provenance, without a store.
    """
    if link.shares_target or holds(store, link) or not any(section_of(key)[0] == StateKind.TOPIC for key in keys):
        return
    raise Refused(
        f"the store has nothing of link {link.id}, and {link.id.target} has a copy of its state",
        meaning="The store was lost, or store.url is another one: a mirror that begins again would copy everything a "
        "second time, and overwrite that copy",
        remedy=f"drkit store recover --from {link.id.target} --link '{link.id}' fills the store. Where the link is to "
        f"begin again: delete topic {state_topic(link)} on {link.id.target}",
    )


def check_not_older(link: Link, store: Store, found: Mapping[bytes, SmallTopicRecord]) -> None:
    """Raise `Refused` if the link was failed over by a later decision (of `found`, read before) than the store has.

    With an older store the link is active again, and its mirror would write below the clients.
    """
    decisions = {key: each for key, each in found.items() if section_of(key)[0] == StateKind.CONTROL}
    _check_decision(link, store, copy_of(link, state_topic(link), decisions).control)


def check_restored(link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig) -> None:
    """Raise `Refused` if a store was restored from a backup and the link was failed over since, or that is unknown.

    Called before a decision about it, which would replace a later one in the copy. Once checked, it isn't repeated.

    Raises:
        Unreachable: the target doesn't answer.
    """
    if RESTORED not in store.notes(link.id, RECOVERY):
        return
    topic = state_topic(link)
    if connection.exists(admin, topic):
        check_not_older(link, store, connection.read_all(link.id.target, target, topic))
    store.forget_notes(link.id, RECOVERY, [RESTORED])


def _check_decision(link: Link, store: Store, newest: LinkControl | None) -> None:
    control = store.link_control(link.id)
    if newest is None or newest.direction not in _FAILED_OVER or not _is_later(newest, control):
        return
    version = 0 if control is None else control.version
    by = f" by run {newest.run}" if newest.run else ""
    raise Refused(
        f"the store is older than the copy of its state on {link.id.target}: there link {link.id} is "
        f"{newest.direction.value}{by} (decision {newest.version}), the store has decision {version}",
        meaning="A backup of the store was brought back, or store.url is another one. A mirror would write into what "
        "clients use by now",
        remedy="Move this store away (SQLite: rename the file; Cassandra: name another keyspace), then drkit store "
        f"recover --from {link.id.target} --link '{link.id}'",
    )


def _is_later(newest: LinkControl, kept: LinkControl | None) -> bool:
    """Whether a decision of the copy is unknown to the store.

    A store that was restored counts on from an older decision, so the same number may be another decision.
    """
    if kept is None or newest.version != kept.version:
        return newest.version > (0 if kept is None else kept.version)
    return newest.direction is not kept.direction


class OlderStore(NamedTuple):
    """By how much a store is older than the copy: partitions whose watermark there is newer, and the decision there."""

    partitions: list[TopicPartition]
    decision: int | None


def older_than(copy: LinkCopy, store: Store, link: Link) -> OlderStore | None:
    """The link's data that are newer in the copy (read before) than in the store; None: none.

    A watermark that the mirror took back since, because the target lost data, was observed later than the copy's.
    """
    marks = store.watermarks(link.id)
    partitions = sorted(
        tp
        for tp, found in copy.partitions.items()
        if tp in marks
        and (found.watermark.epoch, found.watermark.source_through) > (marks[tp].epoch, marks[tp].source_through)
        and found.watermark.observed_at > marks[tp].observed_at
    )
    later = copy.control is not None and _is_later(copy.control, store.link_control(link.id))
    decision = copy.control.version if copy.control is not None and later else None
    return OlderStore(partitions, decision) if partitions or decision is not None else None


def check_may_begin(link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig) -> None:
    """Raise `Refused` if the store lacks a link that is about to be mirrored, or is older than its copy.

    If drkit may not see the copy, there is none: the mirror can't write it.

    Raises:
        Unreachable: the target doesn't answer.
    """
    if link.inverse:
        return
    topic = state_topic(link)
    found: Mapping[bytes, SmallTopicRecord] = {}
    try:
        if connection.exists(admin, topic):
            found = connection.read_all(link.id.target, target, topic)
    except Refused as error:
        log.warning("%s: whether %s has a copy of its state can't be seen: %s", link.id, link.id.target, error)
    keys = [key for key, each in found.items() if each.value is not None]
    check_not_forgotten(link, store, keys)
    check_not_older(link, store, found)
