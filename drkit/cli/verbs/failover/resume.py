"""`drkit resume`: finishes an interrupted failover or failback."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from drkit.cli.output import NOTHING_CHANGED
from drkit.cli.verbs.failover.failback import AcceptSalvageOnlyOption
from drkit.cli.verbs.failover.failover import AcceptUnfencedOption, YesOption, accepted_loss
from drkit.cli.views.failover_view import StagePrinter
from drkit.cli.wiring.context import Invocation, verb
from drkit.cli.wiring.failback_wiring import SalvageOption, failback_ports
from drkit.cli.wiring.run_outcome import (
    EmergencyOption,
    asking_before_fence,
    cancel,
    confirm,
    finish,
    give_approval,
    has_ended,
)
from drkit.cli.wiring.site_outcome import resume_whole_site
from drkit.cli.wiring.spark_options import MasterOption, MemoryOption, SparkConfOption
from drkit.failover.context.interfaces import Ports
from drkit.failover.context.state_machine import next_step
from drkit.model.errors import ConfigError
from drkit.model.runs import ACCEPT_LOSS, RunSummary


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("resume")(resume)


@verb(unfinished=NOTHING_CHANGED)
def resume(
    run: Invocation,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run (default: the one that is unfinished).")
    ] = None,
    take_back: Annotated[
        bool,
        typer.Option("--cancel", help="Roll the run back instead: link as before, fence lifted; before the commit."),
    ] = False,
    unplanned: Annotated[
        bool,
        typer.Option(
            "--unplanned",
            help="For a failback whose live cluster is gone, or set up anew: move groups to what is brought back and "
            "audited.",
        ),
    ] = False,
    yes: YesOption = False,
    accept_unfenced: AcceptUnfencedOption = False,
    accept_salvage_only: AcceptSalvageOnlyOption = False,
    accept_loss: Annotated[
        str | None,
        typer.Option(
            ACCEPT_LOSS, metavar="N|unknown", help="With --unplanned: how many records may be lost, above the budget."
        ),
    ] = None,
    salvage_dir: SalvageOption = None,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
    driver_memory: MemoryOption = "1g",
    emergency: EmergencyOption = None,
) -> None:
    """Continue an interrupted run; a stage whose outcome isn't journaled is executed again."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.journal.run_record import load_anchored_run, run_to_resume
    from drkit.failover.journal.site_record import refuse_alone, site_to_resume
    from drkit.failover.plan.failback_plan import FailbackPlan, will_pause
    from drkit.failover.run.rehearsal import find_rehearsal
    from drkit.failover.run.service import resume_run

    if take_back and unplanned:
        raise ConfigError("--cancel and --unplanned exclude each other", remedy="Give one of them")
    if accept_loss is not None and not unplanned:
        raise ConfigError(
            "--accept-loss needs --unplanned",
            meaning="It is about a failback that is finished without its live cluster; any other run has what its "
            "plan accepted",
            remedy=f"For such a failback: drkit resume RUN --unplanned {ACCEPT_LOSS} N. Else leave it out; to "
            "accept more, take the run back (drkit resume RUN --cancel) and plan again",
        )
    if take_back:
        cancel(run, run_id, yes=yes)
        return

    def ports() -> Ports:
        return failback_ports(run, salvage_dir, master=master, driver_memory=driver_memory, properties=spark_conf)

    store = run.store()
    site = site_to_resume(store, run_id)
    if site is not None:
        if unplanned:
            raise ConfigError(
                "--unplanned concerns one link's failback",
                remedy=f"Name its run: drkit runs {site} shows it; or leave it out",
            )
        resume_whole_site(
            run,
            site,
            yes=yes,
            accept_unfenced=accept_unfenced,
            accept_salvage_only=accept_salvage_only,
            emergency=emergency,
            ports=ports,
        )
        return
    rehearsed = None if run_id is None else find_rehearsal(store, run_id)
    if rehearsed is not None:
        _clean_up(run, rehearsed)
        return
    wanted = run_to_resume(store, run_id)
    with StagePrinter(run.writer) as printer, ClusterContext(run.config, store) as estate:
        give_approval(run, estate, None, emergency)
        record = load_anchored_run(estate, wanted)
        if not unplanned:  # which moves what is back and audited, and deletes nothing
            refuse_alone(store, record)
        step, why = next_step(record.machine)
        text = Text.assemble((wanted, "bold"), f" {record.label}: {why}")
        run.writer.remark(text, link=str(record.plan.link), run=wanted)
        asked = False
        if step is not None:
            asking_for = f"The {record.plan.kind} to {record.plan.target.alias} continues with {step.stage}"
            asked = confirm(run, record.plan.target.alias, asking_for, yes=yes) and step.stage == "fence"
        failback = record.plan if isinstance(record.plan, FailbackPlan) else None
        pause = failback is not None and will_pause(failback, record.machine)
        asking = asking_before_fence(run, printer, yes=yes or asked, pause=pause)
        result = resume_run(
            estate,
            wanted,
            None if failback is None else ports(),
            accept_unfenced=accept_unfenced,
            accept_salvage_only=accept_salvage_only,
            watch=printer,
            before_fence=None if failback is None else partial(asking, failback.live.alias),
            unplanned=unplanned,
            accept_loss=accepted_loss(accept_loss),
        )
        has_ended(run, result.run, result.machine.state)
    finish(run, result, record.plan, plan_shown=False)


def _clean_up(run: Invocation, rehearsed: RunSummary) -> None:
    """A rehearsal isn't continued: what it left is removed."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.run.rehearsal import clean_up
    from drkit.failover.run.run_document import rehearsal_document

    with ClusterContext(run.config, run.store()) as estate:
        run.begins_to_change("A part of what the rehearsal left may be removed")
        result, plan = clean_up(estate, rehearsed)
    reason = result.stages[-1].reason if result.stages else "it left nothing"
    run.writer.emit(
        rehearsal_document(result, plan, ()),
        lambda console: console.print(f"rehearsal {result.run} {result.machine.state}: {reason}"),
    )
