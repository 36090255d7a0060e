"""`drkit salvage`: keep what only one side holds, of one link or of several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.process.interrupts import masked
from drkit.cli.wiring.context import (
    Invocation,
    LinkFailure,
    LinksOption,
    combined_error,
    failure_documents,
    verb,
)
from drkit.cli.wiring.selection import TopicsOption, topic_choices
from drkit.cli.wiring.spark_options import (
    NOTHING_KEPT,
    MasterOption,
    MemoryOption,
    SparkConfOption,
    require_spark,
    spark_progress,
    spark_runtime,
    way_back,
)
from drkit.model.audit.audit_result import AuditRequest, SalvageClass, TopicChoice
from drkit.model.errors import ConfigError, DrkitError, ExitCode, PartlyDone, Refused
from drkit.model.process import working_on
from drkit.model.topology import Link, is_internal
from drkit.model.wording import and_more, counted

if TYPE_CHECKING:
    from drkit.audit.salvage.replay import Replayed
    from drkit.audit.spark.session import SparkRuntime


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("salvage")(salvage_verb)


@verb(unfinished=NOTHING_KEPT, at_once=True)
def salvage_verb(
    run: Invocation,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The folder to make (for several links: a folder each); with --replay-to also an existing salvage.",
        ),
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
    link: LinksOption = None,
) -> None:
    """Keep what only the source of a link holds, as Parquet and for replay.

    With --replay-to the records are also written back, with a header that names each one's origin: those that are new,
    or those that --approve names, of all topics or those that --topic names. Running it again with the same DIR writes
    only missing records. The DIR of an existing salvage says which link it is of; what a failback has kept of late
    writes (RUN-late) goes to the cluster that it went back to.

    Exits 8 where the source itself can't deliver some offsets (unreadable, or behind an open transaction) or doesn't
    list a topic, all of which is named: all others are kept; and where records can't be written back, as a header's
    name is no UTF-8.

    Several links are salvaged one after the other, each into DIR/SOURCE-to-TARGET. If one fails, the others' salvages
    are still complete, and the command exits 7.
    """
    require_spark("`drkit salvage`")
    links = _named_links(run, link)
    if replay_to is not None and (is_internal(replay_to) or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", replay_to)):
        raise ConfigError(f"--replay-to {replay_to!r} is a topic that can't keep records", remedy="Name another")
    if approve and replay_to is None:
        raise ConfigError("--approve needs --replay-to", remedy="Add --replay-to TOPIC, or leave it out")

    from drkit.audit.salvage.salvage_folder import is_salvage, salvaged_link

    folder = out.expanduser().resolve()
    if replay_to is not None and is_salvage(folder):
        links = [salvaged_link(folder, links)]

    def runtime() -> SparkRuntime:
        return spark_runtime(master, driver_memory, spark_conf)

    if len(links) > 1:
        _salvage_each(run, links, folder, topic, runtime, replay_to)
        return
    from drkit.audit.salvage.replay import refuse_mirrored, refuse_missing, replay

    run.unfinished = lambda: f"The salvage in {folder} is complete" if is_salvage(folder) else NOTHING_KEPT
    made = not (replay_to is not None and is_salvage(folder))
    if replay_to is not None:  # before anything is read for it
        refuse_mirrored(replay_to, links[0].id.target, run.config, run.store())
        refuse_missing(replay_to, links[0].id.target, run.config)

    kept = _salvage(run, links[0], folder, topic_choices(topic), runtime) if made else _manifest_document(folder)
    written = None
    if replay_to is not None:
        with working_on(links[0].id), spark_progress(run, f"replay to {replay_to}") as bar:
            try:
                written = replay(
                    folder,
                    replay_to,
                    links[0].id,
                    run.config,
                    run.store(),
                    approved=approve or (SalvageClass.NEW,),
                    topics=topic_choices(topic),
                    progress=bar.step,
                )
            except KeyboardInterrupt:
                raise PartlyDone(
                    f"interrupted while records were written to {replay_to}",
                    meaning=f"Written records stay, and the salvage in {folder} is complete",
                    remedy="Run the same command again: it writes only missing records",
                ) from None
    document = kept | {"replayed": None if written is None else _replay_document(written)}
    run.writer.emit(document, lambda console: _print(console, document, made=made))
    if (made and _keeps_less(document)) or (written is not None and written.unwritable):
        run.exit(ExitCode.UNKNOWN)


def _named_links(run: Invocation, names: Sequence[str] | None) -> list[Link]:
    """The links that `--link` means; a name of the form target->source of a configured one means its way back, whose
    source is that link's target."""
    backwards = [found for name in dict.fromkeys(names or ()) if (found := way_back(run, name)) is not None]
    others = [name for name in names or () if way_back(run, name) is None]
    return [*(run.links_like(others) if others or not backwards else ()), *backwards]


def _salvage_each(
    run: Invocation,
    links: Sequence[Link],
    out: Path,
    topics: list[str] | None,
    runtime: Callable[[], SparkRuntime],
    replay_to: str | None,
) -> None:
    """Several links, one after the other; a failing one doesn't stop the others."""
    from drkit.audit.compare.scope import choices_by_link

    chosen = choices_by_link(links, topic_choices(topics), run.store(), run.config)
    links = [each for each in links if each.id in chosen]
    folders = {each.id: out / str(each.id).replace("->", "-to-") for each in links}
    alone = {link: f"drkit salvage --link '{link}' --out {folder}" for link, folder in folders.items()}
    if replay_to is not None:
        raise ConfigError(
            f"--replay-to works for one link, but {len(links)} are selected",
            meaning="A key that one link's records bring to the topic would count as written since for the next link's",
            remedy="Salvage them without it, then replay one after the other: "
            + "; ".join(f"{each} --replay-to {replay_to}" for each in alone.values()),
        )
    occupied = {link: folder for link, folder in folders.items() if _is_occupied(folder)}
    if occupied:  # before the first link is read, which may take hours
        left = [each for link, each in alone.items() if link not in occupied]
        raise Refused(
            f"{and_more(list(map(str, occupied.values())))} {'is' if len(occupied) == 1 else 'are'} there already",
            meaning="A salvage never overwrites anything, so nothing was read",
            remedy="; ".join(["Give another --out, or salvage the links that are left alone", *left]),
        )
    documents: list[dict[str, Any]] = []
    failures: list[LinkFailure] = []

    def unfinished() -> str:
        whole = [document["path"] for document in documents]
        return f"What is kept in {and_more(whole)} is whole; nothing else is kept" if whole else NOTHING_KEPT

    run.unfinished = unfinished
    for each in links:
        try:
            documents.append(_salvage(run, each, folders[each.id], chosen[each.id], runtime) | {"replayed": None})
        except DrkitError as why:
            if masked() is not None:
                raise  # a signal is why it failed: no further link is begun
            failures.append(LinkFailure(each.id, why, alone[each.id]))
    error = combined_error(failures, len(documents))
    if error is not None and not documents:
        raise error
    run.writer.emit(_sum_document(documents, failures, out), lambda console: _print_all(console, documents))
    if error is not None:
        run.fail(error)
    if any(map(_keeps_less, documents)):
        run.exit(ExitCode.UNKNOWN)


def _keeps_less(document: Mapping[str, Any]) -> bool:
    """Whether the source may hold more than was kept."""
    return any(document[key] for key in ("unreadable", "uncommitted", "incomplete"))


def _is_occupied(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def _sum_document(documents: Sequence[dict[str, Any]], failures: Sequence[LinkFailure], out: Path) -> dict[str, Any]:
    """The document of several links: sums over all, each link's own, and the links that failed."""
    summed = {key: Counter[str]() for key in ("records", "standings")}
    for document in documents:
        for key, counts in summed.items():
            counts.update(document[key])
    return {
        "source": None,
        "target": None,
        "path": str(out),
        "total": sum(document["total"] for document in documents),
        **{key: dict(counts) for key, counts in summed.items()},
        "links": [{"link": f"{each['source']}->{each['target']}", **each} for each in documents],
        "failures": failure_documents(failures),
    }


def _print_all(console: Console, documents: Sequence[dict[str, Any]]) -> None:
    for document in documents:
        _print(console, document, made=True)


def _salvage(
    run: Invocation, link: Link, folder: Path, topics: tuple[TopicChoice, ...], runtime: Callable[[], SparkRuntime]
) -> dict[str, Any]:
    from drkit.audit.salvage.salvage import salvage

    store = run.store()
    request = AuditRequest(link, str(folder), topics)
    with working_on(link.id), spark_progress(run, f"salvage {link.id}") as bar:
        result = salvage(request, store, run.config, runtime(), progress=bar.step, tasks=bar.tasks)
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
        "incomplete": list(result.incomplete),
        "observed_at": result.observed_at,
    }


def _manifest_document(folder: Path) -> dict[str, Any]:
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
        "incomplete": manifest.get("incomplete", []),
        "observed_at": manifest["observed_at"],
    }


def _replay_document(written: Replayed) -> dict[str, Any]:
    return {
        "topic": written.topic,
        "written": written.written,
        "there_already": written.there_already,
        "not_approved": written.not_approved,
        "not_chosen": written.not_chosen,
        "conflicting_since": written.conflicting_since,
        "unwritable": written.unwritable,
        "warnings": list(written.warnings),
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
    for words in document["incomplete"]:
        console.print(f"[yellow]{escape(words)}[/]", soft_wrap=True)
    for place, end in sorted(document["uncommitted"].items()):
        start = document["through"][place]
        console.print(
            f"[yellow]{place}: not kept, in transactions that are still open: offsets {start:,} to {end:,}[/]"
        )
    for place, ranges in sorted(document["unreadable"].items()):
        for first, until in ranges:
            console.print(
                f"[yellow]{place}: not kept, the batches of offsets {first:,} to {until - 1:,} fail their checksum, "
                "or the broker can't find them[/]"
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
    for words in replayed["warnings"] if replayed is not None else ():
        console.print(f"[yellow]{escape(words)}[/]", soft_wrap=True)
    if replayed is not None and replayed["unwritable"]:
        console.print(
            f"[yellow]{replayed['unwritable']:,} of them can't be written: a header's name is no UTF-8; the salvage "
            "holds it as it is (key_bytes)[/]"
        )
