"""Which offsets of a cluster others have written beside the link's mirror, which writes there, too.

Below its watermark the mapping rows say what the mirror wrote; beyond it the producers of the records do
(`drkit.lag.beyond_watermarks`). A batch of the mirror's that was on its way may land behind a stranger's: so where the
last one is its own, its watermark is waited for. It halts instead, if its batch is not where it should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from drkit.failover.stages.stage import StageContext
from drkit.lag.beyond_watermarks import beyond_watermarks
from drkit.model.offsets import OffsetMapping, merged_ranges, without_ranges
from drkit.model.topology import TopicPartition, is_canary

MIRROR_SECONDS = 15.0
"""How long a mirror may take to record what it has written: a second, ten where there are very many partitions."""


@dataclass(slots=True)
class BesideMirror:
    """`others`: ranges [first, end) that others wrote, by `topic:partition`; `at_most`: some of that may be the
    mirror's; `unknown`: partitions of which that isn't known."""

    others: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    at_most: bool = False
    unknown: list[str] = field(default_factory=list)


def others_beside_mirror(context: StageContext, written: Mapping[str, tuple[int, int]]) -> BesideMirror:
    """What others have written of these ranges, by `topic:partition` of the cluster that groups left, the target of
    the mirror that runs now."""
    forward, store, ends = context.link.reversed(), context.estate.store, context.facts.ends
    logs = {name: _partition(name) for name, (begin, end) in written.items() if begin < end}
    logs = {name: there for name, there in logs.items() if not is_canary(there.topic)}
    names = {
        TopicPartition(context.link.target_topic(there.topic), there.partition): name for name, there in logs.items()
    }
    strangers = _strangers(context, {tp: logs[name] for tp, name in names.items()}, written)
    found = BesideMirror()

    def halted() -> set[TopicPartition]:
        problems = [problem for problem in store.problems(forward.id) if problem.halted]
        return {tp for tp in names if any(problem.concerns(tp) for problem in problems)}

    def unrecorded() -> set[TopicPartition]:
        marks = store.watermarks(forward.id)
        beyond = {tp for tp, name in names.items() if tp not in marks or marks[tp].target_end < written[name][1]}
        return beyond - strangers.keys() - halted()

    context.wait(lambda: not unrecorded(), MIRROR_SECONDS)
    unknown, stopped = unrecorded(), halted()
    marks, states = store.watermarks(forward.id), store.topic_states(forward.id)
    for tp, name in sorted(names.items()):
        begin, end = written[name]
        mark, state = marks.get(tp), states.get(tp.topic)
        rows = store.mappings(forward.id, tp, mark.epoch) if mark is not None else []
        if name not in ends and state is not None and state.created_by_drkit and rows:
            begin = max(begin, rows[0].target_offset)  # filler is below it
        through = min(end, begin if mark is None else max(begin, mark.target_end))
        ranges = without_ranges([(begin, through)], written_by(rows, through))
        if tp in unknown:
            found.unknown.append(name)
        elif through < end and (tp in strangers or tp in stopped):
            ranges = merged_ranges([*ranges, (max(through, strangers.get(tp, through)), end)])
            found.at_most |= tp in stopped
        if ranges:
            found.others[name] = ranges
    return found


def _strangers(
    context: StageContext, logs: Mapping[TopicPartition, TopicPartition], written: Mapping[str, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """The offset from which on a stranger wrote, of partitions whose last record is a stranger's; by the mirror's
    source partition."""
    estate, link = context.estate, context.link.reversed().id
    marks = [mark for tp, mark in estate.store.watermarks(link).items() if tp in logs]
    target = estate.admin(link.target, may_be_gone=True)
    ends = {there: written[str(there)][1] for there in logs.values()}
    return beyond_watermarks(target, estate.store, link, marks, logs, ends).written_from


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition(":")
    return TopicPartition(topic, int(number))


def written_by(rows: Sequence[OffsetMapping], target_end: int) -> list[tuple[int, int]]:
    """The target offsets, [first, end), that these rows (ascending, of one partition and epoch) map below the end of
    what was mirrored: each row's up to where the next one's source begins."""
    last = [(rows[-1].target_offset, target_end)] if rows and rows[-1].target_offset < target_end else []
    return [
        (row.target_offset, min(row.target_offset + following.source_offset - row.source_offset, target_end))
        for row, following in pairwise(rows)
        if row.target_offset < target_end
    ] + last
