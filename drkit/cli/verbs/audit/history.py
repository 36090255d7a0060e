"""`drkit audit history`: the results of earlier audits, link by link, oldest first."""

from __future__ import annotations

from typing import Annotated

import typer

from drkit.cli.output.writer import OutputMode
from drkit.cli.views.audit.history_view import emit_trend
from drkit.cli.wiring.context import ConfigOption, LinkOption, OutputOption, VerboseOption, command


def register_history(app: typer.Typer) -> None:
    """Add `audit history`."""
    app.command("history")(history)


def history(
    last: Annotated[int, typer.Option("--last", min=1, metavar="N", help="Only the last N.")] = 50,
    link: LinkOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """List earlier audits with their results, oldest first: a trend."""
    from drkit.observe.audit_history import past_audits

    with command(config, output, verbose) as run:
        if link is not None:
            run.links(link)
        found = [each for each in past_audits(run.store()) if link is None or each.link == link]
        emit_trend(run, found[-last:])
