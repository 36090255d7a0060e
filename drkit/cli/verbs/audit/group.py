"""`drkit audit group`: what one group missed or saw twice by a failover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from drkit.cli.process.interrupts import deferred
from drkit.cli.views.audit_report import render_group_report, summary_line, write_report
from drkit.cli.views.audit_view import base64_text, shown_bytes
from drkit.cli.views.layout import Column, FittingTable
from drkit.cli.wiring.audit_journal import keep_group_view, new_run
from drkit.cli.wiring.context import Invocation, LinkOption, verb
from drkit.cli.wiring.selection import TopicsOption, topic_choices
from drkit.cli.wiring.spark_options import (
    NOTHING_KEPT,
    MasterOption,
    MemoryOption,
    SparkConfOption,
    require_spark,
    results_folder,
    spark_progress,
    spark_runtime,
)
from drkit.model.audit.audit_result import TopicChoice
from drkit.model.audit.group_audit import GroupAudit, GroupCounts, GroupMove, GroupPartition, GroupVerdict, GroupWitness
from drkit.model.clock import date_of, iso, now
from drkit.model.errors import ConfigError, ExitCode, Refused
from drkit.model.process import working_on

FullOption = Annotated[
    bool, typer.Option("--full", help="Decode every record, even where whole batches are equal on both sides.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Also write an HTML report. It shows records' contents."),
]
_SHOWN = 12
_CODES = {
    GroupVerdict.CLEAN: ExitCode.OK,
    GroupVerdict.DEVIATED: ExitCode.DEVIATION,
    GroupVerdict.UNKNOWN: ExitCode.UNKNOWN,
}
_STYLES = {GroupVerdict.CLEAN: "bold green", GroupVerdict.DEVIATED: "bold red", GroupVerdict.UNKNOWN: "bold yellow"}


def register_group(app: typer.Typer) -> None:
    """Add `audit group`."""
    app.command("group")(group_view)


@verb(unfinished=NOTHING_KEPT, at_once=True)
def group_view(
    run: Invocation,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    failover: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="The failover (default: the last that moved the group)."),
    ] = None,
    topic: TopicsOption = None,
    full: FullOption = False,
    report: ReportOption = None,
    master: MasterOption = "local[*]",
    driver_memory: MemoryOption = "1g",
    spark_conf: SparkConfOption = None,
    link: LinkOption = None,
) -> None:
    """Say what a failover did to one consumer group: which records it missed, and which it reads twice.

    Exits 0 where nothing was missed, 5 where something was, 8 where something is unknown.
    """
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.run.group_move import find_move

    require_spark("`drkit audit group`")
    choices, began = topic_choices(topic), now()
    run.links(link)  # before the store is opened
    store = run.store()
    with ClusterContext(run.config, store) as estate:
        move = _restrict_to_topics(find_move(estate, group, failover, link), choices)
        moved = estate.link(move.link)
    from drkit.audit.group_view import audit_group

    name = new_run(began)
    with working_on(move.link, run=name), spark_progress(run, f"audit {move.link} for {group}") as bar:
        result = audit_group(
            move,
            moved,
            store,
            run.config,
            lambda: spark_runtime(master, driver_memory, spark_conf),
            out=str(results_folder(began)),
            full=full,
            progress=bar.step,
            tasks=bar.tasks,
        )
    document = group_document(result)
    with deferred():
        kept = keep_group_view(store, name, result, summary_line(result), document, began)
        if kept.run is not None:
            run.unfinished = lambda: f"The audit itself is done: `drkit runs {kept.run}` shows it"
    if kept.problem is not None:
        run.writer.remark(Text(f"`drkit runs` won't list this audit: {kept.problem}", "yellow"), "warning", run=name)
    if report is not None:
        write_report(report, render_group_report(result))
    run.writer.emit(
        document | {"run": kept.run, "report": None if report is None else str(report)},
        lambda console: _print(console, result),
    )
    if result.verdict is not GroupVerdict.CLEAN:
        run.exit(_CODES[result.verdict])


def _restrict_to_topics(move: GroupMove, choices: Sequence[TopicChoice]) -> GroupMove:
    if not choices:
        return move
    known = sorted({place.topic for place in move.places})
    for choice in choices:
        if not any(choice.names(topic) for topic in known):
            raise ConfigError(
                f"--topic {choice.topic}: {move.group} has no position on it",
                remedy=f"Its topics are: {', '.join(known)}",
            )
    places = tuple(
        place for place in move.places if any(choice.covers(place.topic, place.partition) for choice in choices)
    )
    if not places:
        raise Refused(f"{move.group} has no position on these partitions", remedy="Leave the partitions out")
    return GroupMove(move.link, move.group, move.run, move.moved_at, places, move.unreadable)


# -- JSON ------------------------------------------------------------------------------------------


def group_document(result: GroupAudit) -> dict[str, Any]:
    """The document (docs/schemas/audit-group.schema.json), except for `run` and `report`."""
    move = result.move
    return {
        "verdict": result.verdict.value,
        "group": move.group,
        "failover": move.run,
        "failover_at": iso(move.moved_at),
        "source": move.link.source,
        "target": move.link.target,
        "means": result.means.value,
        "observed_at": iso(result.observed_at),
        "seconds": round(result.seconds, 3),
        "totals": _counts(result.counts),
        "missed_at_least": result.missed_at_least,
        "seen_twice_at_least": result.twice_at_least,
        "partitions": [_partition(each) for each in result.partitions],
        "witnesses": [_witness(each) for each in result.witnesses],
        "notes": list(result.notes),
    }


def _partition(each: GroupPartition) -> dict[str, Any]:
    place = each.place
    return {
        "topic": place.topic,
        "target_topic": place.target_topic,
        "partition": place.partition,
        "source_offset": place.source_offset,
        "before": None if place.before is None else place.before.value,
        "source_seen_at": iso(place.source_seen_at),
        "target_offset": place.target_offset,
        "after": None if place.after is None else place.after.value,
        "target_now": place.target_now,
        "verdict": each.counts.verdict.value,
        **_counts(each.counts),
        "notes": list(each.notes),
    }


def _counts(counts: GroupCounts) -> dict[str, Any]:
    return {
        "missed": counts.missed,
        "missed_by": {
            "position": counts.position,
            "lost": counts.lost,
            "unreadable": counts.unreadable,
            "unmirrored": counts.unmirrored,
        },
        "unmirrored_at_least": counts.unmirrored_at_least,
        "seen_twice": counts.twice,
        "seen_twice_by": {"reread": counts.reread, "duplicated": counts.duplicated},
        "corrupted": counts.corrupted,
        "retired": counts.retired,
        "uncompared": counts.uncompared,
    }


def _witness(each: GroupWitness) -> dict[str, Any]:
    return {
        "reason": each.reason.value,
        "topic": each.topic,
        "partition": each.partition,
        "source_offset": each.source_offset,
        "target_offset": each.target_offset,
        "timestamp": iso(date_of(each.stamp)),
        "key": base64_text(each.key),
        "value": base64_text(each.value),
        "problem": each.problem,
    }


# -- for people ------------------------------------------------------------------------------------


def _print(console: Console, result: GroupAudit) -> None:
    move = result.move
    console.print(
        Text.assemble(
            (f"{move.group}  ", "bold"),
            (result.verdict.value, _STYLES[result.verdict]),
            f"  {summary_line(result)}",
            (f"  {move.link}, failover {move.run} at {iso(move.moved_at)}", "dim"),
        ),
        soft_wrap=True,
    )
    console.print(_table(result, console.width))
    for note in result.notes:
        console.print(Text(f"· {note}", "dim"))
    for each in result.partitions:
        for note in each.notes:
            console.print(Text(f"· {each.place.topic}:{each.place.partition} {note}", "dim"))
    for witness in result.witnesses[:_SHOWN]:
        console.print(_witness_line(witness), soft_wrap=True)
    if len(result.witnesses) > _SHOWN:
        console.print(Text(f"  … {len(result.witnesses) - _SHOWN} more witnesses with --output json", "dim"))


def _table(result: GroupAudit, width: int) -> FittingTable:
    """Positions and counts by partition; where the terminal is narrow, without the counts that are 0 throughout."""
    names = [f"{each.place.topic}:{each.place.partition}" for each in result.partitions]
    columns = {
        "before": [Text(_position(each.place.source_offset, each.place.before)) for each in result.partitions],
        "after": [Text(_position(each.place.target_offset, each.place.after)) for each in result.partitions],
        "skipped": [_cell(each.counts.position) for each in result.partitions],
        "lost": [_cell(each.counts.lost) for each in result.partitions],
        "unreadable": [_cell(each.counts.unreadable) for each in result.partitions],
        "unmirrored": [_unmirrored(each.counts) for each in result.partitions],
        "corrupted": [_cell(each.counts.corrupted) for each in result.partitions],
        "read again": [_cell(each.counts.reread, bad="yellow") for each in result.partitions],
        "duplicated": [_cell(each.counts.duplicated) for each in result.partitions],
    }
    if _partition_table(names, columns).least_width > width:
        columns = {name: cells for name, cells in columns.items() if any(cell.plain != "0" for cell in cells)}
    return _partition_table(names, columns)


def _partition_table(names: Sequence[str], columns: Mapping[str, Sequence[Text]]) -> FittingTable:
    """A row for each partition."""
    table = FittingTable([Column("partition", name=True), *(Column(name, right=True) for name in columns)])
    for name, *cells in zip(names, *columns.values(), strict=True):
        table.add(name, *cells)
    return table


def _unmirrored(counts: GroupCounts) -> Text:
    if counts.unmirrored is None and counts.unmirrored_at_least:
        return Text(f"≥ {counts.unmirrored_at_least:,}", "bold red")
    return _cell(counts.unmirrored)


def _position(offset: int | None, by: str | None) -> str:
    return "unknown" if offset is None else f"{offset} {by}"


def _cell(count: int | None, bad: str = "bold red") -> Text:
    return Text("?", "yellow") if count is None else Text(f"{count:,}", bad if count else "dim")


def _witness_line(witness: GroupWitness) -> Text:
    source = "-" if witness.source_offset is None else str(witness.source_offset)
    target = "-" if witness.target_offset is None else str(witness.target_offset)
    held = witness.problem or f"key {shown_bytes(witness.key)} value {shown_bytes(witness.value)}"
    at = f"{witness.topic}:{witness.partition} source {source} target {target}"
    return Text(f"  {witness.reason.value} {at} {held}")
