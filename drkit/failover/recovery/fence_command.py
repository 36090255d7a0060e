"""`drkit fence`: fences a cluster that a failover had to leave unfenced, once it answers; or proves its fence again.
`--lift` opens a cluster that drkit closed, whichever run closed it.

Only a cluster that was failed away from is fenced this way; a failover closes one that serves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Kind, StageOutcome, State
from drkit.failover.fencing.cluster_fence import ClusterFence, FenceProof, fence_record
from drkit.failover.fencing.write_block import let_writes_in
from drkit.failover.journal.journal import OUTCOME, PLAN, Journal, new_run_id
from drkit.failover.journal.run_record import since_brought_back
from drkit.failover.plan.shared_preconditions import later_decision, store_age
from drkit.failover.stages.stage import decide_link, wait_for
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused, answered, unreached
from drkit.model.link_state import Direction
from drkit.model.process import working_on
from drkit.model.runs import FenceState, RunSummary, run_to_resume, serving_cluster
from drkit.model.topology import Link, LinkId, is_canary
from drkit.model.wording import and_more, counted
from drkit.state_topic.guard import check_recovered
from drkit.state_topic.store_age import not_compared
from drkit.store.link_notes import check_target_cluster

KIND = "fence"
"""Kind of these runs, and their only stage."""


@dataclass(frozen=True, slots=True)
class CommandFenceContext:
    """See `drkit.failover.fencing.cluster_fence.FenceContext`."""

    estate: ClusterContext
    link: Link
    run: str
    lease: RunLease
    say: Callable[[str], None]

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Poll until `done`, for at most `seconds`; returns whether it came true. Keeps the lease."""
        return wait_for(self.lease, done, seconds)


def answers(estate: ClusterContext, cluster: str) -> bool:
    """Whether a cluster answers now, and drkit can work with it."""
    return why_unreached(estate, cluster) is None


def why_unreached(estate: ClusterContext, cluster: str) -> DrkitError | None:
    """Why nothing can be read from a cluster now, or None."""
    try:
        estate.admin(cluster, may_be_gone=True).brokers()
    except DrkitError as error:
        return error
    estate.reach(cluster).gone = False
    return None


def links_left(estate: ClusterContext, wanted: list[Link]) -> list[Link]:
    """The configured links that were failed away from.

    Raises:
        Refused: none was, or the store was filled in part only.
        Unreachable: the store doesn't answer.
    """
    found = []
    for link in wanted:
        check_recovered(estate.store, link)  # its decision comes late in a recovery: it would count as a primary's
        control = estate.store.link_control(link.id)
        if control is not None and control.direction is Direction.SEALED:
            found.append(link)
    if not found:
        named = ", ".join(str(link.id) for link in wanted)
        were = "were" if len(wanted) > 1 else "was"
        raise Refused(
            f"{named or 'no link'} {were} not failed away from",
            meaning="A failover fences a cluster that serves; `drkit fence` doesn't",
            remedy="drkit failover; `drkit status` shows the links",
        )
    return found


def fence_again(estate: ClusterContext, link: Link, say: Callable[[str], None]) -> tuple[str, FenceProof]:
    """Fence the source of a link that was failed away from; journaled as a run of its own: its id, and the proof.

    Raises:
        Refused: another run acts on the link, or the store is older than its copy on the target.
        Unreachable: the store doesn't answer.
    """
    return _journaled(estate, link, link.id.source, say, check=lambda: links_left(estate, [link]), act=_closed)


def lift_fence(
    estate: ClusterContext,
    link: Link,
    cluster: str,
    say: Callable[[str], None],
    *,
    meant: bool = False,
    next_links: Collection[LinkId] = (),
) -> tuple[str, FenceProof]:
    """Open a cluster of a link to its clients; journaled as a run of its own.

    A resumed run that relies on the fence goes back to before it.

    Args:
        estate: clusters and store.
        link: the configured link.
        cluster: one of its two.
        say: receives progress messages.
        meant: the operator wants it even if clients should use the other cluster: the link is then decided for this
        one.
        next_links: the links whose fences of that cluster are lifted next: what they keep closed doesn't stay so.

    Returns:
        The run, and in the proof's `reason` what was done (`proven`: a fence is still in place).

    Raises:
        Refused: another run acts on the link, the store is older than its copy on the target, or it isn't `meant`.
        Unreachable: the store doesn't answer.
    """
    check = partial(_check_meant, estate, link, cluster, meant=meant)
    return _journaled(estate, link, cluster, say, check=check, act=partial(_opened, next_links=next_links), lift=True)


def _check_decision(estate: ClusterContext, link: Link, say: Callable[[str], None]) -> None:
    """Refuse where the store has only a part of the link, or the copy a later decision. Where that isn't known a
    fence isn't held up: it deletes nothing."""
    check_recovered(estate.store, link)
    age = store_age(estate, link)
    later = later_decision(estate, link, age)
    if later is not None:
        raise later.refusal()
    if age.unknown is not None:
        say(not_compared(link.id, age.unknown))


def _journaled(
    estate: ClusterContext,
    link: Link,
    cluster: str,
    say: Callable[[str], None],
    *,
    check: Callable[[], object],
    act: Callable[[CommandFenceContext, str], FenceProof],
    lift: bool = False,
) -> tuple[str, FenceProof]:
    """Act on a cluster under the link's lease, as a run of its own: its id, and the proof.

    `check` refuses under the lease, too: nobody reverses the link meanwhile. A fence is done where it is proven, a lift
    where it isn't any more.
    """
    run, began, started_at = new_run_id(), time.monotonic(), now()
    with working_on(link.id, run=run), RunLease(estate.store, link.id, run) as lease:
        check()
        _check_decision(estate, link, say)
        journal = Journal(estate.store, run, anchor=estate.anchors.on(link.id.target))
        plan = {"kind": KIND, "link": str(link.id), "cluster": cluster}
        journal.write(PLAN, PLAN, plan | {"lift": True} if lift else plan)
        journal.intent(KIND)
        try:
            proof = act(CommandFenceContext(estate, link, run, lease, say), cluster)
        except DrkitError as error:
            proof = FenceProof(proven=lift, reason=str(error))
        if lift:
            record = fence_record(estate.store, link.id, cluster)
            proof = replace(proof, epoch=None if record is None else record.epoch)
        done = proof.proven is not lift
        body = {
            "outcome": StageOutcome.OK if done else StageOutcome.FAILED,
            "reason": proof.reason,
            "seconds": round(time.monotonic() - began, 3),
            "epoch": proof.epoch,
        }
        journal.write(KIND, OUTCOME, body)
        state = ("open" if lift else "closed") if done else "failed"
        detail = f"{link.id} lift" if lift else str(link.id)
        estate.store.put_run(RunSummary(run, KIND, state, started_at, now(), detail))
    return run, proof


def _closed(context: CommandFenceContext, cluster: str) -> FenceProof:
    return ClusterFence(context, cluster).close()


def _opened(context: CommandFenceContext, cluster: str, *, next_links: Collection[LinkId]) -> FenceProof:
    """Let clients into a cluster; where they use the other one, decide the link for this one first.

    Raises:
        DrkitError: a fence may still be in place.
    """
    estate, link = context.estate, context.link
    decided = _decided_for(context, cluster) if cluster != serving(estate, link) else ""
    fence = ClusterFence(context, cluster)
    expected = fence.closed_before()
    done = (fence.open(thoroughly=True) or f"drkit has no fence on {cluster}") + decided
    if cluster != link.id.source:
        done += _also_let_in(estate, link)
    others, single = fence.denied_by_others(expected)
    if single:
        done += f"; not for everybody: {and_more(single)} (not put there by drkit)"
    if others:
        done += (
            f"; its clients still can't write: {counted(len(others), 'rule')} that drkit didn't put there "
            f"{'denies' if len(others) == 1 else 'deny'} it ({and_more(others)}): remove those that aren't "
            "wanted with kafka-acls.sh --remove"
        )
    return FenceProof(
        proven=bool(fence.closed_for_others().keys() - {*next_links}), reason=done, denied_by=tuple(others)
    )


def _decided_for(context: CommandFenceContext, cluster: str) -> str:
    """Decide the link for the cluster that clients are to use from now on; a clause about what else that changes, and
    what is left open."""
    store, link = context.estate.store, context.link
    context.say(f"{link.id}: clients use {cluster} from now on")
    reason, back, said = f"{cluster} was opened by hand", link.id.reversed(), ""
    control = store.link_control(link.id)
    if control is not None and control.direction is Direction.REVERSED:  # first: never do both directions flow
        decide_link(context, back, Direction.SEALED, reason=reason, allowed=frozenset(Direction))
        said = f"; {link.id} was reversed: {back} is sealed now, nothing flows along it any more"
    direction = Direction.ACTIVE if cluster == link.id.source else Direction.SEALED
    decide_link(context, link.id, direction, reason=reason, allowed=frozenset(Direction))
    other = link.id.target if cluster == link.id.source else link.id.source
    if cluster == link.id.source:
        then = f"stop its clients; drkit salvage --link '{link.id}' --out DIR keeps what only one side holds"
    else:
        then = f"drkit fence --link '{link.id}' closes it"
    return f"{said}; {other} isn't closed to its clients, and what they write there now stays there: {then}"


def _also_let_in(estate: ClusterContext, link: Link) -> str:
    """Lift a block that an interrupted scrub has left on the old primary, which doesn't serve; a clause about it."""
    try:
        done = let_writes_in(estate, link.id, link.id.source)
    except DrkitError as error:
        return f"; {link.id.source} may have topics that take no writes since a scrub was interrupted: {error.what}"
    return f"; {done}" if done else ""


def serving(estate: ClusterContext, link: Link) -> str:
    """The cluster that clients of a link should use, by its decided state."""
    control = estate.store.link_control(link.id)
    return serving_cluster(link, None if control is None else control.direction)


def _check_topics(estate: ClusterContext, link: Link, cluster: str, serves: str) -> None:
    """Raise `Refused` if topics that the serving cluster has are missing on the one to be opened, as a failback that
    didn't come to its end had deleted them: clients would find nothing there."""
    failback = _failback_cut_short(estate, link)
    if failback is None or cluster != link.id.source:
        return
    names = {link.target_topic(name): name for name in estate.store.topic_states(link.id) if not is_canary(name)}
    try:
        serving_admin = estate.admin(serves, may_be_gone=True)
        check_target_cluster(estate.store, link, serving_admin.cluster_id())  # another one has nothing of this one's
        there = serving_admin.topics(names)
        here = estate.admin(cluster).topics(names.values())
    except DrkitError:
        return  # the serving one is gone: what the other one has is all that there is
    missing = sorted(names[name] for name in there if names[name] not in here)
    if not missing:
        return
    run = failback.run
    resume = f"drkit resume {run_to_resume(run, estate.store.runs())}"
    leads_on = "drkit failback" if failback.state == State.ABANDONED else resume
    raise Refused(
        f"{and_more(missing)} {'is' if len(missing) == 1 else 'are'} not on {cluster}: run {run} deleted "
        f"{'it' if len(missing) == 1 else 'them'} to seed {cluster} anew, and has not yet",
        meaning=f"Clients of {cluster} would find nothing there; {serves} has all. Nothing was changed",
        remedy=f"{leads_on} brings them to {cluster}; drkit fence --lift --link '{link.id}' opens {serves}",
    )


def _failback_cut_short(estate: ClusterContext, link: Link) -> RunSummary | None:
    """The failback or reprotect of a link that is unfinished, or was abandoned since one was closed."""
    runs = since_brought_back(estate.store, link.id)
    return next((each for each in runs if each.kind != Kind.FAILOVER and each.state != State.CANCELLED), None)


def _check_meant(estate: ClusterContext, link: Link, cluster: str, *, meant: bool) -> None:
    serves = serving(estate, link)
    other = link.id.source if serves == link.id.target else link.id.target
    yes = f"drkit fence --lift --cluster {other} --yes --link '{link.id}'"
    if cluster != serves and not meant:
        raise Refused(
            f"clients of {link.id} use {serves}, not {cluster}",
            meaning=f"If opened, {cluster} serves without the records written to {serves} since",
            remedy=f"If you want that, as {serves} is gone or {cluster} has these records, too, give --yes",
        )
    if cluster != serves and (error := why_unreached(estate, cluster)) is not None:
        refused = answered(error)
        raise Refused(
            f"{cluster} {unreached(refused=refused)}: {error.what}",
            meaning="Nothing was changed",
            remedy=error.remedy if refused else f"Bring {cluster} up first",
        )
    if cluster != serves:
        _check_topics(estate, link, cluster, serves)
    own = fence_record(estate.store, link.id, serves)
    elsewhere = fence_record(estate.store, link.id, other)
    nothing_here = own is None or own.state is FenceState.OPEN
    away = serves == link.id.target and elsewhere is not None and elsewhere.state is not FenceState.OPEN
    if cluster == serves and nothing_here and away and not answers(estate, serves):
        raise Refused(
            f"{serves} does not answer, and drkit keeps nobody out of it; {other} was failed away from and is closed",
            meaning=f"If opened, {other} serves again without the records written to {serves} since",
            remedy=f"Bring {serves} back; or, if it is gone: {yes}",
        )
