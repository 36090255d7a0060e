"""`drkit salvage`: keep what only one side of a link holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from drkit.cli.wiring.context import ConfigOption, Invocation, LinkOption, OutputOption, VerboseOption, command
from drkit.cli.wiring.output import OutputMode
from drkit.cli.wiring.spark_options import (
    NOTHING_KEPT,
    MasterOption,
    MemoryOption,
    SparkConfOption,
    TopicsOption,
    spark_runtime,
    told,
    topic_choices,
)
from drkit.model.audit.audit_result import AuditRequest, SalvageClass
from drkit.model.errors import ConfigError, ExitCode, PartlyDone
from drkit.model.topology import Link
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.audit.salvage.replay import Replayed
    from drkit.audit.spark.session import SparkRuntime


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("salvage")(salvage_verb)


def salvage_verb(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to make; with --replay-to also one made before.")
    ],
    replay_to: Annotated[
        str | None,
        typer.Option(
            "--replay-to", metavar="TOPIC", help="Then write the records to this topic of the target, each only once."
        ),
    ] = None,
    approve: Annotated[
        list[SalvageClass] | None,
        typer.Option(
            "--approve",
            metavar="CLASS",
            help="With --replay-to: records that are new (the default), conflicting or identical to the target; "
            "repeat it.",
        ),
    ] = None,
    topic: TopicsOption = None,
    master: MasterOption = "local[*]",
    driver_memory: MemoryOption = "1g",
    spark_conf: SparkConfOption = None,
    link: LinkOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Keep what only the source of a link holds, for whatever reason, as Parquet and for replay.

    With --replay-to they are written back too, with a header that names where each came from: those that are new, or
    what --approve names, of all topics or those that --topic names. Running it again with the same DIR writes only
    what isn't there yet. Exits 8 where the source itself can't give some offsets, which are named: all else is kept.
    """
    with command(config, output, verbose, unfinished=NOTHING_KEPT, at_once=True) as run:
        links = run.links(link)
        if approve and replay_to is None:
            raise ConfigError("--approve is of a replay", remedy="Add --replay-to TOPIC, or leave it out")
        if len(links) > 1:
            raise ConfigError(
                f"there are {len(links)} links, and a salvage is of one",
                remedy="One after the other, each in a folder of its own: "
                + "; ".join(f"drkit salvage --link '{each.id}' --out {out}-{each.id.source}" for each in links),
            )
        from drkit.audit.salvage.replay import refuse_mirrored, replay
        from drkit.audit.salvage.salvage_folder import is_salvage

        folder = out.expanduser().resolve()
        run.unfinished = lambda: f"The salvage in {folder} is whole" if is_salvage(folder) else NOTHING_KEPT
        made = not (replay_to is not None and is_salvage(folder))
        if replay_to is not None:  # before anything is read for it
            refuse_mirrored(replay_to, links[0].id.target, run.config, run.store())

        def runtime() -> SparkRuntime:
            return spark_runtime(master, driver_memory, spark_conf)

        kept = _salvage(run, links[0], folder, topic, runtime) if made else _manifest(folder)
        written = None
        if replay_to is not None:
            with told(run, f"replay to {replay_to}") as telling:
                try:
                    written = replay(
                        folder,
                        replay_to,
                        links[0].id,
                        run.config,
                        run.store(),
                        approved=approve or (SalvageClass.NEW,),
                        topics=topic_choices(topic),
                        progress=telling.step,
                    )
                except KeyboardInterrupt:
                    raise PartlyDone(
                        f"interrupted while records were written to {replay_to}",
                        meaning=f"What was written stays, and the salvage in {folder} is whole",
                        remedy="Run the same command again: it writes only what isn't there yet",
                    ) from None
        document = kept | {"replayed": None if written is None else _replayed(written)}
        run.writer.emit(document, lambda console: _print(console, document, made=made))
        if made and document["unreadable"]:
            run.exit(ExitCode.UNKNOWN)


def _salvage(
    run: Invocation, link: Link, folder: Path, topics: list[str] | None, runtime: Callable[[], SparkRuntime]
) -> dict[str, Any]:
    from drkit.audit.salvage.salvage import salvage

    store = run.store()
    request = AuditRequest(link, str(folder), topic_choices(topics))
    with told(run, f"salvage {link.id}") as telling:
        result = salvage(request, store, run.config, runtime(), progress=telling.step, tasks=telling.tasks)
    return {
        "source": result.link.source,
        "target": result.link.target,
        "path": result.path,
        "manifest": result.manifest,
        "total": result.total,
        "records": {kind.value: number for kind, number in result.records.items()},
        "standings": {standing.value: number for standing, number in result.standings.items()},
        "through": result.through,
        "uncommitted": result.uncommitted,
        "unreadable": result.unreadable,
        "observed_at": result.observed_at,
    }


def _manifest(folder: Path) -> dict[str, Any]:
    """The document of a salvage made before."""
    from drkit.audit.salvage.salvage_folder import read_manifest

    manifest = read_manifest(folder)
    partitions = {f"{each['topic']}:{each['partition']}": each for each in manifest["partitions"]}
    return {
        "source": manifest["source"],
        "target": manifest["target"],
        "path": str(folder),
        "manifest": str(folder / "manifest.json"),
        "total": sum(manifest["records"].values()),
        "records": manifest["records"],
        "standings": manifest["standings"],
        "through": {name: each["through"] for name, each in partitions.items()},
        "uncommitted": {
            name: each["uncommitted_end"] for name, each in partitions.items() if each["uncommitted_end"] is not None
        },
        "unreadable": {name: each["unreadable"] for name, each in partitions.items() if each["unreadable"]},
        "observed_at": manifest["observed_at"],
    }


def _replayed(written: Replayed) -> dict[str, Any]:
    return {
        "topic": written.topic,
        "written": written.written,
        "there_already": written.there_already,
        "not_approved": written.not_approved,
        "not_chosen": written.not_chosen,
        "conflicting_since": written.conflicting_since,
    }


def _print(console: Console, document: dict[str, Any], *, made: bool) -> None:
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in document["records"].items() if number) or "none"
    state = "are kept in" if made else "were kept before in"
    console.print(
        f"{counted(document['total'], 'record')} that only {document['source']} holds ({kinds}) {state} "
        f"{document['path']}",
        soft_wrap=True,
    )
    if standings := ", ".join(f"{number:,} {standing}" for standing, number in document["standings"].items() if number):
        console.print(f"to what {document['target']} holds they are: {standings}", soft_wrap=True)
    for place, end in sorted(document["uncommitted"].items()):
        start = document["through"][place]
        console.print(
            f"[yellow]{place}: not kept, in transactions that are still open: offsets {start:,} to {end:,}[/]"
        )
    for place, ranges in sorted(document["unreadable"].items()):
        for first, until in ranges:
            console.print(
                f"[yellow]{place}: not kept, the batches of offsets {first:,} to {until - 1:,} fail their checksum[/]"
            )
    replayed = document["replayed"]
    if replayed is not None:
        console.print(
            f"{replayed['written']:,} of them written to {replayed['topic']} on {document['target']}, "
            f"{replayed['there_already']:,} were there already"
            + (f", {replayed['not_approved']:,} not approved (--approve)" if replayed["not_approved"] else "")
            + (f", {replayed['not_chosen']:,} of other topics" if replayed["not_chosen"] else "")
        )
    if replayed is not None and replayed["conflicting_since"]:
        console.print(
            f"[yellow]{replayed['conflicting_since']:,} of them were new when they were kept: others have written "
            "their keys since, so they count as conflicting[/]"
        )
