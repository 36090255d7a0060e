"""Finds what the cluster that groups move to has lost since a run counted what is missing there.

Between the drain and the close somebody may delete records or topics of it, or its disks go back to an older copy. A
run that looked only where it puts groups would close with a loss of 0 over that.

A log that was set back may have grown to its former end since, so its last batch is kept and compared, too
(`drkit.lag.diverged_logs`). Where that can't tell, as the cleaner may have written it anew, or nobody could read it,
the last records of both sides are compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from drkit.failover.context.live_log import HeldLog
from drkit.failover.context.state_machine import Facts, Loss
from drkit.failover.positions.consistent_cut import REPARTITION, streams_owner
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.failover.stages.late_writes import loss_with
from drkit.failover.stages.stage import StageContext
from drkit.kafka.client.purged_records import Missing, find_purged
from drkit.kafka.client.record_probe import OffsetRange
from drkit.lag.diverged_logs import as_mirrored, compare_logs, last_batches
from drkit.lag.divergence_check import tail_below
from drkit.lag.problems_now import link_sides
from drkit.lag.unmirrored_tail import seconds_for
from drkit.mapping.translate import translate_by_rows
from drkit.model.clock import now, to_millis
from drkit.model.errors import DrkitError
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted


@dataclass(slots=True)
class TargetLoss:
    """`lost`: by `topic:partition` of the link's source, how many offsets are gone whose records the source may still
    hold; `told`: what is gone, in words; `at_most`: some of that may be there. `unsure`: how many of `lost` count only
    as nobody says whether retention has removed them. `unknown`: of what nothing can be said, and why, in words;
    `by_size`: the same of what a retention by size may have removed since clients write there, which stops no move.
    """

    lost: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    at_most: bool = False
    unsure: int = 0
    unknown: list[str] = field(default_factory=list)
    by_size: list[str] = field(default_factory=list)

    def add(self, tp: TopicPartition, count: int, what: str) -> None:
        """So many offsets of a partition are gone (0: none that the source still has)."""
        self.told.append(what)
        if count:
            self.lost[str(tp)] = self.lost.get(str(tp), 0) + count

    @property
    def certain(self) -> bool:
        """Whether some is gone whatever retention has removed."""
        return sum(self.lost.values()) > self.unsure

    def offsets(self) -> str:
        """How many are gone, in words."""
        return f"{'up to ' if self.at_most else ''}{counted(sum(self.lost.values()), 'offset')}"


@dataclass(frozen=True, slots=True)
class _Target:
    """What the target shows now: the names of the source's partitions there, log starts and ends, the logs that nobody
    answers for, with the reason, and those of topics that were made anew. By the source's partitions: `parted`, the
    offset from which a log isn't the one that it was; `unproven`, of which nothing shows that it is."""

    names: dict[TopicPartition, TopicPartition]
    logs: dict[TopicPartition, tuple[int, int]]
    silent: dict[TopicPartition, str]
    anew: frozenset[TopicPartition]
    parted: dict[TopicPartition, int]
    unproven: frozenset[TopicPartition]

    @classmethod
    def read(
        cls, context: StageContext, held: Mapping[TopicPartition, HeldLog], states: Mapping[str, TopicState]
    ) -> Self:
        """Ask for it, and compare it with what it held.

        Raises:
            Unreachable: it doesn't answer.
        """
        link, silent = context.link, dict[TopicPartition, str]()
        names = {tp: TopicPartition(link.target_topic(tp.topic), tp.partition) for tp in held}
        target = context.estate.admin(link.id.target)
        topics = target.topics(sorted({copy.topic for copy in names.values()}))
        there = [tp for tp in names.values() if tp.topic in topics and tp.partition < topics[tp.topic].partitions]
        starts = target.start_offsets(there, silent=silent)
        ends = target.end_offsets(there, committed=False, silent=silent)
        known = {copy.topic: states[tp.topic].target_topic_id for tp, copy in names.items() if tp.topic in states}
        anew = frozenset(tp for tp in there if known.get(tp.topic, "") not in {"", topics[tp.topic].topic_id})
        logs = {tp: (starts[tp], ends[tp]) for tp in there if tp in starts and tp in ends}
        same = {copy: tp for tp, copy in names.items() if copy in logs and copy not in anew}
        marks = [
            as_mirrored(copy, log.end, start=log.begin, last=log.last)
            for copy, tp in same.items()
            for log in (held[tp],)
        ]
        compared = compare_logs(target, marks)
        return cls(
            names,
            logs,
            silent,
            anew,
            {same[copy]: begin for copy, begin in compared.diverged.items()},
            frozenset(same[copy] for copy in compared.unproven),
        )


def held_by_target(
    context: StageContext, snapshot: Snapshot, before: Mapping[str, HeldLog] | None = None
) -> dict[str, HeldLog]:
    """The target's logs by `topic:partition` of the source, without empty ones: what `target_loss` compares.

    `before`: what an earlier look of the run saw, which counts: what was added since isn't the mirror's. What was gone
    at `snapshot` is in its loss; of what is left of a log that was cut nothing is known. Only logs that weren't seen
    before are read now, for a few seconds at most: groups wait.
    """
    before, held = before or {}, dict[str, HeldLog]()
    fresh = dict[TopicPartition, int]()
    for view in snapshot.partitions.values():
        name = str(view.tp)
        if view.target_start is None or view.target_end is None:
            if view.target_silent is not None and name in before:
                held[name] = before[name]
            continue
        begin = max(view.target_start, view.rows[0].target_offset if view.rows else 0)
        known = before.get(name)
        if known is None:
            log = HeldLog(begin, view.target_end)
            fresh[view.target_tp] = view.target_end
        elif known.end <= view.target_end:
            log = known._replace(begin=begin)
        else:
            log = HeldLog(begin, view.target_end)
        if log.begin < log.end:
            held[name] = log
    try:
        last = last_batches(context.estate.admin(context.link.id.target), fresh)
    except DrkitError:  # no move stops for that: ends are compared later, and records where both sides answer
        return held
    names = {str(view.tp): view.target_tp for view in snapshot.partitions.values()}
    return {name: log._replace(last=last.get(names[name], log.last)) for name, log in held.items()}


def target_loss(context: StageContext, facts: Facts) -> TargetLoss:
    """What the link's target no longer holds of `facts.held`.

    Beginnings count as far as the source still has them, and retention would have kept them on the target: it works on
    both sides, but segments differ.
    """
    link, held = context.link, {TopicPartition.parse(name): each for name, each in facts.held.items()}
    found = TargetLoss()
    if not held:
        return found
    try:
        states = context.estate.store.topic_states(link.id)
        target = _Target.read(context, held, states)
    except DrkitError as error:
        found.unknown.append(f"what {link.id.target} holds by now isn't known: {error.what}")
        return found
    if target.silent:
        silent = and_more([f"{tp} ({why})" for tp, why in sorted(target.silent.items())])
        found.unknown.append(f"what {link.id.target} holds by now isn't known of {silent}")
    removed: dict[TopicPartition, tuple[int, int]] = {}
    doubtful: dict[TopicPartition, HeldLog] = {}
    for tp, log in sorted(held.items()):
        copy, (begin, end, _) = target.names[tp], log
        if copy in target.silent:
            continue
        if copy not in target.logs or copy in target.anew:
            found.add(tp, end - begin, f"{copy} ({'it is another topic now' if copy in target.anew else 'it is gone'})")
            continue
        start_now, end_now = target.logs[copy]
        same_until = max(begin, min(target.parted.get(tp, end), end_now))
        if same_until < end:
            grown = ": it was set back, and has grown again" if end_now >= end else ""
            found.add(tp, end - same_until, f"{copy} (offsets {same_until} to {end - 1}{grown})")
            found.at_most |= bool(grown)
        if begin < (until := min(start_now, same_until)):
            removed[tp] = begin, until
        if max(begin, start_now) < same_until and (same_until < end or tp in target.unproven):
            doubtful[tp] = log._replace(begin=max(begin, start_now), end=same_until)
    epochs = {name: state.epoch for name, state in states.items()}
    _add_removed(context, found, removed, target, epochs)
    _add_other_records(context, found, doubtful, target.names)
    return found


def _add_other_records(
    context: StageContext,
    found: TargetLoss,
    logs: Mapping[TopicPartition, HeldLog],
    names: Mapping[TopicPartition, TopicPartition],
) -> None:
    """What these parts of logs hold in place of what was mirrored, by the last records of both sides."""
    if not logs:
        return
    link = context.link
    try:
        unknown = _compare_records(context, found, logs, names)
    except DrkitError as error:
        unknown = dict.fromkeys(logs, error.what)
    if unknown:
        named = and_more([f"{names[tp]} ({why})" for tp, why in sorted(unknown.items())])
        found.unknown.append(
            f"nothing shows that {link.id.target} still holds what it held of {named}: it was cut, its last batch "
            f"could not be read, or its cleaner has written that anew"
        )


def _compare_records(
    context: StageContext,
    found: TargetLoss,
    logs: Mapping[TopicPartition, HeldLog],
    names: Mapping[TopicPartition, TopicPartition],
) -> dict[TopicPartition, str]:
    """Add what is found; returns of which of these logs nothing can be said, and why.

    Raises:
        DrkitError: a cluster or the store doesn't answer, or a callable of the link can't be imported.
    """
    link, store = context.link, context.estate.store
    stored = store.watermarks(link.id)
    marks = {tp: stored[tp] for tp in logs if tp in stored}
    rows = dict(zip(marks, store.mappings_of(link.id, [(tp, mark.epoch) for tp, mark in marks.items()]), strict=True))
    offsets = {tp: _source_offset(rows[tp], logs[tp].end) for tp in marks if rows[tp]}
    asked = {tp: offset for tp, offset in offsets.items() if _is_comparable(logs[tp], offset, marks[tp], rows[tp])}
    tail = tail_below(
        asked,
        marks,
        link=link.id,
        store=store,
        sides=lambda: link_sides(context.estate, link, store, left=context.commit_begun),
        seconds=seconds_for(len(asked)),
    )
    for tp in sorted(tail.first):
        begin = max(tail.same_until[tp], _source_offset(rows[tp], logs[tp].begin))
        what = f"{names[tp]} (it holds other records than {link.id.source}'s from its offset {begin} on)"
        found.add(tp, max(0, asked[tp] - begin), what)
        found.at_most = True
    why = f"no mapping row says where all of that is on {link.id.source}"
    return dict.fromkeys(logs.keys() - asked.keys(), why) | tail.unread


def _is_comparable(log: HeldLog, source_offset: int, mark: Watermark, rows: Sequence[OffsetMapping]) -> bool:
    """Whether records of the source below this offset may be told by those of the target's log: clients have written
    what is behind its watermark."""
    place = translate_by_rows(source_offset, rows, mark).target_offset
    return log.end <= mark.target_end and mark.source_start < source_offset and place == log.end


def _add_removed(
    context: StageContext,
    found: TargetLoss,
    removed: Mapping[TopicPartition, tuple[int, int]],
    target: _Target,
    epochs: Mapping[str, int],
) -> None:
    """What no retention removed at the beginnings of the target's logs, as far as the source has them, or may."""
    if not removed:
        return
    unsure, by_size, why = dict[TopicPartition, str](), set[TopicPartition](), ""
    try:
        purged = _purged(context, removed, target, epochs, unsure, by_size)
    except DrkitError as error:
        purged, why = {}, f" ({error.what})"
    for tp, (begin, until) in removed.items():
        count = purged.get(tp)
        which = f"{target.names[tp]} (offsets {begin} to {until - 1} were removed"
        if count is None:
            source = context.link.id.source
            found.unknown.append(f"{which}): whether {source} has them, and retention kept them, isn't known{why}")
        elif tp in by_size:
            found.by_size.append(
                f"{which}): whether its retention by size did that isn't known, as clients write there"
            )
        elif tp in unsure:
            found.add(tp, count, f"{which}; whether retention did that isn't known: {unsure[tp]})")
            found.unsure += count
            found.at_most = True
        elif count:
            found.add(tp, count, f"{which})")


def _purged(
    context: StageContext,
    removed: Mapping[TopicPartition, tuple[int, int]],
    target: _Target,
    epochs: Mapping[str, int],
    unsure: dict[TopicPartition, str],
    by_size: set[TopicPartition],
) -> dict[TopicPartition, int]:
    """How many offsets of these ranges of the target the source has still, and retention would have kept; without
    partitions of which that isn't known. `unsure` collects those of which only the source's part is known, with the
    reason: retention may have removed all that counts. `by_size`: those that a retention by size may have removed; once
    clients write to the target, its log may be larger than it was then.

    Raises:
        DrkitError: a cluster or the store doesn't answer, the source was replaced, or may not be read.
    """
    link, store = context.link, context.estate.store
    source, cluster = context.estate.admin(link.id.source, may_be_gone=True), context.estate.admin(link.id.target)
    known = [tp for tp in removed if tp.topic in epochs]
    starts = source.start_offsets(known, partial=True)
    ends = source.end_offsets(known, committed=False, partial=True)
    marks = store.watermarks(link.id)
    asked = [tp for tp in known if tp in starts and tp in ends and tp in marks and marks[tp].epoch == epochs[tp.topic]]
    mapped = store.mappings_of(link.id, [(tp, epochs[tp.topic]) for tp in asked])
    missing, found = dict[TopicPartition, Missing](), dict[TopicPartition, int]()
    for tp, rows in zip(asked, mapped, strict=True):
        if not rows:
            continue
        begin, until = (_source_offset(rows, place) for place in removed[tp])
        # what is behind that are clients' records of the target, which the source never had
        until = min(until, marks[tp].source_through, ends[tp])
        found[tp] = 0
        if (begin := max(begin, starts[tp])) < until:
            copy = target.names[tp]
            emptied = target.logs[copy][0] >= marks[tp].target_end
            missing[tp] = Missing(OffsetRange(begin, until), copy, emptied=emptied)
    if context.commit_begun:
        missing = _without_read_by_streams(context, missing, target)
    if not missing:
        return found
    sized, policy = not context.commit_begun, link.settings_policy
    try:
        purged = find_purged(
            source, cluster, missing, policy, at_ms=to_millis(now()), sized=sized, unknown=unsure, by_size=by_size
        )
    except DrkitError as error:
        purged = {}
        unsure |= dict.fromkeys(missing, error.what)
    purged |= {tp: missing[tp].stretch for tp in unsure}
    return found | {tp: stretch.end - stretch.begin for tp, stretch in purged.items()}


def _without_read_by_streams(
    context: StageContext, missing: Mapping[TopicPartition, Missing], target: _Target
) -> dict[TopicPartition, Missing]:
    """These, without what Streams applications have removed themselves: they delete what they have read of their
    repartition topics, which no retention removes.

    Raises:
        DrkitError: their groups can't be asked.
    """
    groups = {position.group for position in context.positions}
    owners = dict[TopicPartition, str]()
    for copy in (each.target for each in missing.values()):
        owner = streams_owner(copy.topic, groups) if copy.topic.endswith(REPARTITION) else None
        if owner is not None:
            owners[copy] = owner
    if not owners:
        return dict(missing)
    committed = context.estate.groups(context.link.id.target).committed(sorted(set(owners.values())))
    read = {each.tp: each.offset for each in committed if owners.get(each.tp) == each.group}
    return {tp: each for tp, each in missing.items() if read.get(each.target, -1) < target.logs[each.target][0]}


def _source_offset(rows: Sequence[OffsetMapping], place: int) -> int:
    """The source offset of an offset of the target, by the row in force there (ascending)."""
    at = bisect_right(rows, place, key=lambda row: row.target_offset)
    return place - rows[max(0, at - 1)].delta


def with_target_loss(context: StageContext, facts: Facts) -> tuple[Facts, str]:
    """The facts with what the target has lost since counted as lost, and a sentence about it, "" for nothing."""
    found = target_loss(context, facts)
    said = [*found.unknown, *found.by_size]
    if not said and not found.told:
        return facts, ""
    source, target = context.link.id.source, context.link.id.target
    if found.told:
        said.append(
            f"{target} has lost {found.offsets()} since the run counted what is missing "
            f"there: {and_more(found.told)}; what {source} still holds of it, drkit salvage keeps"
        )
    loss = loss_with(facts, found.lost) if found.lost else facts.loss or Loss(None, None, None)
    loss = replace(
        loss,
        reason="; ".join(filter(None, (loss.reason, *said))),
        upper_bound=loss.upper_bound or bool(found.lost),
        lower_bound=loss.lower_bound or bool(found.unknown or found.by_size),
    )
    return replace(facts, loss=loss), "".join(f"; {each}" for each in said)
