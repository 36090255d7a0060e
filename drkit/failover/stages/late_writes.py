"""Finds records written to the cluster that groups left after the last look, reports and counts them.

If it was fenced, somebody has opened it meanwhile (an operator removed the ACLs by hand): it is closed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from drkit.failover.fencing.cluster_fence import ClusterFence
from drkit.failover.fencing.fence_proof import FenceProof
from drkit.failover.fencing.quiescence import ends_of, topic_ids_of
from drkit.failover.plan.take_snapshot import mirror_at_work
from drkit.failover.run.state_machine import Facts, Loss, Mode, TopicLoss
from drkit.failover.stages.stage import StageContext
from drkit.model.clock import now
from drkit.model.errors import DrkitError, PartlyDone
from drkit.model.wording import and_more


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
    if facts.fenced is None or not facts.ends:
        return facts, ""
    source = context.link.id.source
    worker = mirror_at_work(context.estate, context.link.reversed()) if turned else None
    if worker is not None:
        watched = f"; {worker} mirrors to {source} again and reports other writes there (drkit status)"
        return facts, "" if facts.fenced else watched
    try:
        after = ends_of(context, context.link, may_be_gone=True)
        anew = _recreated(context, topic_ids_of(context, context.link, may_be_gone=True))
    except DrkitError as error:
        return _not_seen(facts, source, error)
    before = {tp: 0 if tp.rpartition(":")[0] in anew else facts.ends.get(tp, 0) for tp in after}
    late = {tp: (before[tp], end) for tp, end in after.items() if end > before[tp]}
    if not late:
        quiet = f"; {source} isn't fenced, and nothing was written there until {now():%H:%M:%S} UTC"
        if facts.mode is Mode.UNPLANNED and facts.loss is not None:
            facts = replace(facts, loss=replace(facts.loss, observed_at=now()))
        return facts, "" if facts.fenced else quiet
    count = sum(end - before for before, end in late.values())
    named = [f"{tp} ({before} to {end})" for tp, (before, end) in sorted(late.items())]
    loss = _with(facts, late)
    why = "UNFENCED"
    if facts.fenced:
        why = "in topics that were created after its fence"
        if any(tp in facts.ends and late[tp] != facts.late.get(tp) for tp in late):
            proof = _closed_again(context)
            why = f"somebody opened {source} behind its fence (closed again: {proof.reason})"
            facts = replace(facts, fence_reason=proof.reason, fence_epoch=proof.epoch)
    facts = replace(facts, loss=loss, late=facts.late | late)
    return facts, f"; {why}: {count:,} offsets were written to {source} after the last look: {and_more(named)}"


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


def _closed_again(context: StageContext) -> FenceProof:
    """Close the cluster that groups left again."""
    source = context.link.id.source
    proof = ClusterFence(context, source).close()
    if not proof.proven and not context.facts.unfenced_accepted:
        raise PartlyDone(
            f"{source} is not fenced any more, and clients write there: {proof.reason}",
            meaning="Records written there stay there only",
            remedy=f"Remove the cause, then drkit resume {context.run}",
        )
    return proof


def _with(facts: Facts, late: Mapping[str, tuple[int, int]]) -> Loss:
    """The loss plus late records, none of which was counted before: what was below the ends is on the target, or was
    counted."""
    loss = facts.loss or Loss(None, None, None)
    by_topic: dict[str, int] = {}
    for tp, (before, end) in late.items():
        begun = facts.late.get(tp, (before, before))[1]
        by_topic[tp.rpartition(":")[0]] = by_topic.get(tp.rpartition(":")[0], 0) + end - max(begun, before)
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
