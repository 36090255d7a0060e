"""Fills a new store from the copy of a link's state on its target.

Nothing of it is believed beyond what it proves itself: rows that are those a watermark counts, and topics that are
still the ones (by their ids) that were mirrored to. Where a partition's log on the target has another end than the
copy's watermark, a problem (`store_recovered`) makes every position beyond that watermark conservative: it goes back to
it. A mirror that finds the source compares what landed there and settles the problem. A partition that is left out has
the problem `records_unmapped` where the target holds records of it: no mirror begins behind them.

A recovery that is interrupted is done again, from nothing; until it is over, a note says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.mapping.unmapped_records import rows_of_unmapped, unmapped_problem
from drkit.model.clock import iso, now
from drkit.model.link_state import (
    COPY_CUT,
    RECORDS_UNMAPPED,
    STATE_TOPIC_FAILED,
    STORE_RECOVERED,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.runs import FENCES, newest, record_text
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import counted
from drkit.state_topic.copy_topic import note_copy
from drkit.state_topic.guard import BEGUN, RECOVERY, STATE, begun, holds
from drkit.state_topic.link_copy import LinkCopy, ProvenPartition
from drkit.store.api import Store
from drkit.store.producers import retire_noted_producers
from drkit.store.workers import BEFORE, lose_workers

BASIS_COPY = "state_topic"
BASIS_LOGS = "logs"
_ROWS_AT_ONCE = 10_000
MISSING = (
    "the journals of runs (`drkit runs` lists none)",
    "positions of groups over time (`failover --committed-at`), except for their latest positions",
    "digests of ranges (`drkit audit` compares whole partitions)",
)
"""Data that no copy has."""


@dataclass(frozen=True, slots=True)
class TopicLeftOut:
    """A topic or partition that could not be recovered, and why."""

    topic: str
    partition: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Conservative:
    """A partition where positions beyond a source offset go back to it."""

    topic: str
    partition: int
    source_offset: int
    target_offset: int
    target_end: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """The recovered data of one link. `written_at`: the time of the copy's last record."""

    link: Link
    basis: str
    copy: str
    written_at: datetime | None
    control: LinkControl | None
    topics: int
    partitions: int
    rows: int
    group_names: tuple[str, ...]
    positions: int
    left_out: tuple[TopicLeftOut, ...]
    conservative: tuple[Conservative, ...]


def has_data(store: Store, link: Link) -> bool:
    """Whether the store has data of the link other than from an interrupted recovery or restore."""
    return begun(store, link) is None and (holds(store, link) or store.link_control(link.id) is not None)


def fill(
    store: Store,
    link: Link,
    copy: LinkCopy,
    target: ClusterAdmin | None,
    *,
    basis: str = BASIS_COPY,
    more_left_out: Iterable[TopicLeftOut] = (),
) -> Recovered:
    """Fill a store that has no data of the link; what an interrupted recovery left in it is removed.

    Args:
        store: the store.
        link: the link.
        copy: the link's known state.
        target: its target; None: it doesn't answer, and nothing is known of its partitions.
        basis: the origin of `copy`.
        more_left_out: data already known to be missing.

    Raises:
        Unreachable: the target or the store doesn't answer; it can be done again.
    """
    if begun(store, link):
        _remove_partial(store, link)
    store.put_notes(link.id, RECOVERY, {STATE: BEGUN})
    topics, left_out = _still_there(link, copy.topics.values(), target)
    left_out += more_left_out
    left_out += [
        TopicLeftOut(tp.topic, tp.partition, "its mapping rows in the copy are not those that its watermark counts")
        for tp in copy.unproven
        if tp.topic in topics
    ]
    left_out += _not_in_copy(copy, topics.values(), left_out)
    partitions = {tp: found for tp, found in copy.partitions.items() if tp.topic in topics}
    there = {TopicPartition(topics[tp.topic].target_topic, tp.partition): tp for tp in partitions}
    ends = {} if target is None else {there[tp]: end for tp, end in target.log_ends(there, partial=True).items()}
    for problem in copy.problems:
        if problem.kind != STATE_TOPIC_FAILED:
            store.put_problem(link.id, problem)
    cut = _cut(link, copy)
    if cut is not None:
        left_out.insert(0, TopicLeftOut("*", None, cut))
        store.put_problem(link.id, _cut_problem(link, cut))
    conservative = []
    rows: list[OffsetMapping] = []
    for tp, found in sorted(partitions.items()):
        doubt = _doubt(link, copy, found, ends.get(tp))
        kept = [*found.rows]
        if doubt is not None:
            conservative.append(doubt)
            kept = with_row_at(found.rows, found.watermark)
            store.put_problem(link.id, _problem(link, doubt, copy.control))
        rows += [*_of_former_epochs(found), *kept]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        store.append_mappings(link.id, rows[start : start + _ROWS_AT_ONCE])
    store.put_group_positions(link.id, copy.positions)
    _put_notes(store, link, copy)
    retire_noted_producers(store, link.id)
    lose_workers(store, link.id, [BEFORE], store.time())
    _put_unmapped(store, link, copy, topics, left_out, target)
    if copy.topic:
        note_copy(link, store, copy.topic)
    put_control(store, copy.control)
    store.put_topic_states(link.id, list(topics.values()))
    store.put_watermarks(link.id, [found.watermark for found in partitions.values()])
    store.put_notes(link.id, RECOVERY, {STATE: str(iso(now()))})
    return Recovered(
        link=link,
        basis=basis,
        copy=copy.topic,
        written_at=copy.written_at,
        control=copy.control,
        topics=len(topics),
        partitions=len(partitions),
        rows=len(rows),
        group_names=tuple(sorted({position.group for position in copy.positions})),
        positions=len(copy.positions),
        left_out=tuple(left_out),
        conservative=tuple(conservative),
    )


def _remove_partial(store: Store, link: Link) -> None:
    store.forget_link_data(link.id)
    for kind in store.note_kinds(link.id) - {RECOVERY}:
        store.forget_notes(link.id, kind, list(store.notes(link.id, kind)))


def _still_there(
    link: Link, states: Iterable[TopicState], target: ClusterAdmin | None
) -> tuple[dict[str, TopicState], list[TopicLeftOut]]:
    """The topics whose targets are still those that were mirrored to."""
    states = list(states)
    names = {state.target_topic for state in states}
    found: dict[str, TopicInfo] = {} if target is None else target.topics(names)
    kept, left_out = {}, []
    for state in states:
        info = found.get(state.target_topic)
        if info is not None and info.topic_id == state.target_topic_id:
            kept[state.topic] = state
        else:
            why = "is another topic of the name now" if info is not None else "is not there any more"
            left_out.append(TopicLeftOut(state.topic, None, f"{state.target_topic} on {link.id.target} {why}"))
    return kept, left_out


def _not_in_copy(copy: LinkCopy, topics: Iterable[TopicState], known: Iterable[TopicLeftOut]) -> list[TopicLeftOut]:
    """Partitions without a watermark, and watermarks without their topic."""
    said = {(each.topic, each.partition) for each in known}
    missing = [
        TopicLeftOut(*tp, "the copy has no watermark of it: how far it was mirrored is not known")
        for state in topics
        for tp in state.tps()
        if tp not in copy.partitions and tp not in said
    ]
    nameless = sorted({tp.topic for tp in copy.partitions} - copy.topics.keys())
    return missing + [
        TopicLeftOut(name, None, "the copy has watermarks of it, and nothing of the topic") for name in nameless
    ]


def _cut(link: Link, copy: LinkCopy) -> str | None:
    """Why the copy may silently lack topics and groups; None: it seems complete."""
    if copy.begins:
        return (
            f"{copy.topic} on {link.id.target} begins at offset {copy.begins}: the records before were deleted (by "
            "retention, or DeleteRecords), and topics and groups that only these named are missing"
        )
    if copy.unreadable:
        return (
            f"{counted(len(copy.unreadable), 'record')} of {copy.topic} on {link.id.target} can't be read (the first "
            f"has key {copy.unreadable[0]}): what they said is missing"
        )
    return None


def _cut_problem(link: Link, why: str) -> Problem:
    return Problem(
        COPY_CUT,
        "*",
        None,
        f"the store was lost and recovered from a copy that is not whole: {why}",
        f"Compare the groups and topics of the plan with those that you know. While {link.id.source} answers, drkit "
        f"mirror --link '{link.id}' finds all of them again; then `drkit link acknowledge '{link.id}' {COPY_CUT}` "
        "clears this",
        halted=False,
        since=now(),
    )


def _doubt(link: Link, copy: LinkCopy, found: ProvenPartition, end: int | None) -> Conservative | None:
    """Why positions beyond the watermark are unknown; None: the target has no records beyond it."""
    mark = found.watermark
    if end is not None and end <= mark.target_end:
        return None
    place = f"source offset {mark.source_through} (target offset {mark.target_end})"
    if end is None:
        why = f"its log on {link.id.target} can't be asked for its end"
    else:
        why = f"{end - mark.target_end} offsets landed on {link.id.target} beyond {place}, where its copy ends"
    reason = f"the store was lost and recovered from a copy written at {iso(copy.written_at)}: {why}"
    return Conservative(*mark.tp, mark.source_through, mark.target_end, end, reason)


def with_row_at(rows: list[OffsetMapping], mark: Watermark) -> list[OffsetMapping]:
    """The rows, with one at the watermark: the next record goes there, even if the source has a gap."""
    at = [row for row in rows if row.source_offset <= mark.source_through]
    last = at[-1] if at else None
    if last is not None and (
        last.source_offset == mark.source_through or last.delta == mark.target_end - mark.source_through
    ):
        return rows
    row = OffsetMapping(*mark.tp, mark.epoch, mark.source_through, mark.target_end)
    return [*at, row, *rows[len(at) :]]


def _of_former_epochs(found: ProvenPartition) -> list[OffsetMapping]:
    """Rows that stand for what the target may hold of the topic from before it was accepted as a new one: the copy has
    rows of the present epoch only."""
    mark, rows = found.watermark, found.rows
    if mark.epoch <= 1 or not rows or rows[0].target_offset <= mark.target_start:
        return []
    log = mark.target_start, rows[0].target_offset
    return rows_of_unmapped(mark.tp, mark.epoch - 1, (0, mark.source_end), log)


def _failed_over(control: LinkControl | None) -> bool:
    return control is not None and not control.direction.serves_source


def _problem(link: Link, doubt: Conservative, control: LinkControl | None) -> Problem:
    if _failed_over(control):
        remedy = f"The link was failed over: what clients write to {link.id.target} lands there, and that is well"
    else:
        remedy = (
            f"While {link.id.source} answers, drkit mirror --link '{link.id}' compares what landed there, and settles "
            f"this. Else groups that had read further go back to source offset {doubt.source_offset} and read again"
        )
    return Problem(
        STORE_RECOVERED,
        doubt.topic,
        doubt.partition,
        doubt.reason,
        remedy,
        halted=False,
        since=now(),
        unsure_from=doubt.source_offset,
    )


def _put_notes(store: Store, link: Link, copy: LinkCopy) -> None:
    """Notes unchanged; those of fences get an epoch of the new store, whose epochs may be lower."""
    fences = copy.notes.get(FENCES, {})
    epochs = {}
    for cluster in {name.rpartition(" ")[0] for name in fences}:
        record = newest(fences, cluster)
        if record is not None:
            epochs[cluster] = epoch = store.next_generation(link.id)
            again = replace(record, epoch=epoch)
            store.put_notes(link.id, FENCES, {again.name: record_text(again)})
    for kind, notes in copy.notes.items():
        if kind in {FENCES, RECOVERY}:
            continue
        word, _, cluster = kind.partition(" ")
        renumbered = word.startswith("fence_") and cluster in epochs
        store.put_notes(link.id, kind, dict.fromkeys(notes, str(epochs[cluster])) if renumbered else notes)


def _put_unmapped(
    store: Store,
    link: Link,
    copy: LinkCopy,
    topics: Mapping[str, TopicState],
    left_out: Iterable[TopicLeftOut],
    target: ClusterAdmin | None,
) -> None:
    """Record which partitions are left out though the target holds records of them, or the copy says that it did."""
    if target is None or link.shares_target:  # beside others the mirror finds its position by provenance
        return
    out = {
        TopicPartition(each.topic, each.partition): each
        for each in left_out
        if each.partition is not None and each.topic in topics
    }
    there = {tp: TopicPartition(topics[tp.topic].target_topic, tp.partition) for tp in out}
    starts, ends = (
        look(there.values(), partial=True) if there else {} for look in (target.start_offsets, target.log_ends)
    )
    for tp, each in out.items():
        end = ends.get(there[tp])
        if tp not in copy.unproven and end is not None and end <= starts.get(there[tp], -1):
            continue
        state = topics[tp.topic]
        why = f"the store was lost and recovered, and left it out: {each.reason}"
        store.put_notes(link.id, RECORDS_UNMAPPED, {str(tp): str(state.epoch)})
        flows = not _failed_over(copy.control)
        store.put_problem(link.id, unmapped_problem(link.id, tp, state.target_topic, why, now(), flows=flows))


def put_control(store: Store, control: LinkControl | None) -> None:
    """Store the decision, whatever the store has; None: leave it."""
    if control is None:
        return
    kept = store.link_control(control.link)
    if kept != control:
        store.set_link_control(control, expected_version=None if kept is None else kept.version)
