"""Detects a store that lacks a link, or that is older (a restored backup), by the copy of the link's state on the
target.

The copy is written after the store, so it is never ahead of the store that it was written from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.errors import Refused
from drkit.model.link_state import (
    FOREIGN_WRITER,
    RECORDS_GIVEN_UP,
    RECORDS_MISPLACED,
    SOURCE_TRUNCATED,
    Direction,
    LinkControl,
)
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.model.wording import and_more
from drkit.state_topic import connection
from drkit.state_topic.copy_topic import AmbiguousCopy, copy_name, copy_under_other_aliases, find_copy, note_copy
from drkit.state_topic.link_copy import LinkCopy, copy_of
from drkit.state_topic.records import StateKind, section_of
from drkit.store.api import Store
from drkit.store.link_notes import NEVER_MIRRORED

log = logging.getLogger(__name__)

_NOT_FOUND_AGAIN = frozenset({FOREIGN_WRITER, RECORDS_GIVEN_UP, RECORDS_MISPLACED, SOURCE_TRUNCATED})
"""Problems that a mirror may not find a second time: what showed them may be gone by then."""


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


def check_not_forgotten(link: Link, store: Store, topic: str, keys: Iterable[bytes]) -> None:
    """Raise `Refused` if the state topic has records of topics (`keys`) and the store has no data of the link.

    Not if the target has other writers: there the mirror finds its position by provenance, without a store.
    """
    if link.shares_target or holds(store, link) or not any(section_of(key)[0] == StateKind.TOPIC for key in keys):
        return
    raise Refused(
        f"the store has nothing of link {link.id}, and {link.id.target} has a copy of its state",
        meaning="The store was lost, or store.url is another one: a mirror that begins again would copy everything a "
        "second time, and overwrite that copy",
        remedy=f"drkit store recover --from {link.id.target} --link '{link.id}' fills the store. Where the link is to "
        f"begin again: delete topic {topic} on {link.id.target}",
    )


def check_not_older(
    link: Link, store: Store, topic: str, found: Mapping[bytes, SmallTopicRecord], admin: ClusterAdmin
) -> None:
    """Raise `Refused` if the copy in the topic (`found`, read before) knows what a mirror can't settle by comparing
    both logs.

    Raises:
        Unreachable: the target doesn't answer.
    """
    check_no_later_decision(link, store, topic, found)
    check_knows_all(link, store, topic, found, admin)


def check_no_later_decision(link: Link, store: Store, topic: str, found: Mapping[bytes, SmallTopicRecord]) -> None:
    """Raise `Refused` if the link was failed over by a later decision (of `found`, read before) than the store has.

    With an older store the link is active again, and its mirror would write below the clients.
    """
    decisions = {key: each for key, each in found.items() if section_of(key)[0] == StateKind.CONTROL}
    _check_decision(link, store, copy_of(link, topic, decisions).control)


def check_knows_all(
    link: Link, store: Store, topic: str, found: Mapping[bytes, SmallTopicRecord], admin: ClusterAdmin
) -> None:
    """Raise `Refused` if the copy in the topic (`found`, read before) has what the store doesn't know at all
    (`OlderStore.unknown`).

    A mirror would take the records of such a topic on the target for somebody else's, mirror them a second time, and
    remove the topic from the copy. Not if the target has other writers: there it finds its position by provenance.

    Raises:
        Unreachable: the target doesn't answer.
    """
    older = None if link.shares_target else older_than(copy_of(link, topic, found), store, link, admin)
    if older is None or not older.unknown:
        return
    raise Refused(
        f"the store is older than its copy on {link.id.target}, {older.knows_more()}",
        meaning="A backup of the store was brought back, or store.url is another one. A mirror would copy a second "
        "time what the store doesn't know. Nothing was changed",
        remedy=recovery_of(link.id),
    )


def recovery_of(link: LinkId) -> str:
    """How to replace a store that is older than its copy."""
    return (
        "Move this store away (SQLite: rename the file; Cassandra: name another keyspace), then drkit store recover "
        f"--from {link.target} --link '{link}'"
    )


def check_restored(link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig) -> None:
    """Raise `Refused` if a store was restored from a backup and its copy on the target knows more, or that is unknown.

    As `check_not_older`. Called before a decision about the link, which would replace a later one in the copy. Once
    checked, it isn't repeated.

    Raises:
        Unreachable: the target doesn't answer.
    """
    if RESTORED not in store.notes(link.id, RECOVERY):
        return
    topic = find_copy(link, store, admin, target)
    if topic is not None:
        check_not_older(link, store, topic, connection.read_all(link.id.target, target, topic), admin)
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
        remedy=recovery_of(link.id),
    )


def _is_later(newest: LinkControl, kept: LinkControl | None) -> bool:
    """Whether a decision of the copy is unknown to the store.

    A store that was restored counts on from an older decision, so the same number may be another decision.
    """
    if kept is None or newest.version != kept.version:
        return newest.version > (0 if kept is None else kept.version)
    return newest.direction is not kept.direction


class OlderStore(NamedTuple):
    """By how much a store is older than the copy.

    `partitions`: those whose watermark is newer there. `decision`: the number of the later decision there. `unknown`:
    topics, partitions, epochs, never-mirrored ranges and problems that only the copy has, each in words; no mirror
    finds them again. `groups`: those whose positions are newer there, or only there.
    """

    partitions: list[TopicPartition]
    decision: int | None
    unknown: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def knows_more(self) -> str:
        """What the copy knows, as a clause: "which has ..."."""
        newer = []
        if self.decision is not None:
            newer.append(f"a later decision about the link ({self.decision})")
        if self.unknown:
            newer.append(f"{and_more(self.unknown)}, unknown to the store")
        if self.partitions:
            newer.append(f"newer watermarks of {and_more([str(tp) for tp in self.partitions])}")
        if self.groups:
            newer.append(f"newer positions of {and_more(self.groups)}")
        return f"which has {' and '.join(newer)}"


def older_than(copy: LinkCopy, store: Store, link: Link, target: ClusterAdmin) -> OlderStore | None:
    """The link's data that are newer in the copy (read before) than in the store; None: none.

    A watermark that the mirror took back since, because the target lost data, was observed later than the copy's, and
    the target's log ends before the copy's: else the mirror's clock was set back in between.

    Raises:
        Unreachable: the target doesn't answer.
    """
    marks = store.watermarks(link.id)
    control = store.link_control(link.id)
    beyond = {
        tp: found
        for tp, found in copy.watermarks.items()
        if tp in marks and (found.epoch, found.source_through) > (marks[tp].epoch, marks[tp].source_through)
    }
    later = sorted(tp for tp, found in beyond.items() if found.observed_at > marks[tp].observed_at)
    earlier = {tp: found for tp, found in beyond.items() if tp not in later}
    served = any(each is not None and each.direction in _FAILED_OVER for each in (copy.control, control))
    if not served and not link.shares_target:  # else others write there
        partitions = sorted([*later, *_within_the_log(earlier, link, target)])
    else:
        partitions = later
    decision = copy.control.version if copy.control is not None and _is_later(copy.control, control) else None
    unknown = () if _failed_back_since(copy.control, control) else _unknown(copy, store, link, target, marks, later)
    older = OlderStore(partitions, decision, unknown, _newer_groups(copy, store, link, marks.values()))
    return None if older == OlderStore([], None) else older


def _within_the_log(
    marks: Mapping[TopicPartition, Watermark], link: Link, target: ClusterAdmin
) -> Iterator[TopicPartition]:
    """The partitions whose log on the target reaches as far as these watermarks."""
    there = {tp: TopicPartition(link.target_topic(tp.topic), tp.partition) for tp in marks}
    ends = target.log_ends(there.values(), partial=True) if there else {}
    return (tp for tp, mark in marks.items() if ends.get(there[tp], -1) >= mark.target_end)


def _failed_back_since(copied: LinkControl | None, kept: LinkControl | None) -> bool:
    """Whether the store has a failback that the copy doesn't have yet, which replaced the link's topics."""
    return (
        copied is not None
        and kept is not None
        and copied.direction in _FAILED_OVER
        and kept.direction not in _FAILED_OVER
        and kept.version > copied.version
    )


def _unknown(
    copy: LinkCopy,
    store: Store,
    link: Link,
    target: ClusterAdmin,
    marks: Mapping[TopicPartition, Watermark],
    partitions: Iterable[TopicPartition],
) -> tuple[str, ...]:
    """What only the copy knows, in words.

    A topic that the store has forgotten was deleted on the target before: of such a one the copy is only late. A
    problem or range that the store lacks may have been cleared since, except where the watermark is newer, too.
    """
    epochs = {topic: state.epoch for topic, state in store.topic_states(link.id).items()}
    newer = {topic: state for topic, state in copy.topics.items() if state.epoch > epochs.get(topic, -1)}
    there = target.topics(sorted({state.target_topic for state in newer.values()}), denied=set())
    found = []
    for topic, state in sorted(newer.items()):
        info = there.get(state.target_topic)
        if info is not None and info.topic_id == state.target_topic_id:
            found.append(f"epoch {state.epoch} of topic {topic}" if topic in epochs else f"topic {topic}")
    found += [
        f"partition {tp}"
        for tp, mark in sorted(copy.watermarks.items())
        if tp not in marks and tp.topic in copy.topics and mark.epoch == epochs.get(tp.topic)
    ]
    known = {(each.kind, each.topic, each.partition) for each in store.problems(link.id)}
    ranges, copied = store.notes(link.id, NEVER_MIRRORED), copy.notes.get(NEVER_MIRRORED, {})
    for tp in partitions:
        if str(tp) in copied and copied[str(tp)] != ranges.get(str(tp)):
            found.append(f"ranges of {tp} that were never mirrored")
        found += [
            f"problem {each.kind} of {tp}"
            for each in copy.problems
            if each.kind in _NOT_FOUND_AGAIN and (each.topic, each.partition) == tp and (each.kind, *tp) not in known
        ]
    return tuple(found)


def _newer_groups(copy: LinkCopy, store: Store, link: Link, marks: Iterable[Watermark]) -> tuple[str, ...]:
    """Groups with a position in the copy that was captured after all that the store has."""
    kept = store.group_positions(link.id)
    offsets = {(each.group, each.topic, each.partition): each.offset for each in kept}
    last = max((*(each.captured_at for each in kept), *(mark.observed_at for mark in marks)), default=None)
    newer = {
        each.group
        for each in copy.positions
        if (last is None or each.captured_at > last)
        and offsets.get((each.group, each.topic, each.partition)) != each.offset
    }
    return tuple(sorted(newer))


def check_may_begin(
    link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig, source_id: Callable[[], str]
) -> str:
    """Raise `Refused` if the store lacks a link that is about to be mirrored, or is older than its copy.

    If drkit may not see the copy, there is none: the mirror can't write it.

    Args:
        link: the link.
        store: its store.
        admin: its target.
        target: the target's configuration.
        source_id: the id of its source.

    Returns:
        the name of the copy; where it may be seen, it is noted in the store.

    Raises:
        Unreachable: a cluster doesn't answer.
    """
    topic = copy_name(link, store)
    if link.inverse:
        return topic
    found: Mapping[bytes, SmallTopicRecord] = {}
    try:
        if (there := find_copy(link, store, admin, target)) is not None:
            topic = there
            found = connection.read_all(link.id.target, target, topic)
    except AmbiguousCopy:
        raise
    except Refused as error:
        log.warning("%s: whether %s has a copy of its state can't be seen: %s", link.id, link.id.target, error)
        return topic
    keys = [key for key, each in found.items() if each.value is not None]
    check_not_forgotten(link, store, topic, keys)
    check_not_older(link, store, topic, found, admin)
    _check_aliases(link, store, admin, target, source_id)
    note_copy(link, store, topic)
    return topic


def _check_aliases(
    link: Link, store: Store, admin: ClusterAdmin, target: ClusterConfig, source_id: Callable[[], str]
) -> None:
    """Raise `Refused` if the store has nothing of the link, and the same clusters have a link under other aliases."""
    if link.shares_target or holds(store, link):
        return
    try:
        copy = copy_under_other_aliases(link, admin, target, source_id)
    except Refused as error:
        log.warning("%s: copies of other links on %s can't be seen: %s", link.id, link.id.target, error)
        return
    if copy is None:
        return
    raise Refused(
        f"topics of {link.id} are mirrored to {link.id.target} by a link of the same clusters under other aliases: "
        f"{copy} there has a copy of its state",
        meaning="drkit knows a link by its aliases. A mirror would copy everything a second time. Nothing was changed",
        remedy="Give the clusters the aliases of before, which are in that topic's name (SOURCE.TARGET). Where the "
        f"link is to begin again: delete topic {copy} on {link.id.target}",
    )
