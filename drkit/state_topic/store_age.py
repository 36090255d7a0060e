"""Whether a store is older than the copy of its link's state on the target: a backup that was brought back, or another
store.

The copy is written after the store, so it is never ahead of the store that it was written from. A store that is older
may lack mapping rows above its watermarks: what the target holds there is then mapped wrongly by the rows that it has.
So it is below them where a store has lost rows (a replica of Cassandra that was never repaired, a hand).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mapping.mapping_rows import LostRows
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, doubt_of_rows, doubts_on_record
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.link_state import (
    FOREIGN_WRITER,
    RECORDS_GIVEN_UP,
    RECORDS_MISPLACED,
    RECORDS_UNMAPPED,
    ROWS_UNPROVEN,
    SOURCE_TRUNCATED,
    STORE_OLDER,
    LinkControl,
    Problem,
)
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, OffsetMode, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.state_topic.connection import READ_SECONDS
from drkit.state_topic.link_copy import LinkCopy, read_copy
from drkit.state_topic.records import begins_with
from drkit.store.api import Store
from drkit.store.link_notes import NEVER_MIRRORED

KEPT_SECONDS = 15.0
"""How long what a comparison found counts, at least (`ComparedStores`)."""
KEPT_TIMES = 20
"""It counts this many times as long as the comparison took, where that is longer: comparing again and again takes no
more than a twentieth of the time."""
LOOK_SECONDS = 15.0
"""How long reading a copy may take, at the most, where a command has set no other bound."""
_NOT_FOUND_AGAIN = frozenset({FOREIGN_WRITER, RECORDS_GIVEN_UP, RECORDS_MISPLACED, SOURCE_TRUNCATED})
"""Problems that a mirror may not find a second time: what showed them may be gone by then."""


def recovery_of(link: LinkId) -> str:
    """How to replace a store that is older than its copy."""
    return (
        "Move this store away (SQLite: rename the file; Cassandra: name another keyspace), then drkit store recover "
        f"--from {link.target} --link '{link}'"
    )


def is_later(newest: LinkControl, kept: LinkControl | None) -> bool:
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
    finds them again. `groups`: those whose positions are newer there, or only there. `observed_later`: those of the
    partitions whose watermark there was also observed later: no mirror took it back since. `lost`: of partitions whose
    mapping rows below both watermarks are those of the copy without some of them, the rows that the store lacks,
    ascending; they are among `unknown`, too.
    """

    partitions: list[TopicPartition]
    decision: int | None
    unknown: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    observed_later: tuple[TopicPartition, ...] = ()
    lost: LostRows = MappingProxyType({})

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

    def remedy(self, link: Link) -> str:
        """What to do about it."""
        recover = recovery_of(link.id)
        if link.alters:  # only rows say which of its records are where
            return f"{recover}. No mirror starts with this store: it would stop at records that it doesn't know"
        if self.unknown or self.decision is not None:
            return recover
        return (
            f"{recover}; or start drkit mirror while {link.id.source} answers: it compares both logs, and the store is "
            "newer again"
        )


def older_than(copy: LinkCopy, store: Store, link: Link, target: ClusterAdmin) -> OlderStore | None:
    """The link's data that are newer in the copy (read before) than in the store; None: none.

    A watermark that the mirror took back since, because the target lost data, was observed later than the copy's, and
    the target's log ends before the copy's: else the mirror's clock was set back in between.

    Raises:
        Unreachable: the target doesn't answer.
    """
    marks = store.watermarks(link.id)
    control = store.link_control(link.id)
    other = _of_other_topics(copy, store, link)
    beyond = {
        tp: found
        for tp, found in copy.watermarks.items()
        if tp in marks
        and tp.topic not in other
        and (found.epoch, found.source_through) > (marks[tp].epoch, marks[tp].source_through)
    }
    later = sorted(tp for tp, found in beyond.items() if found.observed_at > marks[tp].observed_at)
    earlier = {tp: found for tp, found in beyond.items() if tp not in later}
    served = any(each is not None and not each.direction.serves_source for each in (copy.control, control))
    if not served and not link.shares_target:  # else others write there
        partitions = sorted([*later, *_within_the_log(earlier, link, target)])
    else:
        partitions = later
    decision = copy.control.version if copy.control is not None and is_later(copy.control, control) else None
    since = _failed_back_since(copy.control, control)
    lost = {} if since else dict(sorted(_lost_rows(copy, store, link, marks, other)))
    unknown = () if since else _unknown(copy, store, link, target, marks, later)
    unknown += tuple(
        f"mapping rows of {tp} from source offset {rows[0].source_offset:,} on" for tp, rows in lost.items()
    )
    groups = _newer_groups(copy, store, link, marks.values())
    older = OlderStore(partitions, decision, unknown, groups, tuple(later), lost)
    return None if older == OlderStore([], None) else older


def _lost_rows(
    copy: LinkCopy, store: Store, link: Link, marks: Mapping[TopicPartition, Watermark], other: Collection[str]
) -> Iterator[tuple[TopicPartition, list[OffsetMapping]]]:
    """The partitions that have fewer rows in the store than in the copy, with those that it lacks, ascending.

    Where the store has others than the copy, too, a mirror took its watermark back and copied again, and died before
    the copy was told. Where the copy's own first rows were deleted, its watermark still says which they were: the store
    lacks some, nobody knows which, so its first one stands for them.

    A mirror may be running: before it removes rows it takes the watermark back. So what seems lost is looked at twice.
    """
    marks = {tp: mark for tp, mark in marks.items() if tp.topic not in other}
    missing = dict(_lacked(copy, store, link, marks, copy.partitions.keys() | copy.headless))
    if missing:
        yield from _lacked(copy, store, link, store.watermarks(link.id), missing)


def _lacked(
    copy: LinkCopy,
    store: Store,
    link: Link,
    marks: Mapping[TopicPartition, Watermark],
    partitions: Iterable[TopicPartition],
) -> Iterator[tuple[TopicPartition, list[OffsetMapping]]]:
    """Of these partitions, the rows that only the copy has; `marks`: read before them."""
    alike = [tp for tp in sorted(partitions) if tp in marks and _is_comparable(copy, tp, marks[tp])]
    for tp, rows in zip(alike, store.mappings_of(link.id, [(tp, marks[tp].epoch) for tp in alike]), strict=True):
        if tp in copy.headless:
            lost = [] if _are_counted(copy, tp, rows) else rows[:1]
        else:
            mark, copied = copy.partitions[tp]
            below = min(mark.source_through, marks[tp].source_through)
            there = {row for row in copied if row.source_offset < below}
            here = {row for row in rows if row.source_offset < below}
            lost = sorted(there - here) if here < there else []
        if lost:
            yield tp, lost


def _is_comparable(copy: LinkCopy, tp: TopicPartition, kept: Watermark) -> bool:
    """Whether the store's watermark of a partition is of the copy's epoch, and, where the copy tells by its own
    watermark alone which rows there were, reaches as far."""
    if tp not in copy.headless:
        return kept.epoch == copy.partitions[tp].watermark.epoch
    mark = copy.unproven[tp]
    return kept.epoch == mark.epoch and kept.source_through >= mark.source_through


def _are_counted(copy: LinkCopy, tp: TopicPartition, rows: Iterable[OffsetMapping]) -> bool:
    """Whether the first of these rows are those that a watermark of the copy counts which the copy doesn't prove."""
    return begins_with([(row.source_offset, row.target_offset) for row in rows], *copy.counted[tp])


def _not_compared(
    copy: LinkCopy, store: Store, link: Link, marks: Mapping[TopicPartition, Watermark]
) -> Iterator[TopicPartition]:
    """The partitions of which the copy doesn't have the rows that its watermark counts, nor the store."""
    known = copy.unproven.keys() & copy.counted.keys() & marks.keys()
    alike = sorted(tp for tp in known if marks[tp].epoch == copy.unproven[tp].epoch)
    for tp, rows in zip(alike, store.mappings_of(link.id, [(tp, marks[tp].epoch) for tp in alike]), strict=True):
        if not _are_counted(copy, tp, rows):
            yield tp


def unproven_rows(
    copy: LinkCopy,
    store: Store,
    link: Link,
    known: Callable[[Watermark, Sequence[OffsetMapping]], bool],
    at: datetime,
    *,
    looked_from: int,
) -> list[Problem]:
    """The problem `rows_unproven` of each partition whose rows are needed, and that neither the copy proves, which had
    some, nor its watermark alone: who writes the store's rows there makes it prove those, all or not.

    Args:
        copy: the copy, with its `begins`.
        store: the store.
        link: a configured link.
        known: whether the caller has seen that these are all rows of a watermark's partition, as long as the store had
            them.
        at: now.
        looked_from: where the copy began when it was last looked through for this; 0: it wasn't. What it lacks since,
            though it begins there still, it never had.
    """
    if link.shares_target:
        return []
    marks, other = store.watermarks(link.id), _of_other_topics(copy, store, link)
    places = {tp for tp in _not_compared(copy, store, link, marks) if tp.topic not in other}
    cut = copy.begins > looked_from
    places |= {tp for tp in marks.keys() - copy.watermarks.keys() if cut or tp in copy.lost_marks}
    found = sorted(places)
    rows_of = store.mappings_of(link.id, [(tp, marks[tp].epoch) for tp in found])
    return [
        unproven_problem(
            link.id, tp, f"they were written anew to its copy on {link.id.target}, which had lost them", at
        )
        for tp, rows in zip(found, rows_of, strict=True)
        if rows and doubt_of_rows(_NOT_PROVEN, marks[tp], rows) is not None and not known(marks[tp], rows)
    ]


def unproven_problem(link: LinkId, tp: TopicPartition, why: str, at: datetime) -> Problem:
    """The problem `rows_unproven` of a partition; `why`: how its rows got a record that can't tell, as a clause."""
    return Problem(
        ROWS_UNPROVEN,
        tp.topic,
        tp.partition,
        f"whether the store has all mapping rows of {tp} isn't known: {why}",
        f"While {link.source} answers, `drkit link resume '{link}' --topic {tp.topic} --accept-recreated` mirrors the "
        "topic again, with rows of its own. Or, where you know that this store was never set back and lost nothing (no "
        f"audit shows that: it finds records wherever they are): `drkit link acknowledge '{link}' {ROWS_UNPROVEN} "
        f"--topic {tp.topic}`. Until then its groups go back to where nothing is skipped",
        halted=False,
        since=at,
    )


def _of_other_topics(copy: LinkCopy, store: Store, link: Link) -> set[str]:
    """Topics whose target in the copy is another one, by its id, than in the store: a topic that was forgotten and
    created anew begins at the first epoch again, so epochs and watermarks don't tell the two apart."""
    kept = store.topic_states(link.id)
    return {
        topic
        for topic, state in copy.topics.items()
        if topic in kept and state.target_topic_id and state.target_topic_id != kept[topic].target_topic_id
    }


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
        and not copied.direction.serves_source
        and kept.direction.serves_source
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
    problem or range that the store lacks may have been cleared since, except where the watermark is newer, too. A
    partition that a recovery left out isn't unknown: its problem says so, and no other store would know more.
    """
    epochs = {topic: state.epoch for topic, state in store.topic_states(link.id).items()}
    other = _of_other_topics(copy, store, link)
    newer = {
        topic: state for topic, state in copy.topics.items() if topic in other or state.epoch > epochs.get(topic, -1)
    }
    there = target.topics(sorted({state.target_topic for state in newer.values()}), denied=set())
    found = []
    for topic, state in sorted(newer.items()):
        info = there.get(state.target_topic)
        if info is not None and info.topic_id == state.target_topic_id:
            later = f"epoch {state.epoch} of topic {topic}" if topic in epochs else f"topic {topic}"
            found.append(later if state.epoch > epochs.get(topic, -1) else f"topic {topic} as it was created anew")
    known = {(each.kind, each.topic, each.partition) for each in store.problems(link.id)}
    found += [
        f"partition {tp}"
        for tp, mark in sorted(copy.watermarks.items())
        if tp not in marks
        and tp.topic in copy.topics
        and tp.topic not in other
        and mark.epoch == epochs.get(tp.topic)
        and not (tp in copy.unproven and (RECORDS_UNMAPPED, *tp) in known)
    ]
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


_NOT_PROVEN = "the copy doesn't prove this partition's mapping rows"


class StoreAge(NamedTuple):
    """Whether the store is older than its copy on the target. `older`: by how much; None: it isn't, as far as that is
    known. `unknown`: why it isn't known. `denied`: only a right is missing. `compared_at`: when all of the copy was
    compared; None: it wasn't, or there is none. `unproven`: partitions whose rows the copy doesn't prove, and that the
    store may have lost."""

    older: OlderStore | None = None
    unknown: str | None = None
    denied: bool = False
    compared_at: datetime | None = None
    unproven: frozenset[TopicPartition] = frozenset()

    def rows_in_doubt(self, link: Link, problems: Iterable[Problem]) -> RowDoubts:
        """Why it isn't known whether the store has all mapping rows of the link, whose problems on record are these. No
        comparison tells of those of a way back, which has no copy, nor beside other writers, where provenance does."""
        if link.shares_target:
            return NO_ROW_DOUBTS
        recorded = doubts_on_record(problems)
        if link.inverse:
            return recorded
        compared = RowDoubts(
            None if self.unknown is None else not_compared(link.id, self.unknown),
            dict.fromkeys(map(str, sorted(self.unproven)), not_compared(link.id, _NOT_PROVEN)),
        )
        return compared.with_later(recorded)

    @property
    def lost(self) -> LostRows:
        """The rows that the store is known to have lost."""
        return {} if self.older is None else self.older.lost


NOT_OLDER = StoreAge()


def read_age(
    link: Link,
    store: Store,
    target: ClusterConfig,
    connect: Callable[[], ClusterAdmin],
    *,
    seconds: float = READ_SECONDS,
) -> StoreAge:
    """Compare the store with its copy on the target; where there is no copy, the store isn't older.

    Args:
        link: the link.
        store: its store.
        target: the configuration of its target.
        connect: makes a connection to it.
        seconds: how long reading the copy may take.
    """
    at = now()
    try:
        admin = connect()
        copy = read_copy(link, store, target, admin, seconds=seconds)
        if copy is None:
            return NOT_OLDER
        older = older_than(copy, store, link, admin)
        if copy.unreadable:
            first = min(copy.unreadable)
            return StoreAge(older, f"{counted(len(copy.unreadable), 'record')} of it can't be read, first {first}")
        deleted = _deleted(copy, store, link)
        unproven = frozenset(_not_compared(copy, store, link, store.watermarks(link.id)))
        return StoreAge(older, deleted, compared_at=at if deleted is None else None, unproven=unproven)
    except DrkitError as error:
        return StoreAge(None, error.what, isinstance(error, Refused))


def _deleted(copy: LinkCopy, store: Store, link: Link) -> str | None:
    """Why nothing can be said of what the copy no longer has; None: it has all that the store knows."""
    if not copy.begins:
        return None
    gone = [str(tp) for tp in sorted(store.watermarks(link.id).keys() - copy.watermarks.keys())]
    if copy.control is None and store.link_control(link.id) is not None:
        gone.insert(0, "the decision about the link")
    if not gone:
        return None
    return (
        f"{copy.topic} begins at offset {copy.begins}: its records of {and_more(gone)} were deleted (by retention, or "
        "DeleteRecords). A running mirror writes them again"
    )


def not_compared(link: LinkId, why: str) -> str:
    """The warning that a store's age isn't known."""
    return f"whether the store is older than its copy on {link.target} isn't known: {why}"


def positions_age(
    link: Link,
    store: Store,
    target: ClusterConfig,
    connect: Callable[[], ClusterAdmin],
    marks: Collection[Watermark],
    *,
    only_rows: bool,
    seconds: float,
) -> StoreAge:
    """Compare the store with its copy, as a failover does, before its rows are shown as positions.

    Args:
        link: a link, whoever mirrors it, and whichever cluster clients use.
        store: its store.
        target: the configuration of its target.
        connect: makes a connection to it.
        marks: its watermarks.
        only_rows: only lost rows matter, not whether all of the store is older: where offsets are kept equal, and all
            are, none but the first row is needed, and nothing is read.
        seconds: how long reading the copy may take.
    """
    if not marks or link.inverse or link.shares_target:  # the way back has no copy; beside others provenance tells
        return NOT_OLDER
    keeps_equal = link.offsets is OffsetMode.PRESERVE and not link.alters
    if only_rows and keeps_equal and all(mark.target_end == mark.source_through for mark in marks):
        return NOT_OLDER
    return read_age(link, store, target, connect, seconds=seconds)


class ComparedStores:
    """What comparing the links' store with its copy found, and when. A command that looks again and again keeps it: a
    copy of thousands of partitions takes seconds to read.

    Each finding counts for `KEPT_SECONDS`, or for `KEPT_TIMES` as long as its comparison took where that is longer.
    Threads may share it.

    Args:
        seconds: how long reading a copy may take; None: `LOOK_SECONDS`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS)
        self._found: dict[LinkId, tuple[StoreAge, float]] = {}

    def age(self, link: LinkId, compare: Callable[[], StoreAge]) -> StoreAge:
        """What was found of the store of this link; it is compared unless that counts still."""
        found, until = self._found.get(link, (NOT_OLDER, -1.0))
        begun = time.monotonic()
        if begun > until:
            found = compare()
            done = time.monotonic()
            pause = KEPT_SECONDS if found.unknown is not None else max(KEPT_SECONDS, KEPT_TIMES * (done - begun))
            self._found[link] = found, done + pause
        return found


def older_store_problems(
    link: Link, age: StoreAge, marks: Collection[Watermark], ends: Mapping[TopicPartition, int], at: datetime
) -> list[Problem]:
    """The problem `store_older` of each partition whose target holds more than the store's watermark, where the store
    is older than its copy or that isn't known, of all or of that one; and of each whose mapping rows the store has lost
    in part. Pure.

    Args:
        link: the link.
        age: of its store.
        marks: its watermarks, read before `ends`.
        ends: the target's log ends, by its own names.
        at: now.
    """
    if link.shares_target:
        return []
    if age.unknown is not None:
        why = not_compared(link.id, age.unknown)
        remedy = (
            f"Grant drkit's principal READ on the copy's topic on {link.id.target} (`drkit acls` prints it)"
            if age.denied
            else f"Try again when {link.id.target} answers for the copy's topic"
        )
    elif age.older is not None:
        why, remedy = f"the store is older than its copy on {link.id.target}", age.older.remedy(link)
    else:
        why = not_compared(link.id, _NOT_PROVEN)
        remedy = (
            f"Start drkit mirror --link '{link.id}' while {link.id.source} answers: it compares what landed there. The "
            f"rows below stay in doubt ({ROWS_UNPROVEN})"
        )
        marks = [mark for mark in marks if mark.tp in age.unproven]
    unsure = {mark.tp: mark.source_through for mark in _beyond(link, marks, ends)}
    unsure |= {tp: rows[0].source_offset for tp, rows in age.lost.items()}
    return [_older(link.id, mark, unsure[mark.tp], why, remedy, at) for mark in marks if mark.tp in unsure]


def _beyond(link: Link, marks: Iterable[Watermark], ends: Mapping[TopicPartition, int]) -> list[Watermark]:
    """Those that the target's log goes beyond."""
    there = ((mark, TopicPartition(link.target_topic(mark.topic), mark.partition)) for mark in marks)
    return [mark for mark, tp in there if ends.get(tp, 0) > mark.target_end]


def _older(link: LinkId, mark: Watermark, first: int, why: str, remedy: str, at: datetime) -> Problem:
    reason = f"{why}. How what {link.target} holds from source offset {first:,} on is mapped isn't known"
    return Problem(STORE_OLDER, mark.topic, mark.partition, reason, remedy, halted=False, since=at, unsure_from=first)
