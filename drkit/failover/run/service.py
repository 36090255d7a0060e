"""Starts and resumes runs, for the command line, the demo and drills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.interfaces import Ports
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import BEHIND_THE_FENCE, PATHS, Facts, Kind, Mode, Run, State
from drkit.failover.failback.way_back import check_way_back_is_free
from drkit.failover.fencing.cluster_fence import fence_record
from drkit.failover.journal.journal import Journal, new_run_id
from drkit.failover.journal.run_record import (
    Plan,
    RunRecord,
    begin,
    label_of,
    live_cluster,
    load_anchored_run,
    load_run,
    origin_of,
    planned_places,
    unfinished,
)
from drkit.failover.plan.approvals import check_approved, flags_of
from drkit.failover.plan.failback_plan import FailbackPlan, failback_plan_json
from drkit.failover.plan.failover_plan import AcceptedLoss, FailoverPlan, Obstacle, plan_json, shown, what_moved
from drkit.failover.plan.loss import loss_at
from drkit.failover.plan.loss_budget import OverBudget, accepted, budgets_of, flag_for, over_budget
from drkit.failover.plan.waves import WantedGroups, at_once
from drkit.failover.planning.failover_planner import PlanRequest, failover_stages, make_plan
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.recovery.component_conditions import replaced_clusters
from drkit.failover.recovery.fence_command import why_unreached
from drkit.failover.recovery.rollback import (
    CANCEL,
    decided_otherwise,
    fence_is_gone,
    why_not_taken_back,
)
from drkit.failover.run.runner import Gate, Runner, RunResult, Watch, give_up, nobody_watches, take_over
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.failover.snapshot.take_snapshot import observe
from drkit.failover.stages.failover_stages import written_since
from drkit.failover.stages.hooks import Hooks, hooks_of
from drkit.failover.stages.stage import Stage
from drkit.model.clock import now
from drkit.model.errors import DrkitError, NotShown, PartlyDone, Refused, StalePlan, answered, unreached
from drkit.model.runs import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED, run_to_resume
from drkit.model.topics.acls import Acl, fence_rules_kind, others_rules_kind
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more
from drkit.store.link_notes import check_source_cluster


def plan_again(
    estate: ClusterContext, planned: FailoverPlan, *, allow_rewind: bool = False, accept_loss: AcceptedLoss = None
) -> FailoverPlan:
    """Make a plan file's plan again from the current clusters.

    Raises:
        StalePlan: it would decide otherwise; the message says what changed.
    """
    request = request_of(estate, planned)
    request = replace(
        request,
        allow_rewind=allow_rewind or request.allow_rewind,
        accept_loss=request.accept_loss if accept_loss is None else accept_loss,
    )
    fresh = replace(make_plan(estate, request), cut=planned.cut)
    moved = what_moved(planned, fresh)
    if moved:
        raise StalePlan(
            f"the plan of {planned.made_at:%Y-%m-%d %H:%M:%S} UTC is stale: {shown(moved)}",
            meaning="Applying it would act on clusters that have changed since",
            remedy="Make a new one: --dry-run --out FILE",
        )
    return fresh


def request_of(estate: ClusterContext, planned: FailoverPlan) -> PlanRequest:
    """The request that a plan was made for; the instant of `--consistent` is kept."""
    return PlanRequest(
        to=planned.link.target,
        mode=planned.mode,
        at=planned.at,
        selection=planned.selection,
        allow_rewind=planned.allow_rewind,
        link=estate.link(planned.link),
        mirrormaker=planned.mirrormaker,
        catch_up=planned.catch_up,
        accept_loss=planned.accept_loss,
    )


def standing_obstacles(plan: Plan, *, waived: frozenset[str] = frozenset()) -> list[Obstacle]:
    """Obstacles to a plan, except those that the given flags waive."""
    return [obstacle for obstacle in plan.obstacles if obstacle.waived_by not in waived]


@dataclass(frozen=True, slots=True)
class PartOfSite:
    """A link's run as part of a site run (`drkit.failover.site`).

    `site`: the site run's id. `run`: the id for the link's run. `lease`: the right to act on the link, which the site
    run holds. `gate`, `in_order`: see `Runner`. `continued`: this process has executed the link's run so far, under the
    same lease.
    """

    site: str
    run: str
    lease: RunLease
    gate: Gate
    in_order: Callable[[WantedGroups], Iterator[WantedGroups]] = at_once
    continued: bool = False


def run_failover(
    estate: ClusterContext,
    plan: FailoverPlan,
    *,
    accept_unfenced: bool,
    started_at: datetime | None = None,
    watch: Watch = nobody_watches,
    part: PartOfSite | None = None,
) -> RunResult:
    """Execute a failover. `started_at`: where the recovery time begins (default: when the plan was made).

    `part`: it belongs to a site run.

    Raises:
        Refused: a precondition does not hold, or another run acts on the link; nothing was changed.
        Unreachable: the store doesn't answer; nothing was changed.
    """
    waived = frozenset({ACCEPT_UNFENCED}) if accept_unfenced else frozenset()
    facts = Facts(mode=plan.mode, unfenced_accepted=accept_unfenced)
    link = estate.link(plan.link)
    return _start(
        estate,
        plan,
        link,
        facts,
        plan_json(plan),
        waived,
        started_at or plan.made_at,
        failover_stages(plan),
        None,
        watch,
        part=part,
    )


def run_failback(
    estate: ClusterContext,
    plan: FailbackPlan,
    ports: Ports,
    *,
    cluster_id: str,
    accept_unfenced: bool = False,
    accept_salvage_only: bool = False,
    started_at: datetime | None = None,
    watch: Watch = nobody_watches,
    before_fence: Callable[[], None] | None = None,
    part: PartOfSite | None = None,
) -> RunResult:
    """Execute a failback; `cluster_id` is the id that the operator gave. `before_fence`: see `Runner`.

    `accept_unfenced`: move although the live cluster can't be fenced. `accept_salvage_only`: mirrored records that the
    live cluster lacks, as named in the plan, will be in the salvage only. `part`: like `run_failover`'s.

    Raises:
        Refused: the id is another cluster's, a precondition does not hold, or another run acts on the
            link; nothing was changed.
        Unreachable: the store doesn't answer; nothing was changed.
    """
    from drkit.failover.planning.failback_planner import failback_stages  # noqa: PLC0415 - a failover needs none of it

    confirm_cluster(plan, cluster_id)
    facts = Facts(
        mode=plan.mode,
        cluster_confirmed=cluster_id,
        unfenced_accepted=accept_unfenced,
        salvage_only=plan.gaps if accept_salvage_only else (),
        salvage_root=None if ports.salvage_root is None else str(ports.salvage_root.absolute()),
    )
    flags = {ACCEPT_UNFENCED: accept_unfenced, ACCEPT_SALVAGE_ONLY: accept_salvage_only}
    link = estate.link(plan.link).reversed()
    return _start(
        estate,
        plan,
        link,
        facts,
        failback_plan_json(plan),
        frozenset(flag for flag, given in flags.items() if given),
        started_at or plan.made_at,
        failback_stages(plan),
        ports,
        watch,
        before_fence,
        part,
    )


_ASKED_BEFORE = frozenset({"scrub", "reverse", "fence"})
"""The stages of a failback that begin what another move of its live cluster would make wrong."""


def _still_there(
    estate: ClusterContext, plan: Plan, run: str, journal: Journal, part: PartOfSite | None
) -> Gate | None:
    """The gate of a run. A failback's asks, besides, whether its live cluster was failed away from meanwhile; and,
    before anything is deleted, for all obstacles of its plan again: a site run asks for those of all its links. What it
    can't ask now stops the run, too."""
    gate = None if part is None else part.gate
    if not isinstance(plan, FailbackPlan):
        return gate
    whole = plan.deletes and part is None

    def ask(stage: str, machine: Run, positions: tuple[PlannedPosition, ...]) -> None:
        if gate is not None:
            gate(stage, machine, positions)
        try:
            found = next(_standing(estate, plan, journal, stage, machine, whole=whole), None)
            refused: DrkitError | None = None if found is None else found.refusal()
        except PartlyDone:
            raise
        except DrkitError as error:
            refused = error
        if refused is not None:
            raise PartlyDone(
                refused.what,
                meaning=refused.meaning,
                remedy=f"{refused.remedy.rstrip('.') or 'Remove the cause'}; then drkit resume {run}. "
                f"Or drkit abandon {run} gives it up",
            )

    return ask


def _standing(
    estate: ClusterContext, plan: FailbackPlan, journal: Journal, stage: str, machine: Run, *, whole: bool
) -> Iterator[Obstacle]:
    """What keeps a stage of a failback from beginning. `whole`: it asks for all obstacles before it deletes."""
    from drkit.failover.planning.failback_planner import (  # noqa: PLC0415 - as above
        has_deleted,
        left_since,
        obstacles_since,
    )

    if stage in _ASKED_BEFORE:
        yield from left_since(estate, plan)
    if whole and stage == "scrub" and not (journal.attempted(stage) and has_deleted(estate, plan, machine.facts)):
        waived = {ACCEPT_UNFENCED} if machine.facts.unfenced_accepted else set[str]()
        yield from obstacles_since(estate, plan, waived)


def confirm_cluster(plan: FailbackPlan, cluster_id: str) -> None:
    """Raise `Refused` unless the given id is the old primary's."""
    if cluster_id != plan.target.cluster_id:
        raise Refused(
            f"{cluster_id!r} is not the id of {plan.target.alias}",
            meaning=f"A failback deletes topics of {plan.target.alias}; its id shows that you mean this cluster",
            remedy=f"Read the id from {plan.target.alias} itself (kafka-cluster cluster-id) and give it",
        )


def resume_run(
    estate: ClusterContext,
    run: str,
    ports: Ports | None,
    *,
    accept_unfenced: bool = False,
    accept_salvage_only: bool = False,
    watch: Watch = nobody_watches,
    before_fence: Callable[[], None] | None = None,
    unplanned: bool = False,
    accept_loss: AcceptedLoss = None,
    part: PartOfSite | None = None,
) -> RunResult:
    """Finish an interrupted run. A finished one is returned unchanged.

    A run whose fence is gone first goes back to before it. `accept_unfenced`: like a failback's. `accept_salvage_only`:
    what the run named when it stopped last, and nothing more. `unplanned`: a failback whose live cluster is
    gone; it moves groups to what was brought back and audited, and loses no more than the link's budget, or than
    `accept_loss`. `part`: like `run_failover`'s.

    Raises:
        Refused: no such run, another process executes it, its target is another cluster now, or more would be lost
            than is allowed and accepted.
        DrkitError: its journal is broken.
        Unreachable: the store doesn't answer.
    """
    record = load_anchored_run(estate, run)
    link = estate.link(record.plan.link)
    unfenced = accept_unfenced and not record.machine.facts.unfenced_accepted
    if part is None and (unfenced or accept_salvage_only or unplanned):  # more than was approved
        check_approved(estate.config.approvals, estate.approval, "", frozenset(), f"what run {run} is to accept now")
    with _right_to_act(estate, link.id, run, part) as lease:
        record = load_run(estate.store, run)  # under the lease: nobody else writes to it
        runner = _runner(estate, record, link, lease, ports, watch)
        runner.gate = _still_there(estate, record.plan, run, record.journal, part)
        if part is not None:
            runner.in_order = part.in_order
        if record.machine.finished:
            return runner.run()
        _check_clusters(estate, record, unplanned=unplanned)
        reopened = _reopened(estate, record)
        if isinstance(record.plan, FailbackPlan) and not record.journal.attempted(CANCEL):
            check_way_back_is_free(estate, record.plan.link, record.plan.kind, run)
        if part is None or not part.continued:
            take_over(record.journal, lease.owner, estate.approval)
        if record.journal.attempted(CANCEL):
            return runner.cancel("its cancelling was interrupted")
        live = live_cluster(record.plan)
        gone = fence_is_gone(record.machine, fence_record(estate.store, link.id, live)) or (
            record.machine.state in BEHIND_THE_FENCE
            and (_rules_are_gone(estate, link, live) or _written_since(estate, record, link))
        )
        if unplanned:
            _check_live_gone(estate, record, live)
            _check_budget(estate, link, run, accept_loss)
            lost = estate.why_left_out(live)
            runner.without_live(f"{live} is gone" if lost is None else lost.what)
        elif _was_unplanned(record):
            runner.as_planned(f"{live} may be back")
        elif (gone or reopened) and not record.journal.attempted("switch"):
            runner.back_before_fence(f"{live} may have been written since it was quiet")
        facts = _accepted(runner.machine, accept_unfenced, accept_salvage_only)
        runner.machine = replace(runner.machine, facts=facts)
        runner.before_fence = before_fence
        return runner.run()


def _reopened(estate: ClusterContext, record: RunRecord) -> bool:
    """Whether a failover has itself opened the link again behind its fence, and was killed before it journaled that.

    Raises:
        Refused: another run has decided the link since: going on would undo that.
    """
    if not isinstance(record.plan, FailoverPlan) or record.journal.attempted(CANCEL):
        return False
    facts, run = record.machine.facts, record.run
    control = estate.store.link_control(record.plan.link)
    if (why := decided_otherwise(control, record.plan, run, facts)) is not None:
        raise superseded_run(run, why)
    by_itself = control is not None and control.run == run and control.direction.serves_source
    return by_itself and facts.sealed and record.machine.state in BEHIND_THE_FENCE


def superseded_run(run: str, why: str) -> Refused:
    """The refusal of a run that decides its link no more."""
    return Refused(
        why,
        meaning="This run would move groups and clients by what it found before, and undo what was decided since; "
        "nothing was changed",
        remedy=f"drkit abandon {run} gives it up; then drkit failover moves what is there now",
    )


def _accepted(machine: Run, unfenced: bool, salvage_only: bool) -> Facts:
    """The run's facts with the operator's acceptances, which the next stage's entry journals: what the last stop named,
    for the stage that stopped, so that what is lost later is asked for again."""
    facts = machine.facts
    if unfenced:
        facts = replace(facts, unfenced_accepted=True)
    if salvage_only and machine.state in {State.PLANNED, State.SALVAGED}:
        facts = replace(facts, salvage_only=(*facts.salvage_only, *facts.asked), asked=())
    elif salvage_only:
        facts = replace(facts, gone=(*facts.gone, *facts.asked), asked=())
    return facts


def _was_unplanned(record: RunRecord) -> bool:
    """Whether an earlier attempt continued a failback without its live cluster, and hasn't switched clients."""
    machine = record.machine
    alone = machine.kind is Kind.FAILBACK and machine.facts.mode is Mode.UNPLANNED
    return alone and not record.journal.attempted("switch")


def _rules_are_gone(estate: ClusterContext, link: Link, cluster: str) -> bool:
    """Whether somebody has taken rules of the fence away by hand.

    False: they stand, it can't be seen, or another cluster answers in the place of the fenced one, whose data is out of
    everybody's reach.
    """
    kinds = fence_rules_kind(cluster), others_rules_kind(cluster)  # the fence rests on both
    noted = {Acl.parse(key) for kind in kinds for key in estate.store.notes(link.id, kind)}
    if not noted:
        return False
    try:
        admin = estate.admin(cluster, may_be_gone=True)
        if cluster == link.id.source:
            check_source_cluster(estate.store, link.id, admin.cluster_id())
        return bool(noted - admin.acls())
    except DrkitError:
        return False


def _written_since(estate: ClusterContext, record: RunRecord, link: Link) -> bool:
    """Whether the cluster that a planned move leaves has been written since it was quiet, and nothing is committed yet.

    A command keeps no rules that one could look for, and super users pass any fence: what they wrote is then drained
    like the rest. False also if it can't be seen.
    """
    facts = record.machine.facts
    if facts.mode is not Mode.PLANNED or record.journal.attempted("commit"):
        return False
    moving = link.reversed() if isinstance(record.plan, FailbackPlan) else link
    return bool(written_since(facts, observe(estate, moving, settle=False, compare=False, groups=False)))


def _check_live_gone(estate: ClusterContext, record: RunRecord, live: str) -> None:
    """Raise `Refused` unless a failback has been audited, isn't switched yet, and its live cluster doesn't answer."""
    run, machine = record.run, record.machine
    remedy = f"drkit resume {run}"
    if machine.kind is not Kind.FAILBACK or record.journal.attempted("switch"):
        raise Refused(f"run {run} is not a failback that waits for its live cluster", remedy=remedy)
    _leave_out_emptied(estate, record, live)
    error = why_unreached(estate, live)
    if error is not None and answered(error) and estate.why_left_out(live) is None:
        raise Refused(
            f"{live} {unreached(refused=True)}: {error.what}",
            meaning=f"It is up: its clients may write to it, and their records would be left behind ({remedy})",
            remedy=error.remedy,
        )
    if error is None:
        raise Refused(
            f"{live} answers", meaning="Records written there would be left behind, without need", remedy=remedy
        )
    if not _is_audited(record):
        raise Refused(
            f"run {run} is {machine.state}: the records brought back aren't audited",
            meaning=f"{record.plan.target.alias} may hold only part of them",
            remedy=f"Bring {live} back; or drkit abandon {run}, then drkit fence --lift --cluster "
            f"{record.plan.target.alias} --yes",
        )


def _check_budget(estate: ClusterContext, link: Link, run: str, accept_loss: AcceptedLoss) -> None:
    """Raise `OverBudget` if the live cluster's records that were not brought back exceed the allowed loss.

    The live cluster is gone, so their number is a minimum. Budgets have the names of the configured source.
    """
    views = observe(estate, link.reversed(), groups=False).partitions.values()
    loss = loss_at(views, now())
    names = {topic.topic: link.source_topic(topic.topic) or topic.topic for topic in loss.by_topic}
    loss = replace(loss, by_topic=tuple(replace(topic, topic=names[topic.topic]) for topic in loss.by_topic))
    found = list(over_budget(loss, budgets_of(link.id, estate.config.objectives)))
    if found and not accepted(loss, accept_loss):
        raise OverBudget(
            and_more(found, separator="; "),
            meaning=f"Records that {link.id.target} got since the last catching up stay there only, and the "
            "configuration limits what an unplanned move may lose ([objectives]); nothing further was changed",
            remedy=f"Bring {link.id.target} back; or accept it: drkit resume {run} --unplanned {flag_for(loss)}",
        )


def _is_audited(record: RunRecord) -> bool:
    """Whether all that a failback brought back was compared, and clients aren't switched yet."""
    machine = record.machine
    behind = machine.state is State.AUDITED or machine.state in BEHIND_THE_FENCE
    return machine.kind is Kind.FAILBACK and behind and not record.journal.attempted("switch")


def _leave_out_emptied(estate: ClusterContext, record: RunRecord, live: str) -> None:
    """Have the live cluster of an audited failback count as gone if none of its records are there any more."""
    if not _is_audited(record) or estate.why_left_out(live) is not None:
        return
    if replaced_clusters(estate, record.plan, {live: True}):
        what = f"{live} was emptied: it has none of the link's topics, or only empty logs"
        estate.leave_out(live, NotShown(what, remedy=f"drkit resume {record.run} --unplanned continues without it"))


def _check_clusters(estate: ClusterContext, record: RunRecord, *, unplanned: bool) -> None:
    """Raise `Refused` if another cluster answers at the target's address than when the plan was made, or at that of the
    live cluster that a failback still needs. Where it needs that no more, the other one counts as that one gone."""
    plan, run = record.plan, record.run
    if record.journal.attempted(CANCEL):
        return  # a run is taken back without them
    if (found := _another(estate, plan.target)) is not None:
        raise Refused(
            f"{plan.target.alias} is another cluster now: its id is {found}, the plan was made on "
            f"{plan.target.cluster_id}",
            meaning="Positions of one cluster mean nothing on another; nothing further was changed",
            remedy=f"Correct the address of {plan.target.alias} in the configuration, then drkit resume {run}. If the "
            f"cluster was replaced, or set up anew: drkit abandon {run} gives the run up, and drkit doctor says what "
            "follows",
        )
    if not isinstance(plan, FailbackPlan):
        return
    if (found := _another(estate, plan.live)) is None:
        return
    live, old = plan.live.alias, plan.target.alias
    what = f"{live} is another cluster now: its id is {found}, the plan was made on {plan.live.cluster_id}"
    remedy = f"Correct the address of {live} in the configuration, then drkit resume {run}"
    if _is_done_with_live(estate, record) or (unplanned and _is_audited(record)):
        estate.leave_out(live, NotShown(what, remedy=remedy))
        return
    if _is_audited(record):
        raise Refused(
            what,
            meaning=f"Groups would move by what a cluster holds that never served; nothing further was changed. {old} "
            f"has all that was brought back and audited, not what {live} took since",
            remedy=f"{remedy}. If the cluster was replaced, or set up anew: drkit resume {run} --unplanned moves "
            f"groups to what was brought back",
        )
    raise Refused(
        what,
        meaning=f"{old} would become a copy of a cluster that never served; nothing further was changed",
        remedy=f"{remedy}. If the cluster was replaced, or set up anew: drkit abandon {run} gives the run up, and "
        "drkit doctor says what follows",
    )


def _is_done_with_live(estate: ClusterContext, record: RunRecord) -> bool:
    """Whether all that a failback needed of its live cluster is on the old primary: everything was copied behind a
    fence that stands, and groups are being committed, or clients switched."""
    journal, machine = record.journal, record.machine
    if journal.attempted("switch"):
        return True
    if not journal.attempted("commit") or machine.state not in {State.TRANSLATED, State.COMMITTED}:
        return False
    fence = fence_record(estate.store, record.plan.link, live_cluster(record.plan))
    return machine.facts.mode is Mode.PLANNED and not fence_is_gone(machine, fence)


def _another(estate: ClusterContext, planned: ClusterView) -> str | None:
    """The id of the cluster that answers, if it is another one than was planned with; None also where none answers,
    which the stage that needs it reports."""
    if planned.cluster_id is None:
        return None
    try:
        found = estate.admin(planned.alias, may_be_gone=True).cluster_id()
    except DrkitError:
        return None
    return None if found == planned.cluster_id else found


def cancel_run(
    estate: ClusterContext, run: str, *, watch: Watch = nobody_watches, part: PartOfSite | None = None
) -> RunResult:
    """Roll a run back to its start: the link as before, the fence lifted. `part`: like `run_failover`'s.

    Raises:
        Refused: no such run, it is over or beyond its point of no return, or another process executes it.
        DrkitError: its journal is broken.
        Unreachable: the store doesn't answer.
    """
    record = load_anchored_run(estate, run)
    link = estate.link(record.plan.link)
    with _right_to_act(estate, link.id, run, part) as lease:
        record = load_run(estate.store, run)  # under the lease: nobody else writes to it
        if record.machine.finished:
            raise Refused(f"run {run} is {record.machine.state}: there is nothing to cancel", remedy="`drkit runs`")
        if (beyond := why_not_taken_back(record.plan, record.journal, record.machine.facts)) is not None:
            raise Refused(
                f"run {run} can't be cancelled any more: {beyond}",
                meaning="Its changes can't be rolled back without loss; it can only continue",
                remedy=f"drkit resume {run}; or drkit abandon {run} gives it up as it is",
            )
        take_over(record.journal, lease.owner)
        return _runner(estate, record, link, lease, None, watch).cancel(f"cancelled by {lease.owner}")


def _runner(
    estate: ClusterContext, record: RunRecord, link: Link, lease: RunLease, ports: Ports | None, watch: Watch
) -> Runner:
    plan = record.plan
    stages: tuple[Stage, ...]
    if isinstance(plan, FailbackPlan):
        from drkit.failover.planning.failback_planner import failback_stages  # noqa: PLC0415 - as above

        stages, moving = failback_stages(plan), link.reversed()
    else:
        stages, moving = failover_stages(plan), link
    return Runner(
        estate=estate,
        link=moving,
        configured=link,
        journal=record.journal,
        machine=record.machine,
        stages=stages,
        plan=plan,
        lease=lease,
        label=record.label,
        started_at=record.started_at,
        positions=record.positions,
        places=record.places,
        carried=record.carried,
        ports=ports,
        watch=watch,
        hooks=_hooks(estate, plan, record.run, record.site),
    )


def _right_to_act(
    estate: ClusterContext, link: LinkId, run: str, part: PartOfSite | None
) -> AbstractContextManager[RunLease]:
    """The lease of a link: the site run's, or a new one."""
    return RunLease(estate.store, link, run) if part is None else nullcontext(part.lease)


def _hooks(estate: ClusterContext, plan: Plan, run: str, site: str | None) -> Hooks:
    told = {
        "DRKIT_RUN": run,
        **({} if site is None else {"DRKIT_SITE": site}),
        "DRKIT_KIND": plan.kind.value,
        "DRKIT_MODE": plan.mode.value,
        "DRKIT_LINK": str(plan.link),
        "DRKIT_PLAN_DIGEST": plan.digest,
        "DRKIT_CLUSTER": plan.target.alias,
        "DRKIT_BOOTSTRAP_SERVERS": plan.endpoint,
    }
    return hooks_of(estate.config.hooks, Kind(plan.kind), told)


def _start(
    estate: ClusterContext,
    plan: Plan,
    link: Link,
    facts: Facts,
    text: str,
    waived: frozenset[str],
    started_at: datetime,
    stages: tuple[Stage, ...],
    ports: Ports | None,
    watch: Watch,
    before_fence: Callable[[], None] | None = None,
    part: PartOfSite | None = None,
) -> RunResult:
    standing = standing_obstacles(plan, waived=waived)
    if standing:
        raise standing[0].refusal()
    if [stage.name for stage in stages] != [step.stage for step in PATHS[Kind(plan.kind)]]:
        raise DrkitError("the stages of the plan are not those of the machine", remedy="This is a bug; report it")
    if part is None:
        used = flags_of(plan, waived)
        check_approved(estate.config.approvals, estate.approval, plan.digest, used, f"the {plan.kind} of {plan.link}")
    run, site = (new_run_id(), None) if part is None else (part.run, part.site)
    with _right_to_act(estate, plan.link, run, part) as lease:
        clear_the_way(estate, plan.link)
        journal = Journal(estate.store, run, anchor=estate.anchors.on(plan.target.alias))
        origin = origin_of(estate.config, lease.operator, estate.approval)
        machine = begin(journal, plan, facts, started_at, text, origin, site=site)
        runner = Runner(
            estate=estate,
            link=link,
            configured=estate.link(plan.link),
            journal=journal,
            machine=machine,
            stages=stages,
            plan=plan,
            lease=lease,
            label=label_of(plan, site),
            started_at=started_at,
            places=planned_places(plan),
            ports=ports,
            watch=watch,
            hooks=_hooks(estate, plan, run, site),
            before_fence=before_fence,
            gate=_still_there(estate, plan, run, journal, part),
            in_order=at_once if part is None else part.in_order,
        )
        return runner.run()


def clear_the_way(estate: ClusterContext, link: LinkId) -> None:
    """Give up other runs on the link that changed nothing. Called under the link's lease.

    Raises:
        Refused: one has changed something, and must be resumed or abandoned.
    """
    for summary in unfinished(estate.store, str(link)):
        leads_on = (
            f"drkit resume {run_to_resume(summary.run, estate.store.runs())}; or drkit abandon {summary.run}, which "
            "gives it up"
        )
        try:
            record = load_anchored_run(estate, summary.run)
            if record.machine.finished:
                estate.store.put_run(replace(summary, state=record.machine.state))
                continue
            control = estate.store.link_control(link)
            if control is not None and control.run == summary.run:
                raise Refused(f"run {summary.run} holds the link {link}")
            why = decided_otherwise(control, record.plan, summary.run, record.machine.facts)
            if why is not None and record.machine.facts.sealed:
                leads_on = f"drkit abandon {summary.run} gives it up"
                raise superseded_run(summary.run, why)
            record.journal.anchor = estate.anchors.on(record.plan.target.alias)
            give_up(estate, record.journal, record.machine, summary, "another run took its place")
        except DrkitError as error:
            raise Refused(
                f"run {summary.run} ({summary.kind}, {summary.state}) is unfinished: {error.what}",
                meaning="It must be finished, or given up, before another run begins on this link",
                remedy=leads_on,
            ) from error
