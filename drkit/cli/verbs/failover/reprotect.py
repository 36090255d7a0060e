"""`drkit reprotect`: keep the cluster failed over to as the source, and make the old primary its standby."""

from __future__ import annotations

import typer

from drkit.cli.output import NOTHING_CHANGED
from drkit.cli.verbs.failover.failback import AcceptSalvageOnlyOption, ClusterIdsOption, run_failback
from drkit.cli.verbs.failover.failover import DryRunOption, YesOption
from drkit.cli.wiring.context import Invocation, LinksOption, verb
from drkit.cli.wiring.failback_wiring import EngineOption, SalvageOption, SeedEngine
from drkit.cli.wiring.run_outcome import ApprovalOption, EmergencyOption
from drkit.cli.wiring.spark_options import MasterOption, MemoryOption, SparkConfOption
from drkit.model.runs import ACCEPT_SALVAGE_ONLY


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("reprotect")(reprotect)


@verb(unfinished=NOTHING_CHANGED)
def reprotect(
    run: Invocation,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    cluster_id: ClusterIdsOption = None,
    accept_salvage_only: AcceptSalvageOnlyOption = False,
    salvage_dir: SalvageOption = None,
    engine: EngineOption = SeedEngine.MIRROR,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
    driver_memory: MemoryOption = "1g",
    link: LinksOption = None,
    approval: ApprovalOption = None,
    emergency: EmergencyOption = None,
) -> None:
    """Salvage, scrub, re-seed and audit the old primary as the standby; clients stay where they are.

    All links that were failed away from, or those that --link names, are reprotected in one run: all are salvaged
    before anything is deleted.
    """
    run_failback(
        run,
        None,
        link,
        for_good=True,
        dry_run=dry_run,
        yes=yes,
        cluster_id=cluster_id,
        pause=False,
        accepted={ACCEPT_SALVAGE_ONLY: accept_salvage_only},
        salvage_dir=salvage_dir,
        by_spark=engine is SeedEngine.SPARK,
        master=master,
        spark_conf=spark_conf,
        driver_memory=driver_memory,
        approval=approval,
        emergency=emergency,
    )
