"""`drkit salvage`: keep what only one side of a link holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from drkit.cli.context import ConfigOption, LinkOption, OutputOption, VerboseOption, command
from drkit.cli.output import OutputMode
from drkit.cli.spark import MasterOption, MemoryOption, TopicsOption, spark_runtime, told, topic_choices
from drkit.model.audit import AuditRequest, SalvageResult
from drkit.model.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("salvage")(salvage_verb)


def salvage_verb(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make; nothing is overwritten.")],
    topic: TopicsOption = None,
    master: MasterOption = "local[*]",
    driver_memory: MemoryOption = "1g",
    link: LinkOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Keep what only the source of a link holds: unseen, lost and corrupted records, as Parquet and for replay."""
    with command(config, output, verbose) as run:
        links, choices, store = run.links(link), topic_choices(topic), run.store(create=False)
        if len(links) > 1:
            names = ", ".join(str(each.id) for each in links)
            raise ConfigError("a salvage is of one link", remedy=f"Name it with --link; known links: {names}")
        from drkit.audit.salvage import salvage  # noqa: PLC0415 - PySpark loads only where it is used

        runtime = spark_runtime(master, driver_memory)
        with told(run, f"salvage {links[0].id}") as telling:
            result = salvage(
                AuditRequest(links[0], str(out), choices),
                store,
                run.config,
                runtime,
                progress=telling.step,
                tasks=telling.tasks,
            )
        run.writer.emit(_document(result), lambda console: _print(console, result))


def _document(result: SalvageResult) -> dict[str, Any]:
    return {
        "source": result.link.source,
        "target": result.link.target,
        "path": result.path,
        "manifest": result.manifest,
        "total": result.total,
        "records": {kind.value: number for kind, number in result.records.items()},
        "through": result.through,
        "uncommitted": result.uncommitted,
        "observed_at": result.observed_at,
    }


def _print(console: Console, result: SalvageResult) -> None:
    kinds = ", ".join(f"{number:,} {kind.value}" for kind, number in result.records.items() if number) or "none"
    console.print(f"{result.total:,} records that only {result.link.source} holds ({kinds}) are kept in {result.path}")
    for place, offset in sorted(result.uncommitted.items()):
        console.print(f"[yellow]{place}: a transaction is still open; not kept: offsets up to {offset:,}[/]")
