"""From a snapshot to a frozen plan. Pure, except for `make_plan`, which takes the snapshot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Kind, Mode
from drkit.failover.fencing.cluster_fence import fence_method
from drkit.failover.plan.failover_plan import AcceptedLoss, DirectoryView, FailoverPlan, StagePlan, sealed
from drkit.failover.plan.loss import loss_at
from drkit.failover.plan.loss_budget import LossBudget, budgets_of
from drkit.failover.plan.preconditions import mirrored_with_another_store, obstacles
from drkit.failover.plan.shared_preconditions import (
    RightsFound,
    look_at_rights,
    older_positions,
    store_age,
)
from drkit.failover.plan.waves import Wave, waves_of
from drkit.failover.positions.consistent_cut import ConsistentCut, moment_of
from drkit.failover.positions.consistent_cut_reader import at_consistent_cut
from drkit.failover.positions.group_commands import reset_command
from drkit.failover.positions.mirrormaker_positions import (
    LOSS_UNKNOWN,
    captured,
    cautions,
    check_possible,
    positions_by_mirrormaker,
    read_mirrormaker,
)
from drkit.failover.positions.positions import PlannedPosition, choose_positions, never_committed, removed_unread
from drkit.failover.positions.target_positions import read_checks
from drkit.failover.snapshot.choose_links import leading_to
from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.selection import Selection
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.failover.snapshot.take_snapshot import observe
from drkit.failover.stages.directory_update import newer_entries, read_directories, warnings_of
from drkit.failover.stages.failover_stages import Close, Commit, Switch, Translate, Verify
from drkit.failover.stages.fence_stages import Drain, Fence
from drkit.failover.stages.hooks import Hooks, hooks_of, with_hooks
from drkit.failover.stages.stage import Stage
from drkit.kafka.groups.mirrormaker import MirrorMakerOffsets
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.link_state import ROWS_UNPROVEN, TARGET_REPLACED, Direction, Problem
from drkit.model.runs import FenceMethod, serve_again
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.model.wording import and_more, bounds, counted
from drkit.permissions.missing import Names
from drkit.permissions.resolve import CLUSTER_NAME
from drkit.permissions.table import Command, Operation, Side, Subject
from drkit.state_topic.other_store import mirrors_of_other_stores
from drkit.state_topic.store_age import NOT_OLDER, OlderStore, StoreAge

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """An operator's request. `to` is the target's alias; `link` selects one if several lead there.

    `consistent`: instead of `at`, the latest instant at which every topic is complete, but not after `not_after`.
    `mirrormaker`: use MirrorMaker 2's records, with its alias of the source. `catch_up`: the mode wasn't given, so wait
    for a source that answers (`FailoverPlan.catch_up`, `accept_loss`).
    """

    to: str
    mode: Mode = Mode.UNPLANNED
    at: Moment | None = None
    selection: Selection = field(default_factory=Selection)
    allow_rewind: bool = False
    link: Link | None = None
    consistent: bool = False
    not_after: datetime | None = None
    mirrormaker: str | None = None
    catch_up: bool = False
    accept_loss: AcceptedLoss = None


def make_plan(estate: ClusterContext, request: PlanRequest) -> FailoverPlan:
    """Observe and plan.

    Raises:
        ConfigError: an unknown cluster, group or topic; several links lead there.
        Refused: no plan is possible: no link leads there, the target doesn't answer, the store
            holds nothing about the link, or no consistent instant is known.
        Unreachable: the store doesn't answer.
    """
    link = find_link(estate, request)
    estate.connect_soon([link.id.source])
    with ThreadPoolExecutor(2, "drkit-store") as pool:
        asked = pool.submit(store_age, estate, link)
        asked_mirrors = pool.submit(_mirrors_of_other_stores, estate, link)
        snapshot, offsets, cut, request = _look(estate, link, request, asked.result)
        age, elsewhere = asked.result(), asked_mirrors.result()
    plan = plan_for(
        snapshot,
        request,
        endpoint=estate.endpoint(link.id.target),
        fence=_fence(estate, snapshot),
        directories=read_directories(estate, link.id),
        hooks=hooks_of(estate.config.hooks, Kind.FAILOVER, {}),
        offsets=offsets,
        older=age.older if offsets is None else None,
        elsewhere=elsewhere,
        budgets=budgets_of(link.id, estate.config.objectives),
        waves=waves_of(estate.config.waves),
    )
    if cut is not None:
        plan = replace(plan, cut=cut, warnings=(*plan.warnings, *cut.cuts))
    with ThreadPoolExecutor(1, "drkit-rights") as pool:
        asked_rights = pool.submit(_rights, estate, link, snapshot, plan)
        plan = replace(plan, places=read_checks(estate, link.id.target, plan.positions))
        found = asked_rights.result()
    return replace(plan, warnings=(*plan.warnings, *found.warnings), obstacles=(*plan.obstacles, *found.obstacles))


def _rights(estate: ClusterContext, link: Link, snapshot: Snapshot, plan: FailoverPlan) -> RightsFound:
    """Rights that drkit lacks on the target, where positions are committed and topics are promoted, and on the source,
    which is looked at: a failover does without it. Whether it can be fenced is said by the fence."""
    target: Names = {
        (Subject.TOPICS, Operation.READ): {position.target_topic for position in plan.placed},
        (Subject.TOPICS, None): {view.target_topic for view in snapshot.partitions.values() if view.on_target},
        (Subject.GROUPS, None): {position.group for position in plan.placed},
        (Subject.CLUSTER, None): {CLUSTER_NAME},
    }
    touched: dict[Side, Names] = {Side.TARGET: target}
    if snapshot.source.reachable:
        touched[Side.SOURCE] = {
            (Subject.TOPICS, None): {view.tp.topic for view in snapshot.partitions.values()},
            (Subject.GROUPS, None): {position.group for position in plan.positions},
        }
    return look_at_rights(estate, link, Command.FAILOVER, touched, dispensable=Side.SOURCE)


def _look(
    estate: ClusterContext, link: Link, request: PlanRequest, age: Callable[[], StoreAge]
) -> tuple[Snapshot, MirrorMakerOffsets | None, ConsistentCut | None, PlanRequest]:
    """The plan's input; a `--consistent` request gets its moment. `age`: of the store, on whose rows MirrorMaker 2's
    records don't rest."""
    offsets = None if request.mirrormaker is None else read_mirrormaker(estate, link, request.mirrormaker)
    seen = () if offsets is None else captured(link, offsets)
    asked = age if offsets is None else lambda: NOT_OLDER
    snapshot = observe(estate, link, at=request.at, selection=request.selection, seen=seen, age=asked)
    cut = None
    if request.consistent:
        _check_possible(snapshot)
        snapshot, cut = at_consistent_cut(estate, snapshot, request.selection, request.not_after)
        request = replace(request, at=moment_of(cut))
    return snapshot, offsets, cut, request


def _mirrors_of_other_stores(estate: ClusterContext, link: Link) -> list[str]:
    """Running mirrors of the link with another store; without the target's answer there is no plan anyway."""
    try:
        return mirrors_of_other_stores(estate.groups(link.id.target), link, estate.store, estate.config.store.plain_url)
    except DrkitError:
        return []


def find_link(estate: ClusterContext, request: PlanRequest) -> Link:
    """The link into the requested cluster.

    Raises:
        ConfigError: no such cluster, or several links lead there and none is named.
        Refused: no link leads there.
    """
    leading = leading_to(estate.config, request.to, request.link)
    if len(leading) > 1:
        raise ConfigError(
            f"several links lead to {request.to}: {', '.join(str(link.id) for link in leading)}",
            meaning="One run moves one link; a link whose source is healthy can stay as it is",
            remedy="Name the one to move, and each other one after it: "
            + "; ".join(f"drkit failover --to {request.to} --link '{link.id}'" for link in leading),
        )
    return leading[0]


def _fence(estate: ClusterContext, snapshot: Snapshot) -> tuple[FenceMethod, str]:
    """The source's fence method, and, if it has none, why."""
    if not snapshot.source.reachable:
        return FenceMethod.NONE, snapshot.source.reason or "it does not answer"
    try:
        return fence_method(estate, snapshot.source.alias)
    except DrkitError as error:
        return FenceMethod.NONE, error.what


def plan_for(
    snapshot: Snapshot,
    request: PlanRequest,
    *,
    endpoint: str,
    fence: tuple[FenceMethod, str] = (FenceMethod.NONE, "not looked at"),
    directories: tuple[DirectoryView, ...] = (),
    hooks: Hooks | None = None,
    offsets: MirrorMakerOffsets | None = None,
    older: OlderStore | None = None,
    elsewhere: Sequence[str] = (),
    budgets: tuple[LossBudget, ...] = (),
    waves: Sequence[Wave] = (),
) -> FailoverPlan:
    """The plan for one snapshot. Pure.

    `older`: how the copy of the store on the target is newer than the store. `elsewhere`: running mirrors of the link
    with another store. `budgets`: the allowed loss. `waves`: the order in which groups move; they may limit the loss,
    too.
    """
    if offsets is None:
        _check_possible(snapshot)
        positions = choose_positions(snapshot, request.selection, request.at)
    else:
        check_possible(snapshot, request.mode)
        positions = positions_by_mirrormaker(snapshot, offsets, request.selection)
    control = snapshot.control
    plan = FailoverPlan(
        link=snapshot.link.id,
        mode=request.mode,
        at=request.at,
        selection=request.selection,
        allow_rewind=request.allow_rewind,
        made_at=snapshot.observed_at,
        source=snapshot.source,
        target=snapshot.target,
        endpoint=endpoint,
        control=(control.direction if control is not None else Direction.ACTIVE).value,
        control_version=None if control is None else control.version,
        control_run=None if control is None else control.run,
        positions=positions,
        loss=loss_at(snapshot.partitions.values(), snapshot.observed_at) if offsets is None else LOSS_UNKNOWN,
        mirrormaker=request.mirrormaker,
        fence=fence[0],
        fence_reason=fence[1],
        catch_up=request.catch_up and request.mode is Mode.UNPLANNED and offsets is None,
        accept_loss=request.accept_loss,
        budgets=(*budgets, *_budgets_of_waves(snapshot.link.id, positions, waves)),
        rows_in_doubt=snapshot.rows_in_doubt,
        directories=directories,
    )
    already = plan.control == Direction.SEALED
    epoch = (plan.control_version or 0) + (0 if already else 1)
    stages = tuple(StagePlan(stage.name, stage.explain()) for stage in failover_stages(plan))
    plan = replace(
        plan,
        stages=with_hooks(stages, hooks or Hooks()),
        warnings=(
            *_warnings(snapshot, request, plan),
            *(() if offsets is None else cautions(offsets, positions)),
            *warnings_of(directories),
        ),
        obstacles=(
            *((mirrored_with_another_store(snapshot, elsewhere),) if elsewhere else ()),
            *(() if older is None else (older_positions(snapshot.link, older),)),
            *obstacles(snapshot, plan),
            *newer_entries(directories, plan.link, plan.link.target, epoch, again=already),
        ),
    )
    return sealed(plan)


def _budgets_of_waves(
    link: LinkId, positions: Iterable[PlannedPosition], waves: Sequence[Wave]
) -> Iterator[LossBudget]:
    """The loss that each wave allows for the topics that its groups read on this link."""
    read: dict[str, set[str]] = {}
    for position in positions:
        read.setdefault(position.group, set()).add(position.topic)
    topics: dict[str, set[str]] = {}
    for group, names in read.items():
        taking = next((wave.name for wave in waves if wave.takes(link, group, names)), None)
        if taking is not None:
            topics.setdefault(taking, set()).update(names)
    for wave in waves:
        read_here = topics.get(wave.name)
        if read_here and (wave.max_loss_records is not None or wave.max_loss_seconds is not None):
            patterns = tuple(re.escape(name) for name in sorted(read_here))
            yield LossBudget(patterns, wave.max_loss_records, wave.max_loss_seconds, f"wave {wave.name}")


def failover_stages(plan: FailoverPlan) -> tuple[Stage, ...]:
    """The stages of a failover, for the plan's explanation and for the runner."""
    source, target = plan.link.source, plan.link.target
    already = plan.control_run if plan.control == Direction.SEALED else None
    return (
        Fence(
            source,
            target,
            plan.mode,
            plan.source.reachable,
            plan.source.denied is not None,
            already,
            plan.fence,
            catch_up=plan.catch_up and already is None,
            accept_loss=plan.accept_loss,
        ),
        Drain(source, target, plan.mode),
        Translate(
            source,
            target,
            plan.at,
            plan.selection,
            plan.allow_rewind,
            len(plan.placed),
            mirrormaker=plan.mirrormaker,
            budgets=plan.budgets,
            accept_loss=plan.accept_loss,
            rows_in_doubt=plan.rows_in_doubt,
        ),
        Commit(
            target,
            len({position.group for position in plan.placed}),
            len(plan.placed),
            plan.target.cluster_id,
            sealed_before_by=already,
            allow_rewind=plan.allow_rewind,
        ),
        Switch(target, plan.endpoint, tuple(view.name for view in plan.directories), sealed_before_by=already),
        Verify(target, source),
        Close(selection=plan.selection),
    )


def _check_possible(snapshot: Snapshot) -> None:
    link = snapshot.link.id
    if not snapshot.target.reachable:
        raise snapshot.target.refusal()
    if not snapshot.topics and not any(view.watermark for view in snapshot.partitions.values()):
        raise Refused(
            f"the store holds nothing about {link}",
            meaning="No mirror has run on this link with this store, so no offset on the target is known",
            remedy=f"Run drkit mirror --link '{link}'; check [store] in the configuration",
        )


def _loss_bound(plan: FailoverPlan) -> str:
    if plan.loss.records is None:
        return "is not known"
    if plan.loss.lower_bound:
        known = bounds(lower=True, upper=plan.loss.upper_bound)
        return f"is {counted(plan.loss.records, 'record')}{known}"
    return f"is {counted(plan.loss.records, 'record')} at most"


def _of_topic(problem: Problem) -> str:
    return problem.reason if problem.topic in problem.reason else f"{problem.topic}: {problem.reason}"


def _warnings(snapshot: Snapshot, request: PlanRequest, plan: FailoverPlan) -> list[str]:
    warnings = list(snapshot.notes)
    if snapshot.link.alters:
        warnings.append(
            f"no failback goes back along {snapshot.link.id}, which alters records. To go back later: "
            f"{serve_again(snapshot.link)}"
        )
    if not request.selection.everything:
        warnings.append(
            f"only part of the groups and topics is moved, but all of {snapshot.link.id} is sealed: nothing of it is "
            "mirrored any more"
        )
    if plan.loss.reason:
        warnings.append(f"the expected loss {_loss_bound(plan)}: {plan.loss.reason}")
    if snapshot.left:
        warnings.append(
            f"no group is moved on {and_more(snapshot.left)}: mirrored before, no longer among {snapshot.link.id}'s "
            "topics"
        )
    unmovable = {each.group for each in snapshot.unmovable}  # each has its own warning
    unplaced = [p for p in plan.positions if p.target_offset is None and p.group not in unmovable]
    if unplaced:
        first = unplaced[0]
        warnings.append(
            f"{len(unplaced)} positions have no place on {snapshot.target.alias}, e.g. {first.group} on "
            f"{first.topic}:{first.partition}: {first.reason}"
        )
    warnings += _about_groups(snapshot, request, plan)
    warnings += snapshot.rows_in_doubt.sentences()
    remarks = [f"{view.target_tp}: {view.remark}" for view in snapshot.partitions.values() if view.remark]
    if remarks:
        warnings.append(and_more(remarks))
    obvious = {  # the plan is refused, or the rows' doubts say it
        problem.reason for problem in snapshot.problems if problem.kind in {ROWS_UNPROVEN, TARGET_REPLACED}
    }
    warnings += [_of_topic(problem) for problem in snapshot.problems if problem.reason not in obvious]
    active = sorted(group for group, count in snapshot.source_members.items() if count)
    if request.mode is Mode.PLANNED and active:
        warnings.append(
            f"{and_more(active)} still read on {snapshot.source.alias}: what they read from now on is read again"
        )
    return warnings


def _about_groups(snapshot: Snapshot, request: PlanRequest, plan: FailoverPlan) -> Iterator[str]:
    chosen = request.selection.groups
    unmovable = [each for each in snapshot.unmovable if not chosen or each.group in chosen]
    for each in unmovable[:_SHOWN]:
        yield f"{each.group} is not moved: {each.why(snapshot.target.alias)}"
    if len(unmovable) > _SHOWN:
        yield f"and {counted(len(unmovable) - _SHOWN, 'more group')} commit no offsets and are not moved"
    never = never_committed(snapshot, request.selection)
    yield from _begin_where_they_stood(snapshot, never.items(), plan)
    left = {group: [tp for tp in tps if (group, tp) not in snapshot.committed] for group, tps in never.items()}
    missing = [(group, tps) for group, tps in left.items() if tps]
    for group, tps in missing[:_SHOWN]:
        yield (
            f"{group} never committed on {and_more([str(tp) for tp in tps])}: its auto.offset.reset decides there, "
            f"as on {snapshot.source.alias}"
        )
    if len(missing) > _SHOWN:
        yield f"and {counted(len(missing) - _SHOWN, 'more group')} never committed on some partitions"
    yield from _imprecise(snapshot, plan)
    if removed := removed_unread(plan.placed, snapshot.partitions).sentence(snapshot.target.alias):
        yield removed
    alone = [position for position in plan.placed if position.skipped is None]
    if alone:
        first = alone[0]
        yield (
            f"what {counted(len(alone), 'position')} skip is not known, e.g. {first.group} on {first.topic}:"
            f"{first.partition}: {first.reason}"
        )


def _begin_where_they_stood(
    snapshot: Snapshot, missing: Iterable[tuple[str, list[TopicPartition]]], plan: FailoverPlan
) -> Iterator[str]:
    """Groups that never committed somewhere on the source, and did on the target: their auto.offset.reset decides
    nothing there."""
    source, target = snapshot.source.alias, snapshot.target.alias
    found = [
        (group, tp, stands)
        for group, tps in missing
        for tp in tps
        if (stands := snapshot.committed.get((group, tp))) is not None
    ]
    for group, tp, stands in found[:_SHOWN]:
        there = f"{snapshot.link.target_topic(tp.topic)}:{tp.partition}"
        command = reset_command(group, there, plan.endpoint)
        yield (
            f"{group} never committed on {tp} of {source}, and {target} has an offset of it from before: it begins "
            f"there at {stands:,} and reads nothing below; {command} makes it read all"
        )
    if len(found) > _SHOWN:
        yield (
            f"and {counted(len(found) - _SHOWN, 'more position')} of groups that never committed there on {source} "
            f"{'is' if len(found) == _SHOWN + 1 else 'are'} on {target} from before"
        )


def _imprecise(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[str]:
    """Groups that are placed as captured though the source answers, and those that process transactions again."""
    lacking = snapshot.lacking
    answered = snapshot.read_groups if not snapshot.positions_live else {p.group for p in plan.placed}
    captured = sorted(
        {p.group for p in plan.placed if (p.group, TopicPartition(p.topic, p.partition)) in lacking} & answered
    )
    if captured:
        yield (
            f"{snapshot.source.alias} lacks committed offsets of {and_more(captured)} that were captured before: these "
            "groups are placed as captured"
        )
    again: dict[str, list[PlannedPosition]] = {}
    for position in plan.placed:
        if position.transactional and position.transactions_again != 0:
            again.setdefault(position.group, []).append(position)
    for group, its in islice(again.items(), _SHOWN):
        others = f" (and {counted(len(its) - 1, 'more partition')})" if its[1:] else ""
        yield f"{group} on {its[0].topic}:{its[0].partition}{others}: {its[0].reason}"
    if len(again) > _SHOWN:
        yield f"and {counted(len(again) - _SHOWN, 'more group')} that process transactions again"
