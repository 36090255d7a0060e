"""`drkit failback`: bring the old primary back, and the groups with it; of several links in one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from drkit.cli.output import NOTHING_CHANGED, OutputMode
from drkit.cli.verbs.failover.failover import AcceptUnfencedOption, DryRunOption, YesOption
from drkit.cli.views.failover_view import StagePrinter, print_plan
from drkit.cli.wiring.context import (
    Invocation,
    LinksOption,
    aliases,
    verb,
)
from drkit.cli.wiring.failback_wiring import (
    EngineOption,
    SalvageOption,
    SeedEngine,
    failback_ports,
)
from drkit.cli.wiring.run_outcome import (
    ApprovalOption,
    EmergencyOption,
    asking_before_fence,
    confirm,
    finish,
    give_approval,
    has_ended,
    show_dry_run,
)
from drkit.cli.wiring.spark_options import (
    MasterOption,
    MemoryOption,
    SparkConfOption,
    require_spark,
    spark_obstacle,
    spark_properties,
)
from drkit.failover.context.interfaces import Ports
from drkit.failover.context.state_machine import Kind
from drkit.model.clock import now
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_patterns import matching
from drkit.model.runs import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED, CLUSTER_ID
from drkit.model.wording import counted
from drkit.seed.checks import seed_port

if TYPE_CHECKING:
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.plan.failback_plan import FailbackPlan

ClusterIdsOption = Annotated[
    list[str] | None,
    typer.Option(
        CLUSTER_ID,
        metavar="ID|C=ID",
        help="The old primary's cluster id: its topics of the link are deleted. For several old primaries: C=ID each.",
    ),
]
AcceptSalvageOnlyOption = Annotated[
    bool,
    typer.Option(
        ACCEPT_SALVAGE_ONLY,
        help="Accept that records lacking on the live cluster (deleted, recreated topics) stay in the salvage.",
    ),
]


class PauseBefore(StrEnum):
    """A stage before which a failback can stop."""

    FENCE = "fence"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("failback")(failback)


@verb(unfinished=NOTHING_CHANGED)
def failback(
    run: Invocation,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="C", help="The old primary (default: the one failed away from).", autocompletion=aliases
        ),
    ] = None,
    dry_run: DryRunOption = False,
    execute: Annotated[bool, typer.Option("--execute", help="Act (the default without --dry-run).")] = False,
    yes: YesOption = False,
    cluster_id: ClusterIdsOption = None,
    accept_unfenced: AcceptUnfencedOption = False,
    accept_salvage_only: AcceptSalvageOnlyOption = False,
    pause_before: Annotated[
        PauseBefore | None,
        typer.Option(
            "--pause-before",
            help="Stop before the live cluster is closed; `drkit resume` continues. Nothing is copied "
            "meanwhile, unless `drkit mirror` follows.",
        ),
    ] = None,
    salvage_dir: SalvageOption = None,
    engine: EngineOption = SeedEngine.MIRROR,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
    driver_memory: MemoryOption = "1g",
    link: LinksOption = None,
    approval: ApprovalOption = None,
    emergency: EmergencyOption = None,
) -> None:
    """Salvage, scrub and re-seed the old primary, audit it, move the groups back, activate the link.

    All links that were failed away from (of --to, or those that --link names) go back in one run: all are salvaged
    before anything is deleted, and each moves back once it is audited.
    """
    if dry_run and execute:
        raise ConfigError("--dry-run and --execute exclude each other", remedy="Give one of them")
    run_failback(
        run,
        to,
        link,
        for_good=False,
        dry_run=dry_run,
        yes=yes,
        cluster_id=cluster_id,
        pause=pause_before is not None,
        accepted={ACCEPT_UNFENCED: accept_unfenced, ACCEPT_SALVAGE_ONLY: accept_salvage_only},
        salvage_dir=salvage_dir,
        by_spark=engine is SeedEngine.SPARK,
        master=master,
        spark_conf=spark_conf,
        driver_memory=driver_memory,
        approval=approval,
        emergency=emergency,
    )


def run_failback(
    run: Invocation,
    to: str | None,
    link: list[str] | None,
    *,
    for_good: bool,
    dry_run: bool,
    yes: bool,
    cluster_id: list[str] | None,
    pause: bool,
    accepted: Mapping[str, bool],
    salvage_dir: Path | None,
    by_spark: bool,
    master: str,
    spark_conf: list[str] | None,
    driver_memory: str,
    approval: list[Path] | None,
    emergency: str | None,
) -> None:
    """Plan, show and execute a failback, or (`for_good`) a reprotect. `accepted`: whether each flag was given."""
    from drkit.cli.wiring.site_outcome import FailbackFlags, cluster_ids_given, run_site_failback
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.planning.failback_planner import make_failback_plan
    from drkit.failover.run.service import standing_obstacles
    from drkit.failover.snapshot.choose_links import leading_away, links_away

    kind = Kind.REPROTECT if for_good else Kind.FAILBACK
    user = f"`drkit {kind}`"  # for its audit, whatever it deletes
    if not dry_run:
        require_spark(user)
    lacking = spark_obstacle(user) if dry_run else None
    waived = frozenset(flag for flag, given in accepted.items() if given)
    started_at = now()
    matching(leading_away(run.config, to), link or ())  # before the store is opened
    with ClusterContext(run.config, run.store()) as estate:
        give_approval(run, estate, approval, emergency)
        chosen = links_away(estate, to, link or ())
        ids = cluster_ids_given(cluster_id or (), list(dict.fromkeys(each.id.source for each in chosen.links)))
        if by_spark:  # before anything is asked, let alone removed for a seed that can't be
            seed_port(spark_properties(spark_conf or []))

        def ports() -> Ports:
            return failback_ports(run, salvage_dir, master=master, driver_memory=driver_memory, properties=spark_conf)

        if len(chosen.links) > 1:
            flags = FailbackFlags(
                kind=kind,
                dry_run=dry_run,
                yes=yes,
                pause=pause,
                cluster_ids=ids,
                waived=waived,
                by_spark=by_spark,
                started_at=started_at,
                lacking=lacking,
            )
            run_site_failback(run, estate, chosen, flags, ports)
            return
        for left in chosen.left_out:
            run.writer.remark(Text(f"{left.link} is left out: {left.why}", "dim"), link=str(left.link))
        plan = make_failback_plan(estate, to, chosen.links[0], for_good=for_good, by_spark=by_spark)
        if dry_run:
            standing = standing_obstacles(plan, waived=waived | {ACCEPT_UNFENCED})
            show_dry_run(run, plan, standing if lacking is None else [*standing, lacking])
            return
        known = ids.get(plan.target.alias)
        _act(run, estate, plan, ports(), waived, yes=yes, pause=pause, cluster_id=known, started_at=started_at)


def _act(
    run: Invocation,
    estate: ClusterContext,
    plan: FailbackPlan,
    ports: Ports,
    waived: frozenset[str],
    *,
    yes: bool,
    pause: bool,
    cluster_id: str | None,
    started_at: datetime,
) -> None:
    from drkit.failover.run.service import confirm_cluster, run_failback, standing_obstacles

    standing = standing_obstacles(plan, waived=waived)
    if run.writer.mode is OutputMode.HUMAN:
        print_plan(run.writer.console, plan, standing)
    if standing:
        raise standing[0].refusal()
    if yes and cluster_id is None and plan.deletes:
        raise Refused(
            f"--yes deletes topics of {plan.target.alias} without asking, so it needs {CLUSTER_ID}",
            meaning="The id shows that you mean this cluster",
            remedy=f"Give {CLUSTER_ID} ID; --dry-run shows it",
        )
    if cluster_id is not None:
        confirm_cluster(plan, cluster_id)
    known = plan.target.cluster_id or ""
    plan = replace(plan, pause_before_fence=pause)
    if plan.level:
        kept = plan.kind is Kind.REPROTECT
        what = f"{plan.live.alias} becomes the source for good" if kept else f"Groups move back to {plan.target.alias}"
        asked = confirm(run, plan.target.alias, f"{what}; nothing is deleted", yes=yes)
    elif not plan.deletes:
        what = f"{plan.target.alias} is seeded from {plan.live.alias}; nothing is deleted there"
        asked = confirm(run, plan.target.alias, what, yes=yes)
    else:
        what = f"On {plan.target.alias}, {counted(len(plan.topics), 'topic')} will be deleted and seeded again"
        asked = confirm(run, known, what, yes=yes, ask="its cluster id")
    with StagePrinter(run.writer) as printer:
        result = run_failback(
            estate,
            plan,
            ports,
            cluster_id=known,
            accept_unfenced=ACCEPT_UNFENCED in waived,
            accept_salvage_only=ACCEPT_SALVAGE_ONLY in waived,
            started_at=now() if asked else started_at,  # exclude the time in which a person decides
            watch=printer,
            before_fence=partial(asking_before_fence(run, printer, yes=yes, pause=pause), plan.live.alias),
        )
        has_ended(run, result.run, result.machine.state)
    finish(run, result, plan, plan_shown=True)
