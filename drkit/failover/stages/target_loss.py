"""Finds what the cluster that groups move to has lost since a run counted what is missing there.

Between the drain and the close somebody may delete records or topics of it, or its disks go back to an older copy. A
run that looked only where it puts groups would close with a loss of 0 over that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from drkit.failover.context.state_machine import Facts, Loss
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.failover.stages.late_writes import loss_with
from drkit.failover.stages.stage import StageContext
from drkit.model.errors import DrkitError
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """`lost`: by `topic:partition` of the link's source, how many offsets are gone whose records the source may still
    hold; `told`: what is gone, in words; `unknown`: why nothing can be said, None: it can."""

    lost: dict[str, int] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    unknown: str | None = None


def held_by_target(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    """The target's log starts (behind filler, which is removed) and ends by `topic:partition` of the source, without
    empty logs: what `target_loss` compares."""
    held = {}
    for view in snapshot.partitions.values():
        if view.target_start is None or view.target_end is None:
            continue
        begin = max(view.target_start, view.rows[0].target_offset if view.rows else 0)
        if begin < view.target_end:
            held[str(view.tp)] = (begin, view.target_end)
    return held


def target_loss(context: StageContext) -> TargetLoss:
    """What the link's target no longer holds of `Facts.held`.

    A log that was set back and has grown beyond its former end again isn't noticed. Beginnings that are gone on both
    sides count for nothing: retention works on both.
    """
    link, held = context.link, {_partition(name): each for name, each in context.facts.held.items()}
    if not held:
        return TargetLoss()
    names = {tp: TopicPartition(link.target_topic(tp.topic), tp.partition) for tp in held}
    target = context.estate.admin(link.id.target)
    try:
        states = context.estate.store.topic_states(link.id)
        topics = target.topics(sorted({there.topic for there in names.values()}))
        there = [tp for tp in names.values() if tp.topic in topics and tp.partition < topics[tp.topic].partitions]
        starts, ends = target.start_offsets(there), target.end_offsets(there, committed=False)
    except DrkitError as error:
        return TargetLoss(unknown=f"what {link.id.target} holds by now isn't known: {error.what}")
    lost, told = {}, []
    removed: dict[TopicPartition, int] = {}
    for tp, (begin, end) in sorted(held.items()):
        copy, state = names[tp], states.get(tp.topic)
        before = "" if state is None else state.target_topic_id
        if copy not in ends or (before and topics[copy.topic].topic_id != before):
            lost[str(tp)] = end - begin
            told.append(f"{copy} ({'it is another topic now' if copy in ends else 'it is gone'})")
            continue
        if ends[copy] < end:
            lost[str(tp)] = end - max(begin, ends[copy])
            told.append(f"{copy} (offsets {max(begin, ends[copy])} to {end - 1})")
        if begin < (now_from := min(starts[copy], end, ends[copy])):
            removed[tp] = now_from - begin
    source_holds = _on_source(context, removed)
    for tp, count in removed.items():
        begin = held[tp][0]
        if gone := min(count, source_holds.get(tp, 0)):
            lost[str(tp)] = lost.get(str(tp), 0) + gone
            told.append(f"{names[tp]} (offsets {begin} to {begin + count - 1} were removed)")
    return TargetLoss(lost, tuple(told))


def _on_source(context: StageContext, tps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets the source's logs hold; without those that can't be asked."""
    if not tps:
        return {}
    source = context.estate.admin(context.link.id.source, may_be_gone=True)
    try:
        starts = source.start_offsets(tps, partial=True)
        ends = source.end_offsets(tps, committed=False, partial=True)
    except DrkitError:
        return {}
    return {tp: ends[tp] - starts[tp] for tp in tps if tp in starts and tp in ends}


def with_target_loss(context: StageContext, facts: Facts) -> tuple[Facts, str]:
    """The facts with what the target has lost since counted as lost, and a sentence about it, "" for nothing."""
    found = target_loss(replace(context, facts=facts))
    if found.unknown is not None:
        loss = facts.loss or Loss(None, None, None)
        reason = "; ".join(filter(None, (loss.reason, found.unknown)))
        return replace(facts, loss=replace(loss, lower_bound=True, reason=reason)), f"; {found.unknown}"
    if not found.lost:
        return facts, ""
    source, target = context.link.id.source, context.link.id.target
    count = sum(found.lost.values())
    why = (
        f"{target} has lost {counted(count, 'offset')} since the run counted what is missing there: "
        f"{and_more(list(found.told))}; what {source} still holds of it, drkit salvage keeps"
    )
    loss = loss_with(facts, found.lost)
    reason = "; ".join(filter(None, (loss.reason, why)))
    return replace(facts, loss=replace(loss, upper_bound=True, reason=reason)), f"; {why}"


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition(":")
    return TopicPartition(topic, int(number))
