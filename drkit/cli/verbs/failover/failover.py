"""`drkit failover`: move consumer groups to another cluster, planned or not."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from drkit.cli.output import NOTHING_CHANGED, OutputMode
from drkit.cli.wiring.context import (
    Invocation,
    LinksOption,
    aliases,
    verb,
)
from drkit.cli.wiring.run_outcome import ApprovalOption, EmergencyOption, give_approval
from drkit.cli.wiring.selection import AtOption, CommittedAtOption, TimezoneOption, either_moment, one_edge, select
from drkit.failover.context.state_machine import Mode
from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.selection import Edge, Selection
from drkit.model.clock import now
from drkit.model.errors import ConfigError, StalePlan
from drkit.model.link_patterns import matching
from drkit.model.runs import ACCEPT_LOSS, ACCEPT_UNFENCED, ALLOW_REWIND

if TYPE_CHECKING:
    from drkit.cli.wiring.site_outcome import FailoverFlags
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.plan.failover_plan import AcceptedLoss, FailoverPlan

AcceptUnfencedOption = Annotated[
    bool, typer.Option(ACCEPT_UNFENCED, help="Continue although the cluster that groups leave can't be fenced.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
_PLANNED_PATIENCE_SECONDS = 10.0
"""For a source that is silent: a planned move needs it, nobody is in a hurry, and a busy cluster isn't a dead one."""
_ASKED_FOR = frozenset({ACCEPT_UNFENCED, ACCEPT_LOSS})
"""Obstacles that somebody at a terminal is asked about, together with the plan."""
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]


AcceptLossOption = Annotated[
    str | None,
    typer.Option(
        ACCEPT_LOSS,
        metavar="N|unknown",
        help="How many records may be lost, of a primary that answers or above the budget.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("failover")(failover)


@verb(unfinished=NOTHING_CHANGED)
def failover(
    run: Invocation,
    to: Annotated[
        str | None, typer.Option("--to", metavar="C", help="The cluster to fail over to.", autocompletion=aliases)
    ] = None,
    at: AtOption = None,
    committed_at: CommittedAtOption = None,
    consistent: Annotated[
        bool,
        typer.Option("--consistent", help="Put groups at the latest instant at which every topic is complete."),
    ] = False,
    timezone: TimezoneOption = None,
    planned: Annotated[
        bool, typer.Option("--planned", help="Both clusters are alive: lose nothing, or do nothing.")
    ] = False,
    unplanned: Annotated[
        bool,
        typer.Option(
            "--unplanned",
            help="Take what is there now (default: so, but wait up to 60 s for the backlog of a primary that answers).",
        ),
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="G[=WHERE]",
            help="Only this group (repeatable); =WHERE puts it at its own time, =earliest or =latest.",
        ),
    ] = None,
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="All groups of the link (the default), even unnamed ones.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Put groups at the start of the target's logs.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="Put groups at the end of the target's logs; skips unread records.")
    ] = False,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="T", help="Only this topic, as t or t:0,1 (repeatable).")
    ] = None,
    dry_run: DryRunOption = False,
    execute: Annotated[bool, typer.Option("--execute", help="Act (the default without --dry-run or --out).")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the plan to this file and stop, unless --execute or --yes."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Apply this plan, if both clusters still match it.")
    ] = None,
    positions_from: Annotated[
        str | None,
        typer.Option(
            "--positions-from",
            metavar="mm2[:ALIAS]",
            help="Use MirrorMaker 2's checkpoints and offset syncs (ALIAS: its name of the source).",
        ),
    ] = None,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Commit and read the positions with shadow groups, then remove them."),
    ] = False,
    yes: YesOption = False,
    accept_unfenced: AcceptUnfencedOption = False,
    accept_loss: AcceptLossOption = None,
    allow_rewind: Annotated[
        bool, typer.Option(ALLOW_REWIND, help="Also move positions back that are further on at the target.")
    ] = False,
    take_back: Annotated[
        str | None,
        typer.Option("--cancel", metavar="RUN", help="Roll this run back, before its commit; does nothing else."),
    ] = None,
    approval: ApprovalOption = None,
    emergency: EmergencyOption = None,
    link: LinksOption = None,
) -> None:
    """Move consumer groups to another cluster: plan, show, act, prove. All links that lead there move in one run."""
    started_at = now()
    if take_back is not None:
        from drkit.cli.wiring.run_outcome import cancel

        _refuse_with_cancel(to, out, plan, dry_run=dry_run)
        cancel(run, take_back, yes=yes)
        return
    _check_flags(dry_run=dry_run, execute=execute, out=out, plan=plan)
    mode = _given_mode(planned=planned, unplanned=unplanned)
    if rehearse and (dry_run or execute or out is not None):
        raise ConfigError("--rehearse excludes --dry-run, --execute and --out", remedy="Leave them out")
    when = either_moment(at, committed_at, timezone)
    accepted = accepted_loss(accept_loss)
    selection = select(
        group or (),
        topic or (),
        all_groups=all_groups,
        edge=one_edge(to_earliest=to_earliest, to_latest=to_latest),
        timezone=timezone,
    )
    _check_basis(consistent=consistent, at=when, edge=selection.edge, plan=plan)
    if positions_from is not None and (plan is not None or when is not None or consistent):
        raise ConfigError(
            "--positions-from excludes --plan, --at, --committed-at and --consistent",
            remedy="Leave them out: positions come from MirrorMaker 2's offsets, or from the plan",
        )
    # before all else is loaded: a dead source is waited for meanwhile
    sources = dict.fromkeys(each.source for each in run.config.links if each.target == to)
    begun = run.connecting(sources, _PLANNED_PATIENCE_SECONDS if mode is Mode.PLANNED else None)
    from drkit.cli.wiring.run_outcome import collect_rarely
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.snapshot.choose_links import leading_to, links_into

    collect_rarely()
    if plan is None:
        matching(leading_to(run.config, _required_target(to)), link or ())  # before the store is opened
    with ClusterContext(run.config, run.store()) as estate:
        estate.adopt(begun, sources)
        give_approval(run, estate, approval, emergency)
        from drkit.cli.wiring.site_outcome import FailoverFlags, fail_over_site
        from drkit.failover.planning.failover_planner import PlanRequest, make_plan
        from drkit.failover.positions.mirrormaker_positions import parse_positions_from

        flags = FailoverFlags(
            yes=yes,
            accept_unfenced=accept_unfenced,
            only_plan=dry_run or (out is not None and not execute and not yes),
            out=out,
            rehearse=rehearse,
            started_at=started_at,
        )
        if plan is not None:
            given = PlanFileOptions(to, mode, when, selection, accepted, allow_rewind=allow_rewind)
            _apply(run, estate, plan, given, flags)
            return
        request = PlanRequest(
            to=_required_target(to),
            mode=mode or Mode.UNPLANNED,
            at=when,
            selection=selection,
            allow_rewind=allow_rewind,
            mirrormaker=parse_positions_from(positions_from),
            consistent=consistent,
            catch_up=mode is None,
            accept_loss=accepted,
        )
        links = links_into(estate, request.to, link or (), groups_named=bool(selection.groups))
        if len(links.links) > 1 or run.config.waves:
            fail_over_site(run, estate, request, links, flags)
            return
        for left in links.left_out:
            run.writer.remark(Text(f"{left.link} is left out: {left.why}", "dim"), link=str(left.link))
        _carry_out_plan(run, estate, make_plan(estate, replace(request, link=links.links[0])), flags)


@dataclass(frozen=True, slots=True)
class PlanFileOptions:
    """What was given beside a plan file."""

    to: str | None
    mode: Mode | None
    at: Moment | None
    selection: Selection
    accept_loss: AcceptedLoss
    allow_rewind: bool


def _apply(run: Invocation, estate: ClusterContext, path: Path, given: PlanFileOptions, flags: FailoverFlags) -> None:
    """Carry out the plan of a file, of one link or of several."""
    from drkit.cli.wiring.site_outcome import apply_site_plan, read_if_site_plan
    from drkit.failover.plan.failover_plan import read_plan
    from drkit.failover.run.service import plan_again

    site_plan = read_if_site_plan(path)
    if site_plan is not None:
        for each in site_plan.plans:
            _refuse_other_flags(each, given, one_of_several=True)
        apply_site_plan(run, estate, site_plan, flags, allow_rewind=given.allow_rewind, accept_loss=given.accept_loss)
        return
    kept = read_plan(path)
    if run.config.waves:
        raise StalePlan(
            "waves are configured since the plan was made",
            meaning="The plan doesn't know them: all groups would move at once",
            remedy="Make a new one: --dry-run --out FILE",
        )
    _refuse_other_flags(kept, given)
    chosen = plan_again(estate, kept, allow_rewind=given.allow_rewind, accept_loss=given.accept_loss)
    _carry_out_plan(run, estate, chosen, flags)


def _carry_out_plan(run: Invocation, estate: ClusterContext, chosen: FailoverPlan, flags: FailoverFlags) -> None:
    """One link's plan: rehearsed, written, shown or carried out."""
    from drkit.cli.wiring.run_outcome import rehearse_plan, show_dry_run
    from drkit.failover.plan.failover_plan import write_plan
    from drkit.failover.run.service import standing_obstacles

    if flags.rehearse:
        rehearse_plan(run, estate, chosen, flags.started_at)
        return
    if flags.out is not None:
        write_plan(chosen, flags.out)
    if flags.only_plan:
        show_dry_run(run, chosen, standing_obstacles(chosen, waived=frozenset({ACCEPT_UNFENCED})))
        return
    _execute(run, estate, chosen, yes=flags.yes, accept_unfenced=flags.accept_unfenced, started_at=flags.started_at)


def _execute(
    run: Invocation,
    estate: ClusterContext,
    plan: FailoverPlan,
    *,
    yes: bool,
    accept_unfenced: bool,
    started_at: datetime,
) -> None:
    from drkit.cli.views.failover_view import StagePrinter, print_plan
    from drkit.cli.wiring.run_outcome import confirm, finish, has_ended
    from drkit.failover.plan.failover_plan import accepting
    from drkit.failover.run.service import run_failover, standing_obstacles

    standing = standing_obstacles(plan, waived=frozenset({ACCEPT_UNFENCED} if accept_unfenced else ()))
    if run.writer.mode is OutputMode.HUMAN:
        print_plan(run.writer.console, plan, standing, about_to_run=True)
    at_terminal = sys.stdin.isatty()
    asks = at_terminal and not yes and all(obstacle.waived_by in _ASKED_FOR for obstacle in standing)
    if standing and not asks:
        raise standing[0].refusal()
    what = "; ".join([f"Groups move to {plan.target.alias}", *(obstacle.what for obstacle in standing)])
    asked = confirm(run, plan.target.alias, what, yes=yes or (accept_unfenced and not at_terminal))
    # what was shown is accepted, nothing else
    accept_unfenced = accept_unfenced or any(obstacle.waived_by == ACCEPT_UNFENCED for obstacle in standing)
    plan = accepting(plan, standing)
    with StagePrinter(run.writer) as printer:
        result = run_failover(
            estate,
            plan,
            accept_unfenced=accept_unfenced,
            started_at=now() if asked else started_at,  # the time a person takes to decide is not the run's
            watch=printer,
        )
        has_ended(run, result.run, result.machine.state)
    finish(run, result, plan, plan_shown=True)


def accepted_loss(given: str | None) -> AcceptedLoss:
    """What `--accept-loss` says.

    Raises:
        ConfigError: neither a number nor `unknown`.
    """
    if given is None:
        return None
    if given == "unknown":
        return "unknown"
    if not re.fullmatch("[0-9]{1,18}", given):
        raise ConfigError(
            f"{ACCEPT_LOSS} {given!r} is neither a number of records nor the word unknown", remedy="Give one of them"
        )
    return int(given)


def _refuse_with_cancel(to: str | None, out: Path | None, plan: Path | None, *, dry_run: bool) -> None:
    if to is not None or out is not None or plan is not None or dry_run:
        raise ConfigError("--cancel excludes all flags that ask for a failover", remedy="Give only --cancel RUN")


def _required_target(to: str | None) -> str:
    if to is None:
        raise ConfigError("no cluster is named", remedy="Give --to C, or --plan FILE")
    return to


def _given_mode(*, planned: bool, unplanned: bool) -> Mode | None:
    """What --planned or --unplanned says; None: neither is given."""
    if planned and unplanned:
        raise ConfigError("--planned and --unplanned exclude each other", remedy="Give one of them")
    return Mode.PLANNED if planned else Mode.UNPLANNED if unplanned else None


def _check_flags(*, dry_run: bool, execute: bool, out: Path | None, plan: Path | None) -> None:
    if dry_run and execute:
        raise ConfigError("--dry-run and --execute exclude each other", remedy="Give one of them")
    if out is not None and plan is not None:
        raise ConfigError("--out and --plan exclude each other", remedy="Make a plan, or apply one")
    if out is not None and (out.is_dir() or not out.parent.is_dir()):  # now: planning asks both clusters
        what = f"{out} is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise ConfigError(f"--out: the plan can't be written: {what}", remedy="Give another --out")


def _check_basis(*, consistent: bool, at: Moment | None, edge: Edge | None, plan: Path | None) -> None:
    given = [
        name
        for name, there in (
            ("--consistent", consistent),
            ("--at or --committed-at", at is not None),
            ("--to-earliest or --to-latest", edge is not None),
        )
        if there
    ]
    if len(given) > 1:
        raise ConfigError(
            f"{' and '.join(given)} exclude each other", meaning="Each says where groups go", remedy="Give one of them"
        )
    if consistent and plan is not None:
        raise ConfigError(
            "--consistent excludes --plan",
            meaning="A plan that was made with it already has the instant",
            remedy="Leave it out, or make a new plan",
        )


def _refuse_other_flags(plan: FailoverPlan, given: PlanFileOptions, *, one_of_several: bool = False) -> None:
    """A plan file says it all: flags beside it may repeat what it says, and nothing else.

    `one_of_several`: of a site's plan, each link of which has its part of the groups and topics.
    """
    planned_at = None if plan.at is None else (plan.at.instant, plan.at.basis)
    chosen = replace(given.selection, edge=None)
    nothing_chosen = chosen == Selection()
    said = {
        "--to": given.to is None or given.to == plan.link.target,
        "--at or --committed-at": given.at is None or (given.at.instant, given.at.basis) == planned_at,
        "--planned/--unplanned": given.mode is None or given.mode is plan.mode,
        "--group or --topic": nothing_chosen or (not one_of_several and chosen == replace(plan.selection, edge=None)),
        "--to-earliest or --to-latest": given.selection.edge in {None, plan.selection.edge},
    }
    other = [name for name, same in said.items() if not same]
    if other:
        raise ConfigError(f"{', '.join(other)} contradicts the plan", remedy="Leave it out, or make a new plan")
