"""`--approval` and `--emergency`: who approved a plan, where `[approvals]` asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.model.clock import now
from drkit.model.errors import ConfigError
from drkit.model.runs.approval import Approval

if TYPE_CHECKING:
    from drkit.cli.wiring.context import Invocation
    from drkit.failover.run.cluster_context import ClusterContext

ApprovalOption = Annotated[
    list[Path] | None,
    typer.Option("--approval", metavar="FILE", help="A file that `drkit evidence approve` wrote; one per operator."),
]
EmergencyOption = Annotated[
    str | None,
    typer.Option("--emergency", metavar="REASON", help="Act alone although approvals are required; journaled."),
]


def give_approval(run: Invocation, estate: ClusterContext, files: list[Path] | None, emergency: str | None) -> None:
    """Take what the options say.

    Raises:
        ConfigError: they don't go together, or a file or key can't be read.
        Refused: the files are no approval of two operators.
    """
    rule = run.config.approvals
    if emergency is not None:
        if files:
            raise ConfigError("--approval and --emergency exclude each other", remedy="Give one of them")
        if not emergency.strip():
            raise ConfigError("--emergency: no reason is given", remedy="Say why you act alone; it is journaled")
        estate.approval = Approval(emergency=emergency.strip())
        if rule is not None:
            run.writer.log.print("[bold]![/] An emergency: you act alone, and the journal says so", soft_wrap=True)
    elif files:
        if rule is None:
            raise ConfigError("--approval: there is no [approvals]", remedy="Leave it out, or name the operators there")
        from drkit.evidence.approvals import read_approvals

        estate.approval = read_approvals(files, rule.operators, now())
