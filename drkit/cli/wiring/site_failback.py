"""Shared by failback and reprotect of several links: the plan shown, confirmation, the run, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from drkit.cli.output.writer import OutputMode
from drkit.cli.views.site_view import LinkStagePrinter, print_site_failback_plan
from drkit.cli.wiring.context import Invocation
from drkit.cli.wiring.run_outcome import confirm
from drkit.cli.wiring.site_outcome import finish_site
from drkit.failover.plan.waivers import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED, CLUSTER_ID
from drkit.failover.run.interfaces import Ports
from drkit.failover.run.state_machine import Kind
from drkit.model.clock import now
from drkit.model.errors import ConfigError, ExitCode, PartlyDone, Refused
from drkit.model.topology import LinkId
from drkit.model.wording import and_more, counted

if TYPE_CHECKING:
    from drkit.failover.plan.choose_links import ChosenLinks
    from drkit.failover.plan.failover_plan import Obstacle
    from drkit.failover.run.cluster_context import ClusterContext
    from drkit.failover.site.failback.site_failback_plan import SiteFailbackPlan
    from drkit.failover.site.site_context import SiteContext


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
    from drkit.failover.site.failback.site_failback_planner import make_site_failback_plan
    from drkit.failover.site.site_context import SiteContext
    from drkit.failover.site.site_document import site_plan_document
    from drkit.failover.site.site_plan import refusal_of, standing

    with SiteContext(estate, links.links) as site:
        plan = make_site_failback_plan(site, flags.kind, links.left_out, by_spark=flags.by_spark)
        if flags.dry_run:
            left = standing(plan, waived=flags.waived | {ACCEPT_UNFENCED})
            left += [] if flags.lacking is None else [(None, flags.lacking)]
            json_mode = run.writer.mode is OutputMode.JSON
            run.writer.emit(
                site_plan_document(plan, left) if json_mode else {},
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
    from drkit.failover.site.failback.site_failback_run import FailbackMeans, run_site_failback

    printer = LinkStagePrinter(run.writer.log, plan.links)
    means = FailbackMeans(
        ports,
        accept_unfenced=ACCEPT_UNFENCED in flags.waived,
        accept_salvage_only=ACCEPT_SALVAGE_ONLY in flags.waived,
        before_fence=asking_before_fences(run, plan, printer, yes=flags.yes, pause=flags.pause),
    )
    try:
        result = run_site_failback(
            site, plan, means, cluster_ids=plan.old_primaries, started_at=started_at, watch=printer
        )
    finally:
        printer.stop()
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
) -> None:
    """Take an interrupted failback or reprotect of several links to its end."""
    from drkit.failover.site.failback.site_failback_run import FailbackMeans
    from drkit.failover.site.site_run import resume_site

    printer = LinkStagePrinter(run.writer.log, plan.links)
    means = FailbackMeans(
        ports,
        accept_unfenced=ACCEPT_UNFENCED in waived,
        accept_salvage_only=ACCEPT_SALVAGE_ONLY in waived,
        before_fence=asking_before_fences(run, plan, printer, yes=yes, pause=False),
    )
    try:
        result = resume_site(site, site_run, accept_unfenced=means.accept_unfenced, means=means, watch=printer)
    finally:
        printer.stop()
    finish_site(run, result)


def asking_before_fences(
    run: Invocation, plan: SiteFailbackPlan, printer: LinkStagePrinter, *, yes: bool, pause: bool
) -> Callable[[LinkId], None]:
    """What is asked before a live cluster is closed: once of each, for all links that lead to it."""
    answered: set[str] = set()

    def ask(link: LinkId) -> None:
        live = plan.of(link).live.alias
        told = PartlyDone(
            f"the failback waits before its fence: next {live} is closed to its clients",
            meaning=f"All before it is done and audited; {live} keeps serving, and nothing has to be hurried",
            remedy=f"Stop the producers of {live}, let its consumers finish, then drkit resume",
        )
        if pause:
            raise told
        if yes or live in answered or not sys.stdin.isatty():
            return
        printer.stop()
        words = f"[bold]Next {live} is closed to its clients: stop its producers now.[/] Type {live} to continue: "
        if run.ask(words) != live:
            raise told
        answered.add(live)

    return ask
