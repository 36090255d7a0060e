"""Shared by verbs that act on several links in one run: the plan shown, confirmation, the run, results, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from drkit.cli.output import OutputMode
from drkit.cli.views.site_view import (
    LinkStagePrinter,
    SitePrinter,
    print_site_failback_plan,
    print_site_plan,
    print_site_rehearsal,
    print_site_result,
)
from drkit.cli.wiring.context import Invocation
from drkit.cli.wiring.run_outcome import asking_before_fence, confirm, give_approval, has_ended
from drkit.failover.context.interfaces import Ports
from drkit.failover.context.state_machine import Kind
from drkit.model.clock import now
from drkit.model.errors import ConfigError, ExitCode, Refused
from drkit.model.runs import ACCEPT_LOSS, ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED, CLUSTER_ID
from drkit.model.wording import and_more, counted

if TYPE_CHECKING:
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.plan.failover_plan import AcceptedLoss, Obstacle
    from drkit.failover.plan.site_context import SiteContext
    from drkit.failover.plan.site_failback_plan import SiteFailbackPlan
    from drkit.failover.plan.site_plan import SitePlan
    from drkit.failover.planning.failover_planner import PlanRequest
    from drkit.failover.site.site_failback_run import FailbackMeans
    from drkit.failover.site.site_result import SiteResult
    from drkit.failover.snapshot.choose_links import ChosenLinks


_ASKED_FOR = frozenset({ACCEPT_UNFENCED, ACCEPT_LOSS})
"""Obstacles that somebody at a terminal is asked about, together with the plan."""


@dataclass(frozen=True, slots=True)
class FailoverFlags:
    """What a failover was told besides what it moves. `only_plan`: show (and write) the plan, and stop."""

    yes: bool
    accept_unfenced: bool
    only_plan: bool
    out: Path | None
    rehearse: bool
    started_at: datetime


def read_if_site_plan(path: Path) -> SitePlan | None:
    """The site's plan in a plan file; None: it holds one link's.

    Raises:
        ConfigError: it can't be read, is damaged, or was changed after it was written.
    """
    from drkit.failover.plan.failover_plan import plan_file
    from drkit.failover.plan.site_plan import FORMAT, read_site_plan

    body = plan_file(path)
    return read_site_plan(path, body) if body.get("format") == FORMAT else None


def fail_over_site(
    run: Invocation, estate: ClusterContext, request: PlanRequest, links: ChosenLinks, flags: FailoverFlags
) -> None:
    """Plan several links, and carry the plan out or show it."""
    from drkit.failover.plan.site_context import SiteContext
    from drkit.failover.plan.site_plan import write_site_plan
    from drkit.failover.site.site_planner import make_site_plan

    if request.mirrormaker:
        raise ConfigError(
            "--positions-from mm2:ALIAS is of one link: the alias is MirrorMaker 2's name of its source",
            remedy="Leave the alias out, or name one link with --link",
        )
    with SiteContext(estate, links.links) as site:
        plan = make_site_plan(site, request, links.left_out)
        if flags.rehearse:
            _rehearse(run, site, plan, flags)
            return
        if flags.out is not None:
            write_site_plan(plan, flags.out)
        _run_site(run, site, plan, flags)


def apply_site_plan(
    run: Invocation,
    estate: ClusterContext,
    kept: SitePlan,
    flags: FailoverFlags,
    *,
    allow_rewind: bool,
    accept_loss: AcceptedLoss,
) -> None:
    """Carry out the plan of a file, if the world still matches."""
    from drkit.failover.plan.site_context import SiteContext
    from drkit.failover.site.site_planner import site_plan_again

    with SiteContext(estate, [estate.link(link) for link in kept.links]) as site:
        plan = site_plan_again(site, kept, allow_rewind=allow_rewind, accept_loss=accept_loss)
        if flags.rehearse:
            _rehearse(run, site, plan, flags)
            return
        _run_site(run, site, plan, flags)


def resume_whole_site(
    run: Invocation,
    site_run: str,
    *,
    yes: bool,
    accept_unfenced: bool = False,
    accept_salvage_only: bool = False,
    emergency: str | None = None,
    ports: Callable[[], Ports] | None = None,
) -> None:
    """Take a site run to its end, or (without `ports`, which a failback needs) back to where it began."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.journal.site_record import load_site
    from drkit.failover.plan.site_context import SiteContext
    from drkit.failover.plan.site_plan import SitePlan
    from drkit.failover.site.site_run import cancel_site, resume_site

    store = run.store()
    record = load_site(store, site_run)
    plan = record.plan
    if not record.finished:
        does = "is rolled back: clients stay where they were" if ports is None else "continues"
        word = plan.confirmed_by
        what = f"Run {site_run} ({plan.label}) {does}"
        confirm(run, word, what, yes=yes, ask=f"the cluster's name, {word},")
    with (
        ClusterContext(run.config, store) as estate,
        SiteContext(estate, [estate.link(link) for link in plan.links]) as site,
    ):
        give_approval(run, estate, None, emergency)
        watch = SitePrinter(run.writer, plan.links)
        if ports is None:
            run.begins_to_change("Some of its runs may be rolled back", f"drkit resume {site_run} --cancel")
            result = cancel_site(site, site_run, watch=watch)
        elif isinstance(plan, SitePlan):
            result = resume_site(site, site_run, accept_unfenced=accept_unfenced, watch=watch)
        else:
            flags = {ACCEPT_UNFENCED: accept_unfenced, ACCEPT_SALVAGE_ONLY: accept_salvage_only}
            waived = frozenset(flag for flag, given in flags.items() if given)
            from drkit.failover.plan.failback_plan import will_pause

            begun = {link: child.machine for link, child in record.children.items()}
            pause = any(will_pause(each, begun.get(each.link)) for each in plan.plans)
            resume_site_failback(run, site, plan, site_run, ports(), yes=yes, waived=waived, pause=pause)
            return
        has_ended(run, result.run, result.state)
    finish_site(run, result)


def finish_site(run: Invocation, result: SiteResult) -> None:
    """A site run's result, and its exit code."""
    from drkit.failover.site.site_document import site_run_document

    judgement = result.judged(run.config.objectives)
    run.writer.emit(
        lambda: site_run_document(result, judgement),
        lambda console: print_site_result(console, result, judgement),
    )
    if result.error is not None:
        run.fail(result.error)
    if not judgement.met:
        run.exit(ExitCode.OBJECTIVE_MISSED)


def _rehearse(run: Invocation, site: SiteContext, plan: SitePlan, flags: FailoverFlags) -> None:
    """Rehearse every link; exit 3 where all went well, but a real run would be refused."""
    from drkit.failover.plan.site_plan import standing
    from drkit.failover.run.rehearsal import rehearse
    from drkit.failover.run.runner import RunResult
    from drkit.failover.site.site_document import site_rehearsal_document
    from drkit.model.topology import Link

    left = standing(plan, waived=frozenset({ACCEPT_UNFENCED}))
    watch = SitePrinter(run.writer, plan.links)
    by_link = {each.link: each for each in plan.plans}

    def rehearse_link(link: Link) -> RunResult:
        return rehearse(site.of(link.id), by_link[link.id], started_at=flags.started_at, watch=partial(watch, link.id))

    results = site.side_by_side(rehearse_link, [link for link in site.links if link.id in by_link])
    document = site_rehearsal_document(plan, results, left)
    run.writer.emit(document, lambda console: print_site_rehearsal(console, plan, results, left))
    failed = [result.error for result in results if result.error is not None]
    for error in failed:
        run.writer.error(error)
    if failed:
        run.exit(failed[0].exit_code)
    if left:
        run.exit(ExitCode.REFUSED)


def _run_site(run: Invocation, site: SiteContext, plan: SitePlan, flags: FailoverFlags) -> None:
    from drkit.failover.plan.site_plan import accepting_shown, refusal_of, standing
    from drkit.failover.site.site_document import site_plan_document
    from drkit.failover.site.site_run import run_site

    accepted = flags.accept_unfenced or flags.only_plan
    left = standing(plan, waived=frozenset({ACCEPT_UNFENCED} if accepted else ()))
    if flags.only_plan:
        run.writer.emit(lambda: site_plan_document(plan, left), lambda console: print_site_plan(console, plan, left))
        if left:
            run.exit(ExitCode.REFUSED)
        return
    if run.writer.mode is OutputMode.HUMAN:
        print_site_plan(run.writer.console, plan, left, about_to_run=True)
    at_terminal = sys.stdin.isatty()
    asks = at_terminal and not flags.yes and all(obstacle.waived_by in _ASKED_FOR for _, obstacle in left)
    if left and not asks:
        gravest = min(left, key=lambda each: each[1].waived_by is not None)
        raise refusal_of(plan, *gravest).refusal()
    whose = [obstacle.what if link is None else f"{link}: {obstacle.what}" for link, obstacle in left]
    what = "; ".join([f"Groups of {counted(len(plan.plans), 'link')} move to {plan.to}", *whose])
    asked = confirm(run, plan.to, what, yes=flags.yes or (flags.accept_unfenced and not at_terminal))
    plan, unfenced = accepting_shown(plan, left)
    result = run_site(
        site,
        plan,
        unfenced=plan.links if flags.accept_unfenced else unfenced,
        started_at=now() if asked else flags.started_at,  # the time a person takes to decide is not the run's
        watch=SitePrinter(run.writer, plan.links),
    )
    has_ended(run, result.run, result.state)
    finish_site(run, result)


@dataclass(frozen=True, slots=True)
class FailbackFlags:
    """What a failback or reprotect of several links was told. `waived`: the flags given that waive an obstacle.

    `cluster_ids`: by old primary. `pause`: stop before the live cluster is closed. `lacking`: what a run from
    here lacks, which a dry run tells.
    """

    kind: Kind
    dry_run: bool
    yes: bool
    pause: bool
    cluster_ids: Mapping[str, str]
    waived: frozenset[str]
    by_spark: bool
    started_at: datetime
    lacking: Obstacle | None = None


def cluster_ids_given(given: Sequence[str], aliases: Sequence[str]) -> dict[str, str]:
    """What `--cluster-id` says, by alias.

    Args:
        given: each ID, where there is one old primary, or ALIAS=ID.
        aliases: the old primaries.

    Raises:
        ConfigError: an id doesn't say of which cluster it is, is of another one, or a cluster is given two.
    """
    found: dict[str, str] = {}
    form = " ".join(f"{CLUSTER_ID} {alias}=ID" for alias in aliases)
    for text in given:
        alias, named, cluster_id = text.partition("=")
        if not named:
            if len(aliases) != 1:
                raise ConfigError(
                    f"{CLUSTER_ID} {text} doesn't say of which cluster it is: {and_more(aliases)}",
                    remedy=f"Give {form}",
                )
            alias, cluster_id = aliases[0], text
        if alias not in aliases:
            raise ConfigError(f"{CLUSTER_ID} {text}: nothing goes back to {alias!r}", remedy=f"Give {form}")
        if found.setdefault(alias, cluster_id) != cluster_id:
            raise ConfigError(f"{CLUSTER_ID} is given two ids for {alias}", remedy=f"Give {form}")
    return found


def run_site_failback(
    run: Invocation, estate: ClusterContext, links: ChosenLinks, flags: FailbackFlags, ports: Callable[[], Ports]
) -> None:
    """Plan several links, and carry the plan out or show it."""
    from drkit.failover.plan.site_context import SiteContext
    from drkit.failover.plan.site_plan import refusal_of, standing
    from drkit.failover.site.site_document import site_plan_document
    from drkit.failover.site.site_failback_run import make_site_failback_plan

    with SiteContext(estate, links.links) as site:
        plan = make_site_failback_plan(site, flags.kind, links.left_out, by_spark=flags.by_spark)
        if flags.dry_run:
            left = standing(plan, waived=flags.waived | {ACCEPT_UNFENCED})
            left += [] if flags.lacking is None else [(None, flags.lacking)]
            run.writer.emit(
                lambda: site_plan_document(plan, left),
                lambda console: print_site_failback_plan(console, plan, left),
            )
            if left:
                run.exit(ExitCode.REFUSED)
            return
        left = standing(plan, waived=flags.waived)
        if run.writer.mode is OutputMode.HUMAN:
            print_site_failback_plan(run.writer.console, plan, left)
        if left:
            raise refusal_of(plan, *left[0]).refusal()
        plan = replace(plan, plans=tuple(replace(each, pause_before_fence=flags.pause) for each in plan.plans))
        asked = _confirmed(run, plan, flags)
        _act(run, site, plan, flags, ports(), now() if asked else flags.started_at)


def _confirmed(run: Invocation, plan: SiteFailbackPlan, flags: FailbackFlags) -> bool:
    """Whether somebody was asked. Raises `Refused` unless every cluster that loses topics is confirmed by its id."""
    from drkit.failover.run.service import confirm_cluster

    missing = [alias for alias in plan.deleting if alias not in flags.cluster_ids]
    if flags.yes and missing:
        raise Refused(
            f"--yes deletes topics of {and_more(missing)} unasked, so it needs {CLUSTER_ID} for "
            f"{'it' if len(missing) == 1 else 'each'}",
            meaning="The ids show that you mean these very clusters",
            remedy=f"Give {' '.join(f'{CLUSTER_ID} {alias}=ID' for alias in missing)}; --dry-run shows them",
        )
    for each in plan.plans:
        if each.target.alias in flags.cluster_ids:
            confirm_cluster(each, flags.cluster_ids[each.target.alias])
    asked = False
    for alias, topics in plan.deleting.items():
        what = f"On {alias}, {counted(topics, 'topic')} will be deleted and seeded again"
        asked |= confirm(run, plan.old_primaries[alias], what, yes=flags.yes, ask=f"the cluster id of {alias}")
    if plan.deleting:
        return asked
    word = plan.confirmed_by
    what = f"{counted(len(plan.plans), 'link')} are brought back to {and_more(list(plan.old_primaries))}"
    return confirm(run, word, f"{what}; nothing is deleted", yes=flags.yes, ask=f"the cluster's name, {word},")


def _act(
    run: Invocation,
    site: SiteContext,
    plan: SiteFailbackPlan,
    flags: FailbackFlags,
    ports: Ports,
    started_at: datetime,
) -> None:
    from drkit.failover.site.site_failback_run import run_site_failback

    with LinkStagePrinter(run.writer, plan.links) as printer:
        means = _means(run, plan, ports, printer, flags.waived, yes=flags.yes, pause=flags.pause)
        result = run_site_failback(
            site, plan, means, cluster_ids=plan.old_primaries, started_at=started_at, watch=printer
        )
        has_ended(run, result.run, result.state)
    finish_site(run, result)


def resume_site_failback(
    run: Invocation,
    site: SiteContext,
    plan: SiteFailbackPlan,
    site_run: str,
    ports: Ports,
    *,
    yes: bool,
    waived: frozenset[str],
    pause: bool,
) -> None:
    """Take an interrupted failback or reprotect of several links to its end."""
    from drkit.failover.site.site_run import resume_site

    with LinkStagePrinter(run.writer, plan.links) as printer:
        means = _means(run, plan, ports, printer, waived, yes=yes, pause=pause)
        result = resume_site(site, site_run, accept_unfenced=means.accept_unfenced, means=means, watch=printer)
        has_ended(run, result.run, result.state)
    finish_site(run, result)


def _means(
    run: Invocation,
    plan: SiteFailbackPlan,
    ports: Ports,
    printer: LinkStagePrinter,
    waived: frozenset[str],
    *,
    yes: bool,
    pause: bool,
) -> FailbackMeans:
    """What the run works with. Before it closes a live cluster it asks, once for all links that lead to that."""
    from drkit.failover.site.site_failback_run import FailbackMeans

    ask = cache(asking_before_fence(run, printer, yes=yes, pause=pause))
    return FailbackMeans(
        ports,
        accept_unfenced=ACCEPT_UNFENCED in waived,
        accept_salvage_only=ACCEPT_SALVAGE_ONLY in waived,
        before_fence=lambda link: ask(plan.of(link).live.alias),
    )
