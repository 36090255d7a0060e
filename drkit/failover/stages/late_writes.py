"""Finds records written to the cluster that groups left after the last look, reports and counts them.

If it was fenced, somebody has opened it meanwhile (an operator removed the ACLs by hand): it is closed again.

Once a failback has turned the link, a mirror may write there, too. Below its watermark the mapping rows say what the
mirror wrote; beyond it the producers of the records do (`drkit.lag.beyond_watermarks`). A batch of the mirror's that
was on its way may land behind a stranger's: so where the last one is its own and it runs, its watermark is waited for.
It halts instead, if its batch is not where it should be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from drkit.failover.context.state_machine import Facts, Loss, Mode, TopicLoss
from drkit.failover.fencing.cluster_fence import ClusterFence, FenceProof, FenceSuperseded, close_topics_outside
from drkit.failover.fencing.quiescence import ends_of, topic_ids_of, unlisted_topics
from drkit.failover.stages.stage import StageContext
from drkit.lag.beyond_watermarks import beyond_watermarks
from drkit.model.clock import now
from drkit.model.errors import DrkitError, PartlyDone, Refused, Unreachable
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, merged_ranges, without_ranges
from drkit.model.topology import TopicPartition, is_canary
from drkit.model.wording import and_more
from drkit.store.workers import mirror_at_work


def find_late_writes(context: StageContext, *, turned: bool) -> tuple[Facts, str]:
    """The facts with records written since the ends were frozen, or since an unplanned move's loss was counted, and a
    sentence ("": nothing was checked).

    Args:
        context: its link's source is the cluster that groups leave.
        turned: a failback whose link was reversed: that cluster may be mirrored to again.

    Raises:
        PartlyDone: it was fenced, was written anyway, and can't be closed again.
    """
    facts = context.facts
    if facts.fenced is None or not (facts.fenced or facts.ends):
        return facts, ""
    source = context.link.id.source
    try:
        after = ends_of(context, context.link, may_be_gone=True)
        ids = topic_ids_of(context, context.link, may_be_gone=True)
        anew = _recreated(context, ids)
        hidden, gone = _unlisted(context, after)
    except DrkitError as error:
        return _not_seen(facts, source, error) if facts.ends else (facts, "")
    facts, said = _written(context, after, ids, anew, turned=turned) if facts.ends else (facts, "")
    facts, unseen = _without_sight(facts, source, hidden, gone)
    facts, closed = _opened(context, facts)
    return facts, f"{said}{unseen}{closed}"


def _written(
    context: StageContext, after: Mapping[str, int], ids: Mapping[str, str], anew: Collection[str], *, turned: bool
) -> tuple[Facts, str]:
    """As `find_late_writes`, by the log ends now (`after`); `ids`: of the topics, `anew`: those that were recreated."""
    facts, source = context.facts, context.link.id.source
    before = {tp: 0 if tp.rpartition(":")[0] in anew else facts.ends.get(tp, 0) for tp in after}
    late = {tp: (before[tp], end) for tp, end in after.items() if end > before[tp]}
    shorter = [f"{tp} ({end})" for tp, end in sorted(after.items()) if end < before[tp]]
    if late and turned:
        facts, said = _beside_the_mirror(
            context, mirror_at_work(context.estate.store, context.link.reversed().id), late, ids
        )
    elif late:
        facts, said = _late(context, late)
    else:
        said = "" if facts.fenced else f"; {source} isn't fenced, and nothing was written there until {now():%T} UTC"
        if facts.mode is Mode.UNPLANNED and facts.loss is not None:
            facts = replace(facts, loss=replace(facts.loss, observed_at=now()))
    if not shorter:
        return facts, said
    facts, why = _set_back(facts, source, shorter)
    return facts, f"{said if late else ''}; {why}"


def _unlisted(context: StageContext, shown: Iterable[str]) -> tuple[list[str], list[str]]:
    """Topics that were there at the last look, or were mirrored, and of which the cluster that groups left shows no
    partition (`shown`) now: those that drkit may not see any more, and those that were deleted since the last look."""
    ended = {tp.rpartition(":")[0] for tp in context.facts.ends}
    mirrored = {name for name in context.estate.store.topic_states(context.link.id) if context.link.covers_topic(name)}
    absent = {name for name in ended | mirrored if not is_canary(name)} - {tp.rpartition(":")[0] for tp in shown}
    if not absent:
        return [], []
    _denied, gone = unlisted_topics(context, context.link, absent)
    return sorted(absent - gone), sorted(gone & ended)


def _without_sight(facts: Facts, source: str, hidden: Sequence[str], gone: Sequence[str]) -> tuple[Facts, str]:
    """The facts where topics couldn't be looked at: what was written there isn't counted, and of those that are hidden
    nothing shows that the fence keeps clients out."""
    whys = []
    if hidden:
        whys.append(f"drkit can't see {and_more(hidden)} on {source}: what was written there since the last look")
    if gone:
        were = "was" if len(gone) == 1 else "were"
        whys.append(f"{and_more(gone)} {were} deleted on {source} since the last look: what was written there before")
    said = ""
    for why in (f"{each} isn't counted" for each in whys):
        loss = facts.loss or Loss(None, None, None)
        if why not in (loss.reason or ""):
            loss = replace(loss, lower_bound=True, reason=f"{loss.reason}; {why}" if loss.reason else why)
        facts, said = replace(facts, loss=loss), f"{said}; {why}"
    if not facts.fenced:
        return facts, said
    facts = replace(facts, unseen=tuple(hidden))
    why = f"drkit can't see {and_more(hidden)} on {source}: that nobody writes there isn't shown"
    if hidden and why not in (facts.fence_reason or ""):
        facts = replace(facts, fence_reason=f"{facts.fence_reason}; {why}")
    return facts, said


def _opened(context: StageContext, facts: Facts) -> tuple[Facts, str]:
    """Close what clients may write to behind the fence, though nobody was seen to: a rule of it is gone, or a topic was
    created since. Returns the facts with the new fence, and what was done."""
    if not facts.fenced:
        return facts, ""
    source = context.link.id.source
    try:
        found = close_topics_outside(context, source)
    except FenceSuperseded:
        raise
    except (Unreachable, Refused):  # it shows no ACLs: what was read of its logs stands
        return facts, ""
    if found is None:
        return facts, ""
    _proven_again(context, source, found.proof)
    facts = _fenced_by(facts, found.proof)
    return _without_sight(facts, source, facts.unseen, ())[0], f"; {found}"


def _late(context: StageContext, late: dict[str, tuple[int, int]]) -> tuple[Facts, str]:
    """As `find_late_writes`, of these offsets (first and next) by partition."""
    facts, source = context.facts, context.link.id.source
    loss = loss_with(facts, {tp: end - max(_known(facts, tp, begin), begin) for tp, (begin, end) in late.items()})
    facts, why = _closed_again(context, facts, late, turned=False)
    facts = replace(facts, loss=loss, late=facts.late | late)
    return facts, f"; {why}: {_told(source, late)}"


def _told(source: str, late: Mapping[str, tuple[int, int]]) -> str:
    count = sum(end - begin for begin, end in late.values())
    named = [f"{tp} ({begin} to {end})" for tp, (begin, end) in sorted(late.items())]
    return f"{count:,} offsets were written to {source} after the last look: {and_more(named)}"


def _known(facts: Facts, tp: str, begin: int) -> int:
    """Up to where a partition's late writes are counted already."""
    return facts.late.get(tp, (begin, begin))[1]


def _beside_the_mirror(
    context: StageContext, worker: str | None, written: Mapping[str, tuple[int, int]], ids: Mapping[str, str]
) -> tuple[Facts, str]:
    """As `find_late_writes`, where the link's mirror may have written to that cluster again. `worker`: the mirror that
    runs now, or None; `written`: by anybody; `ids`: of that cluster's topics."""
    facts, source = context.facts, context.link.id.source
    since = {tp: (max(_known(facts, tp, begin), begin), end) for tp, (begin, end) in written.items()}
    seen = others_beside_mirror(context, since, ids, at_work=worker is not None)
    late = {tp: (ranges[0][0], ranges[-1][1]) for tp, ranges in seen.others.items()}
    counts = {tp: sum(end - begin for begin, end in ranges) for tp, ranges in seen.others.items()}
    loss = facts.loss or Loss(None, None, None)
    said = ""
    if late:
        loss = loss_with(facts, counts)
        why = f"beside {worker}, which mirrors to {source} again"
        if worker is None:  # or the fence would be in its way
            facts, why = _closed_again(context, facts, late, turned=True)
        said = f"; {why}: {_told(source, late)}"
        if seen.at_most:
            loss = replace(loss, upper_bound=True)
            said += " (some may be the mirror's own)"
    elif not (facts.fenced or facts.late or seen.unknown):
        said = f"; {source} isn't fenced, and only the link's mirror wrote there until {now():%H:%M:%S} UTC"
    if seen.unknown:
        why = (
            f"how much of {and_more(seen.unknown)} the link's mirror has written to {source} isn't known: what others "
            "wrote there since the last look isn't counted (drkit status names what they wrote)"
        )
        loss = replace(loss, lower_bound=True, reason=f"{loss.reason}; {why}" if loss.reason else why)
        said += f"; {why}"
    merged = {tp: (facts.late.get(tp, place)[0], place[1]) for tp, place in late.items()}
    return replace(facts, loss=loss, late=facts.late | merged), said


def _recreated(context: StageContext, ids: Mapping[str, str]) -> set[str]:
    """Topics of the cluster that groups left which are other ones than those that were mirrored, or than those of which
    an unplanned move's loss was counted: nothing that they hold was."""
    facts = context.facts
    known: Mapping[str, str] = facts.topic_ids
    if facts.mode is Mode.PLANNED:
        states = context.estate.store.topic_states(context.link.id)
        known = {name: state.source_topic_id for name, state in states.items()}
    return {name for name, topic_id in ids.items() if known.get(name, topic_id) != topic_id}


def _not_seen(facts: Facts, source: str, error: DrkitError) -> tuple[Facts, str]:
    """The cluster that groups left doesn't answer any more. A fence binds no super user, and nobody on a topic that was
    created after it."""
    who = "super users, or anybody in a topic created after its fence," if facts.fenced else "clients of it, unfenced,"
    why = f"{source} doesn't answer any more: what {who} wrote there since the last look isn't counted"
    loss = facts.loss or Loss(None, None, None)
    known = f"{loss.reason}; " if loss.reason else ""
    if facts.fenced or facts.mode is Mode.UNPLANNED:
        loss = replace(loss, lower_bound=True, reason=f"{known}{why}")
    else:
        loss = replace(loss, records=None, seconds=None, reason=f"{known}{why}: {error.what}")
    return replace(facts, loss=loss), f"; {why}: {error.what}"


def _set_back(facts: Facts, source: str, shorter: Sequence[str]) -> tuple[Facts, str]:
    """Logs of the cluster that groups left end below where they ended: it was set back, or lost their ends, and holds
    other records there, or none."""
    why = (
        f"{and_more(shorter)} on {source} end below where they ended at the last look: it lost their ends, so what "
        "was written there isn't counted"
    )
    loss = facts.loss or Loss(None, None, None)
    if why not in (loss.reason or ""):
        loss = replace(loss, lower_bound=True, reason=f"{loss.reason}; {why}" if loss.reason else why)
    return replace(facts, loss=loss), why


def _closed_again(
    context: StageContext, facts: Facts, late: Mapping[str, tuple[int, int]], *, turned: bool
) -> tuple[Facts, str]:
    """Close the cluster that groups left again if its fence should have kept these late writes out; where its mirror
    may write there by now, not to that. Returns the facts with the new fence, and why there could be late writes."""
    source = context.link.id.source
    if not facts.fenced:
        return facts, "UNFENCED"
    if not any(tp in facts.ends and late[tp] != facts.late.get(tp) for tp in late):
        return facts, "in topics that were created after its fence"
    proof = ClusterFence(context, source).close()
    _proven_again(context, source, proof)
    if turned:
        ClusterFence(context, source).admit_mirror()
    why = f"somebody opened {source} behind its fence (closed again: {proof.reason})"
    return _fenced_by(facts, proof), why


def _fenced_by(facts: Facts, proof: FenceProof) -> Facts:
    """The facts with the fence that was put up again."""
    return replace(facts, fenced=proof.proven, fence_reason=proof.reason, fence_epoch=proof.epoch)


def _proven_again(context: StageContext, source: str, proof: FenceProof) -> None:
    """Raise `PartlyDone` if a fence that was opened can't be closed again."""
    if not proof.proven and not context.facts.unfenced_accepted:
        raise PartlyDone(
            f"{source} is not fenced any more, and clients may write there: {proof.reason}",
            meaning="Records written there stay there only",
            remedy=f"Remove the cause, then drkit resume {context.run}",
        )


def loss_with(facts: Facts, counts: Mapping[str, int]) -> Loss:
    """The loss plus late records by `topic:partition`, none of which was counted before: what was below the ends is on
    the target, or was counted."""
    loss = facts.loss or Loss(None, None, None)
    by_topic: dict[str, int] = {}
    for tp, count in counts.items():
        by_topic[tp.rpartition(":")[0]] = by_topic.get(tp.rpartition(":")[0], 0) + count
    since = None if facts.fenced_at is None else max(0.0, (now() - facts.fenced_at).total_seconds())
    topics = {each.topic: each for each in loss.by_topic}
    for name, count in by_topic.items():
        known = topics.get(name, TopicLoss(name, 0, 0.0))
        topics[name] = TopicLoss(name, None if known.records is None else known.records + count, since)
    records = None if loss.records is None else loss.records + sum(by_topic.values())
    seconds = since if loss.seconds is None or since is None else max(loss.seconds, since)
    return replace(
        loss,
        records=records,
        seconds=seconds,
        observed_at=now(),
        by_topic=tuple(topics[name] for name in sorted(topics)),
    )


MIRROR_SECONDS = 15.0
"""How long a mirror may take to record what it has written: a second, ten where there are very many partitions."""


@dataclass(slots=True)
class BesideMirror:
    """`others`: ranges [first, end) that others wrote, by `topic:partition`; `at_most`: some of that may be the
    mirror's; `unknown`: partitions of which that isn't known."""

    others: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    at_most: bool = False
    unknown: list[str] = field(default_factory=list)


def others_beside_mirror(
    context: StageContext, written: Mapping[str, tuple[int, int]], ids: Mapping[str, str], *, at_work: bool
) -> BesideMirror:
    """What others have written of these ranges, by `topic:partition` of the cluster that groups left, the target of
    the link's mirror.

    `ids`: of that cluster's topics. `at_work`: the mirror runs now, and is waited for; else it has written no topic
    that it has no record of.
    """
    forward, store, ends = context.link.reversed(), context.estate.store, context.facts.ends
    logs = {name: TopicPartition.parse(name) for name, (begin, end) in written.items() if begin < end}
    logs = {name: there for name, there in logs.items() if not is_canary(there.topic)}
    names = {
        TopicPartition(context.link.target_topic(there.topic), there.partition): name for name, there in logs.items()
    }
    strangers = _strangers(context, {tp: logs[name] for tp, name in names.items()}, written)
    found = BesideMirror()
    known = store.topic_states(forward.id)
    alien = {tp for tp, name in names.items() if _is_alien(known.get(tp.topic), ids.get(logs[name].topic), at_work)}
    strangers |= {tp: written[names[tp]][0] for tp in alien}

    def halted() -> set[TopicPartition]:
        problems = [problem for problem in store.problems(forward.id) if problem.halted]
        return {tp for tp in names if any(problem.concerns(tp) for problem in problems)} - alien

    def unrecorded() -> set[TopicPartition]:
        marks = store.watermarks(forward.id)
        beyond = {tp for tp, name in names.items() if tp not in marks or marks[tp].target_end < written[name][1]}
        return beyond - strangers.keys() - halted()

    if at_work:
        context.wait(lambda: not unrecorded(), MIRROR_SECONDS)
    marks, states = store.watermarks(forward.id), store.topic_states(forward.id)
    unknown, stopped = unrecorded(), halted()
    for tp, name in sorted(names.items()):
        begin, end = written[name]
        mark, state = None if tp in alien else marks.get(tp), states.get(tp.topic)
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


def _is_alien(state: TopicState | None, topic_id: str | None, at_work: bool) -> bool:
    """Whether the mirror never wrote to this topic: it has no record of it, or somebody has made it anew since."""
    if state is None:
        return not at_work
    return topic_id is not None and state.target_topic_id not in {"", topic_id}


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


def written_by(rows: Sequence[OffsetMapping], target_end: int) -> list[tuple[int, int]]:
    """The target offsets, [first, end), that these rows (ascending, of one partition and epoch) map below the end of
    what was mirrored: each row's up to where the next one's source begins."""
    last = [(rows[-1].target_offset, target_end)] if rows and rows[-1].target_offset < target_end else []
    return [
        (row.target_offset, min(row.target_offset + following.source_offset - row.source_offset, target_end))
        for row, following in pairwise(rows)
        if row.target_offset < target_end
    ] + last
