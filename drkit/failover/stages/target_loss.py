"""Finds what the cluster that groups move to has lost since a run counted what is missing there.

Between the drain and the close somebody may delete records or topics of it, or its disks go back to an older copy. A
run that looked only where it puts groups would close with a loss of 0 over that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from drkit.failover.context.state_machine import Facts, Loss
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.failover.stages.late_writes import loss_with
from drkit.failover.stages.stage import StageContext
from drkit.model.errors import DrkitError
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """`lost`: by `topic:partition` of the link's source, how many offsets are gone whose records the source may still
    hold; `told`: what is gone, in words; `unknown`: why nothing can be said, None: it can."""

    lost: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    unknown: str | None = None

    def add(self, tp: TopicPartition, count: int, what: str) -> None:
        """So many offsets of a partition are gone (0: whether the source has them isn't known)."""
        self.told.append(what)
        if count:
            self.lost[str(tp)] = self.lost.get(str(tp), 0) + count


@dataclass(frozen=True, slots=True)
class _Target:
    """What the target shows now: the names of the source's partitions there, log starts and ends, the logs that nobody
    answers for, with the reason, and those of topics that were made anew."""

    names: dict[TopicPartition, TopicPartition]
    logs: dict[TopicPartition, tuple[int, int]]
    silent: dict[TopicPartition, str]
    anew: frozenset[TopicPartition]

    @classmethod
    def read(cls, context: StageContext, tps: Iterable[TopicPartition], states: Mapping[str, TopicState]) -> Self:
        """Ask for it.

        Raises:
            Unreachable: it doesn't answer.
        """
        link, silent = context.link, dict[TopicPartition, str]()
        names = {tp: TopicPartition(link.target_topic(tp.topic), tp.partition) for tp in tps}
        target = context.estate.admin(link.id.target)
        topics = target.topics(sorted({copy.topic for copy in names.values()}))
        there = [tp for tp in names.values() if tp.topic in topics and tp.partition < topics[tp.topic].partitions]
        starts = target.start_offsets(there, silent=silent)
        ends = target.end_offsets(there, committed=False, silent=silent)
        known = {copy.topic: states[tp.topic].target_topic_id for tp, copy in names.items() if tp.topic in states}
        anew = frozenset(tp for tp in there if known.get(tp.topic, "") not in {"", topics[tp.topic].topic_id})
        return cls(names, {tp: (starts[tp], ends[tp]) for tp in there if tp in starts and tp in ends}, silent, anew)

    def not_told(self, target: str) -> str | None:
        """Of which logs nothing is known, in words; None: of none."""
        if not self.silent:
            return None
        which = and_more([f"{tp} ({why})" for tp, why in sorted(self.silent.items())])
        return f"what {target} holds by now isn't known of {which}"


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


def target_loss(context: StageContext, facts: Facts) -> TargetLoss:
    """What the link's target no longer holds of `facts.held`.

    A log that was set back and has grown beyond its former end again isn't noticed. Beginnings that the source no
    longer holds either count for nothing: retention works on both sides.
    """
    link, held = context.link, {TopicPartition.parse(name): each for name, each in facts.held.items()}
    if not held:
        return TargetLoss()
    try:
        states = context.estate.store.topic_states(link.id)
        target = _Target.read(context, held, states)
    except DrkitError as error:
        return TargetLoss(unknown=f"what {link.id.target} holds by now isn't known: {error.what}")
    found = TargetLoss(unknown=target.not_told(link.id.target))
    removed: dict[TopicPartition, tuple[int, int]] = {}
    for tp, (begin, end) in sorted(held.items()):
        copy = target.names[tp]
        if copy in target.silent:
            continue
        if copy not in target.logs or copy in target.anew:
            found.add(tp, end - begin, f"{copy} ({'it is another topic now' if copy in target.anew else 'it is gone'})")
            continue
        start_now, end_now = target.logs[copy]
        if end_now < end:
            found.add(tp, end - max(begin, end_now), f"{copy} (offsets {max(begin, end_now)} to {end - 1})")
        if begin < (until := min(start_now, end, end_now)):
            removed[tp] = begin, until
    _add_removed(context, found, removed, target.names, {name: state.epoch for name, state in states.items()})
    return found


def _add_removed(
    context: StageContext,
    found: TargetLoss,
    removed: Mapping[TopicPartition, tuple[int, int]],
    names: Mapping[TopicPartition, TopicPartition],
    epochs: Mapping[str, int],
) -> None:
    """Beginnings that the target no longer has, as far as the source still has them, or may."""
    on_source = _on_source(context, removed, epochs)
    for tp, (begin, until) in removed.items():
        count = on_source.get(tp)
        which = f"{names[tp]} (offsets {begin} to {until - 1} were removed"
        if count is None:
            found.add(tp, 0, f"{which}; whether {context.link.id.source} has them isn't known)")
        elif count:
            found.add(tp, count, f"{which})")


def _on_source(
    context: StageContext, removed: Mapping[TopicPartition, tuple[int, int]], epochs: Mapping[str, int]
) -> dict[TopicPartition, int]:
    """How many offsets the source still holds of these ranges of the target; without partitions of which that isn't
    known."""
    asked = [tp for tp in removed if tp.topic in epochs]
    if not asked:
        return {}
    store, source = context.estate.store, context.estate.admin(context.link.id.source, may_be_gone=True)
    try:
        starts = source.start_offsets(asked, partial=True)
        rows = dict(
            zip(asked, store.mappings_of(context.link.id, [(tp, epochs[tp.topic]) for tp in asked]), strict=True)
        )
    except DrkitError:
        return {}
    found = {}
    for tp in asked:
        if tp in starts and rows[tp]:
            begin, until = (_source_offset(rows[tp], place) for place in removed[tp])
            found[tp] = max(0, until - max(begin, starts[tp]))
    return found


def _source_offset(rows: Sequence[OffsetMapping], place: int) -> int:
    """The source offset of an offset of the target, by the row in force there (ascending)."""
    at = bisect_right(rows, place, key=lambda row: row.target_offset)
    return place - rows[max(0, at - 1)].delta


def with_target_loss(context: StageContext, facts: Facts) -> tuple[Facts, str]:
    """The facts with what the target has lost since counted as lost, and a sentence about it, "" for nothing."""
    found = target_loss(context, facts)
    if found.unknown is None and not found.told:
        return facts, ""
    source, target = context.link.id.source, context.link.id.target
    said = [] if found.unknown is None else [found.unknown]
    if found.told:
        said.append(
            f"{target} has lost {counted(sum(found.lost.values()), 'offset')} since the run counted what is missing "
            f"there: {and_more(found.told)}; what {source} still holds of it, drkit salvage keeps"
        )
    loss = loss_with(facts, found.lost) if found.lost else facts.loss or Loss(None, None, None)
    loss = replace(
        loss,
        reason="; ".join(filter(None, (loss.reason, *said))),
        upper_bound=loss.upper_bound or bool(found.lost),
        lower_bound=loss.lower_bound or found.unknown is not None,
    )
    return replace(facts, loss=loss), "".join(f"; {each}" for each in said)
