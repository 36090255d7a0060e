"""`drkit abandon`: ends a run, of a link or of a site, that can neither continue nor be rolled back.

A damaged journal, or a cluster that is gone permanently, must not block a link forever. So this checks the link's state
in the store, the fence and both clusters, and uses the journal only as far as it is intact. Data, salvages and the
link's record stay; it decides only which cluster serves.

| the link is | serves | what is done |
|---|---|---|
| active, paused | source | its fence is lifted |
| sealed by this failover, before its commit (or its switch, if the target is gone) | source | active, fence lifted |
| sealed otherwise | target | its fence, if any, is lifted |

A failover whose commit has begun is finished instead, unless its target is gone or the link was decided again since.

A site run is over once the unfinished run of each of its links is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.salvage_folders import salvaged_where
from drkit.failover.context.state_machine import FINAL_STATES, Facts, Kind, StageOutcome, State, abandon
from drkit.failover.fencing.cluster_fence import ClusterFence, fence_record
from drkit.failover.fencing.write_block import let_writes_in
from drkit.failover.journal.journal import ABANDONED, OUTCOME, PLAN, Journal, new_run_id
from drkit.failover.journal.run_record import KINDS, RunRecord, load_anchored_run
from drkit.failover.journal.site_record import SITE, SiteRecord, children_of, list_site, load_site
from drkit.failover.plan.failback_plan import FailbackPlan
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.recovery.component_conditions import replaced_clusters
from drkit.failover.recovery.fence_command import CommandFenceContext, why_unreached
from drkit.failover.recovery.rollback import decided_otherwise
from drkit.failover.recovery.way_out import ComponentCondition
from drkit.failover.stages.late_commits import GoneTopics, with_late_commits
from drkit.failover.stages.stage import decide_link
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.model.clock import now
from drkit.model.errors import ConfigError, DrkitError, Refused, answered, unreached
from drkit.model.link_state import Direction, LinkControl
from drkit.model.process import working_on
from drkit.model.runs import (
    FenceState,
    JournalEntry,
    RunSummary,
    run_to_resume,
    serve_again,
    serving_cluster,
    write_block_kind,
)
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted

KIND = "abandon"
"""Kind of the run that journals it if the abandoned run's own journal can't be continued; and its stage."""
_ALL_COMMITTED = frozenset({State.COMMITTED, State.SWITCHED, State.VERIFIED})
"""The states of a failback whose commit is finished."""
_LOST = "lost"
"""State of a run whose journal was lost with the store; the link still names it."""


@dataclass(frozen=True, slots=True)
class AbandonReport:
    """The outcome.

    `serves`: the cluster that clients should use; `open`: whether drkit keeps nobody out of it (None: unknown, it
    doesn't answer). `did`: what was changed. `stands`: what was left unchanged. `journal`: why the run's journal is
    unusable, or None. `journaled_in`: the run whose journal records this.
    """

    run: str
    link: LinkId
    state_before: str
    serves: str
    open: bool | None
    did: tuple[str, ...]
    stands: tuple[str, ...]
    journal: str | None
    journaled_in: str
    salvage_path: str | None


@dataclass(slots=True)
class _Looked:
    """The known part of the run, and the clusters. `strangers`: clusters that answer and aren't what they were, with
    their condition. `errors`: why a cluster can't be read. `carried`: offsets to journal, and the facts with them."""

    summary: RunSummary
    entries: list[JournalEntry]
    record: RunRecord | None
    problem: str | None
    control: LinkControl | None
    answering: dict[str, bool]
    strangers: Mapping[str, ComponentCondition] = field(default_factory=dict)
    errors: dict[str, DrkitError | None] = field(default_factory=dict)
    did: list[str] = field(default_factory=list)
    stands: list[str] = field(default_factory=list)
    carried: tuple[tuple[PlannedPosition, ...], Facts] | None = None

    def unreached(self, alias: str) -> str:
        """That a cluster can't be read, and why."""
        error = self.errors.get(alias)
        refused = error is not None and answered(error)
        return f"{alias} {unreached(refused=refused)}{f' ({error.what})' if error is not None and refused else ''}"

    def begun(self, stage: str) -> bool:
        """Whether a stage was begun, by entries that may each be intact: they can't be relied on."""
        return any(entry.stage == stage and entry.intact() for entry in self.entries)


def abandon_run(estate: ClusterContext, run: str, say: Callable[[str], None]) -> AbandonReport:
    """End a run in its current state and open the cluster that should serve.

    Raises:
        Refused: no such run; it is over; another run acts on the link; or it can be finished because its commit
            has begun, and nobody has decided the link since.
        ConfigError: its link isn't configured.
        Unreachable: the store doesn't answer.
    """
    summary = _summary(estate, run)
    link = _link_of(estate, summary)
    acting = new_run_id()
    with working_on(link.id, run=run), RunLease(estate.store, link.id, acting) as lease:
        looked = _look(estate, run, link)
        _check(estate, looked, link)
        context = CommandFenceContext(estate, link, acting, lease, say)
        direction = _decide(context, looked)
        serves = serving_cluster(link, direction)
        is_open = _open(context, looked, serves)
        other = link.id.target if serves == link.id.source else link.id.source
        _let_writes_in(estate, link, looked, other)
        _keep_commits(context, looked, link)
        _say_what_stands(estate, link, looked, other)
        facts = None if looked.record is None else looked.record.machine.facts
        path = None if facts is None else facts.salvage_path
        if facts is not None and path:
            looked.stands.append(f"what only {link.id.source} held was salvaged: {salvaged_where(facts)}")
        if said := _uncommitted(estate, looked, link):
            looked.stands.append(said)
        before = looked.summary.state if looked.record is None else looked.record.machine.state.value
        result = AbandonReport(
            run=run,
            link=link.id,
            state_before=before,
            serves=serves,
            open=is_open,
            did=tuple(looked.did),
            stands=tuple(looked.stands),
            journal=looked.problem,
            journaled_in=run if looked.problem is None else acting,
            salvage_path=path,
        )
        _journal(estate, looked, result, acting)
    return result


def _summary(estate: ClusterContext, run: str) -> RunSummary:
    found = next((summary for summary in estate.store.runs() if summary.run == run), None)
    found = found or _lost_with_the_store(estate, run)
    if found is None:
        raise Refused(f"there is no run {run}", remedy="`drkit runs` lists them")
    if found.kind not in KINDS:
        raise Refused(
            f"run {run} is of kind {found.kind}: neither a failover nor a failback",
            meaning="Only a failover, a failback or a reprotect can be abandoned",
            remedy=f"drkit resume {run} removes what a rehearsal left" if found.kind == "rehearsal" else "`drkit runs`",
        )
    return found


def _lost_with_the_store(estate: ClusterContext, run: str) -> RunSummary | None:
    """A run that decided a link's state, of which a recovered store knows nothing else."""
    for configured in estate.config.links:
        control = estate.store.link_control(configured.link().id)
        if control is not None and control.run == run:
            kind = Kind.FAILBACK if control.direction is Direction.REVERSED else Kind.FAILOVER
            return RunSummary(run, kind, _LOST, control.changed_at, control.changed_at, f"{control.link}")
    return None


def _link_of(estate: ClusterContext, summary: RunSummary) -> Link:
    name = summary.detail.split(" ")[0]
    for configured in estate.config.links:
        if str(configured.link().id) == name:
            return configured.link()
    raise ConfigError(f"no link {name} is configured", remedy="Put it back into the configuration")


def _look(estate: ClusterContext, run: str, link: Link) -> _Looked:
    store = estate.store
    looked_up, record, problem = _summary(estate, run), None, None
    try:
        record = load_anchored_run(estate, run)
    except (DrkitError, ValueError, KeyError) as error:  # unreadable JSON, or another shape
        problem = error.what if isinstance(error, DrkitError) else f"it can't be read: {type(error).__name__}"
    if not store.entries(run):
        problem = "it was lost with the store" if looked_up.state == _LOST else "it is empty"
    errors = {alias: why_unreached(estate, alias) for alias in (link.id.source, link.id.target)}
    answering = {alias: error is None for alias, error in errors.items()}
    strangers = {} if record is None else replaced_clusters(estate, record.plan, answering)
    entries, control = store.entries(run), store.link_control(link.id)
    return _Looked(looked_up, entries, record, problem, control, answering, strangers, errors)


def _check(estate: ClusterContext, looked: _Looked, link: Link) -> None:
    """Raise `Refused` if the run is over, or can be finished."""
    run, record = looked.summary.run, looked.record
    if record is None:
        if looked.summary.state in {State.CANCELLED, State.ABANDONED}:
            raise Refused(
                f"run {run} is {looked.summary.state}: there is nothing to abandon", remedy=_next(looked, link)
            )
        return
    if record.machine.finished:
        raise Refused(f"run {run} is {record.machine.state}: there is nothing to abandon", remedy=_next(looked, link))
    if record.machine.kind is not Kind.FAILOVER or not looked.begun("commit") or looked.begun("switch"):
        return
    target = link.id.target
    if decided_otherwise(looked.control, record.plan, run, record.machine.facts) is not None:
        looked.stands.append(f"groups stay on {target} where run {run} has put them")
    elif looked.answering[target] and not looked.strangers:
        raise Refused(
            f"run {run} can't be abandoned: its commit has begun, and {target} answers",
            meaning="Groups may have moved already, so abandoning it would cost more than finishing it",
            remedy=f"drkit resume {run_to_resume(run, estate.store.runs())}",
        )


def _next(looked: _Looked, link: Link) -> str:
    """What leads on where a run is over: where no failback can follow, that would be looked for here."""
    sealed = looked.control is not None and looked.control.direction is Direction.SEALED
    return f"To go back: {serve_again(link)}" if sealed and link.alters else "`drkit runs`"


def _decide(context: CommandFenceContext, looked: _Looked) -> Direction:
    """The link's direction from now on, decided again if necessary."""
    link, store, record = context.link.id, context.estate.store, looked.record
    control = looked.control
    direction = Direction.ACTIVE if control is None else control.direction
    ours = control is not None and control.run == looked.summary.run
    before_commit = record is not None and not looked.begun("commit")
    target_gone = record is not None and not looked.begun("switch") and not looked.answering[link.target]
    if (
        direction is Direction.SEALED
        and ours
        and looked.summary.kind == Kind.FAILOVER
        and (before_commit or target_gone)
    ):
        paused = record is not None and record.plan.control == Direction.PAUSED
        direction = Direction.PAUSED if paused else Direction.ACTIVE
        _set(context, link, direction, looked, "its failover was abandoned")
    elif direction is Direction.REVERSED:
        back = store.link_control(link.reversed())
        if back is not None and back.direction is Direction.SEALED and link.target in looked.strangers:
            looked.stands.append(
                f"{link.reversed()} stays sealed: {link.target} is another cluster now, or was emptied. {link.source} "
                f"has what was brought back: drkit fence --lift --cluster {link.source} --yes --link '{link}' lets "
                "clients use that"
            )
        elif back is not None and back.direction is Direction.SEALED:
            _set(context, link.reversed(), Direction.ACTIVE, looked, "its failback was abandoned")
        looked.stands.append(f"{link} is reversed: data flows {link.reversed()}")
    elif direction is Direction.SEALED:
        looked.stands.append(f"{link} is {direction}")
    if ours and record is None and control is not None and direction is control.direction:
        _set(context, link, direction, looked, f"run {looked.summary.run}, which decided it, was abandoned")
    return direction


def _set(context: CommandFenceContext, link: LinkId, direction: Direction, looked: _Looked, reason: str) -> None:
    decide_link(context, link, direction, reason=reason, allowed=frozenset(Direction))
    looked.did.append(f"{link} is {direction}")


def _open(context: CommandFenceContext, looked: _Looked, serves: str) -> bool | None:
    """Lift the fence of the cluster that should serve; returns whether it is open."""
    lift = f"drkit fence --lift --link '{context.link.id}'"
    record = fence_record(context.estate.store, context.link.id, serves)
    if not looked.answering[serves]:
        closed = record is not None and record.state is not FenceState.OPEN and record.stands
        held = f"; its fence (epoch {record.epoch}) is in place, and {lift} lifts it then" if closed and record else ""
        looked.stands.append(f"{looked.unreached(serves)}{held}")
        return False if closed else None
    fence = ClusterFence(context, serves)
    try:
        done = fence.open()
    except DrkitError as error:
        looked.stands.append(f"the fence of {serves} is in place: {error.what}; {lift} lifts it")
        return False
    if fence.closed_for_others():
        looked.stands.append(done)
        return False
    if done:
        looked.did.append(done)
    return True


def _let_writes_in(estate: ClusterContext, link: Link, looked: _Looked, other: str) -> None:
    """Lift what a scrub that was killed has left on the cluster that doesn't serve: its topics take no writes."""
    if not looked.answering[other]:
        if estate.store.notes(link.id, write_block_kind(other)):
            lift = f"drkit fence --lift --link '{link.id}'"
            looked.stands.append(
                f"topics of {other} may take no writes since the scrub: {lift} lets them in once it answers"
            )
        return
    try:
        done = let_writes_in(estate, link.id, other)
    except DrkitError as error:
        looked.stands.append(f"{error.what}. {error.remedy}")
        return
    if done:
        looked.did.append(done)


def _keep_commits(context: CommandFenceContext, looked: _Looked, link: Link) -> None:
    """Read what groups committed on the old primary while a scrub that was killed deleted its topics: nothing else has
    it, and the next failback carries it over from this run's journal."""
    record = looked.record
    begin = None if record is None else record.machine.facts.commits_from
    if record is None or begin is None or not isinstance(record.plan, FailbackPlan):
        return
    old = link.id.source
    try:
        there = context.estate.admin(old, may_be_gone=True).topics([topic.topic for topic in record.plan.topics])
        gone = [topic for topic in record.plan.topics if topic.topic not in there]
        topics = GoneTopics(context.estate, link.id, old, link.id.target, gone)
        carried, said = with_late_commits(topics, begin, record.carried, context.wait) if gone else (record.carried, "")
    except DrkitError as error:
        looked.stands.append(
            f"positions that groups committed on {old} while its topics were deleted are in its {OFFSETS_TOPIC} only, "
            f"and the next failback reads them there: {error.what}"
        )
        return
    looked.carried = carried, replace(record.machine.facts, commits_from=None)
    if said:
        looked.did.append(said.removeprefix("; "))


def _uncommitted(estate: ClusterContext, looked: _Looked, link: Link) -> str:
    """Committed offsets that went with the topics that a failback deleted, and that it is not known to have committed
    anew: its commit may have been begun, and not finished."""
    record = looked.record
    if record is None or not isinstance(record.plan, FailbackPlan) or record.machine.state in _ALL_COMMITTED:
        return ""
    carried = record.carried if looked.carried is None else looked.carried[0]
    done = record.journal.offsets_committed()
    left = [each for each in carried if (each.group, each.target_tp) not in done]
    old, deleted = link.id.source, _has_deleted(estate, record.machine.facts, record.plan, link)
    if not left or deleted is False:
        return ""
    went = f"went with the topics that were deleted on {old}"
    if deleted is None:
        went = f"may have gone with topics of {old}: the run was about to delete them, and {looked.unreached(old)}"
    groups = and_more(sorted({each.group for each in left}))
    others = len(carried) - len(left)
    anew = f" ({counted(others, 'other')} {'is' if others == 1 else 'are'} committed there anew)" if others else ""
    return (
        f"{counted(len(left), 'committed offset')} of {groups} {went}{anew}: the run's journal has them, and "
        "positions.json of its salvage, or of the salvage of the run before, with their places in what was brought "
        "back (target_offset). The next failback of the link commits them; if none follows, kafka-consumer-groups.sh "
        "--reset-offsets does, before these groups start there"
    )


def _has_deleted(estate: ClusterContext, facts: Facts, plan: FailbackPlan, link: Link) -> bool | None:
    """Whether a failback has deleted a topic, also where it was killed while it did; None: the old primary can't be
    asked."""
    if facts.scrubbed or not facts.deleting:
        return bool(facts.scrubbed)
    try:
        there = estate.admin(link.id.source, may_be_gone=True).topics([topic.topic for topic in plan.topics])
    except DrkitError:
        return None
    return any(topic.topic not in there or there[topic.topic].topic_id != topic.topic_id for topic in plan.topics)


def _say_what_stands(estate: ClusterContext, link: Link, looked: _Looked, other: str) -> None:
    record = fence_record(estate.store, link.id, other)
    if record is not None and record.state is not FenceState.OPEN:
        looked.stands.append(f"{other} stays closed to clients ({record.state}, epoch {record.epoch})")
    if not looked.answering[other]:
        looked.stands.append(looked.unreached(other))


def _journal(estate: ClusterContext, looked: _Looked, result: AbandonReport, acting: str) -> None:
    """Write to the run's own journal if it is intact, else to a new one; update both summaries."""
    store, run, at = estate.store, result.run, now()
    body = {
        "serves": result.serves,
        "open": result.open,
        "did": list(result.did),
        "stands": list(result.stands),
        "was": result.state_before,
        "problem": result.journal,
    }
    if looked.record is not None and looked.problem is None:
        abandon(looked.record.machine)
        journal = looked.record.journal
        journal.anchor = estate.anchors.on(looked.record.plan.target.alias)
        journal.intent(KIND)
        if looked.carried is not None:
            positions, facts = looked.carried
            journal.carried(KIND, positions)
            journal.established(KIND, facts)
        journal.write(KIND, ABANDONED, body)
    else:
        journal = Journal(store, acting, anchor=estate.anchors.on(result.link.target))
        journal.write(PLAN, PLAN, {"kind": KIND, "of": run, "link": str(result.link)})
        journal.write(KIND, OUTCOME, {"outcome": StageOutcome.OK, "reason": result.journal, "seconds": 0.0, **body})
        store.put_run(RunSummary(acting, KIND, State.CLOSED, at, at, f"{result.link} of run {run}"))
    if looked.summary.state not in FINAL_STATES or looked.record is None:
        found = looked.summary
        store.put_run(RunSummary(run, found.kind, State.ABANDONED, found.started_at, at, found.detail))


@dataclass(frozen=True, slots=True)
class SiteAbandoned:
    """The outcome of abandoning a site run. `kept`: links whose runs are not over, and why."""

    run: str
    reports: tuple[AbandonReport, ...]
    kept: tuple[tuple[LinkId, Refused], ...]
    journal: str | None


def abandon_site(estate: ClusterContext, run: str, say: Callable[[str], None]) -> SiteAbandoned:
    """End each link's unfinished run in its current state, and then the site run, if none is left.

    The links' runs are found by their summaries, too, so the site run's own journal may be damaged.

    Raises:
        Refused: no such run, or it is over; or none of its links' runs can be abandoned.
        Unreachable: the store doesn't answer.
    """
    record, problem = None, None
    try:
        record = load_site(estate.store, run)
    except Refused:
        raise
    except (DrkitError, ValueError, KeyError, TypeError) as error:
        problem = error.what if isinstance(error, DrkitError) else f"it can't be read: {type(error).__name__}"
    if record is not None and record.finished:
        raise Refused(f"run {run} is {record.state}: there is nothing to abandon", remedy="`drkit runs`")
    reports, kept = [], []
    for summary in children_of(estate.store, run):
        link = LinkId.parse(summary.detail.split(" ", maxsplit=1)[0])
        try:
            reports.append(abandon_run(estate, summary.run, say))
        except Refused as error:
            kept.append((link, error))
    if kept and not reports:
        raise kept[0][1]
    if not kept:
        _journal_abandoned(estate, run, record, reports)
    return SiteAbandoned(run, tuple(reports), tuple(kept), problem)


def _journal_abandoned(
    estate: ClusterContext, run: str, record: SiteRecord | None, reports: Sequence[AbandonReport]
) -> None:
    """Journal it in the run's own journal, if that is intact; update the summary."""
    if record is not None:
        with ExitStack() as stack:
            for link in sorted(record.plan.links, key=str):
                stack.enter_context(RunLease(estate.store, link, run))
            record.journal.anchor = estate.anchors.on(record.plan.anchor)
            body = {"links": [{"link": str(each.link), "run": each.run, "serves": each.serves} for each in reports]}
            record.journal.write("abandon", ABANDONED, body)
            list_site(estate.store, record, State.ABANDONED)
        return
    found = next((each for each in estate.store.runs() if each.run == run), None)
    if found is not None:
        ended = RunSummary(run, SITE, State.ABANDONED, found.started_at, now(), found.detail)
        estate.store.put_run(ended)
