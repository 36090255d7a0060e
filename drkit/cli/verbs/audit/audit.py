"""`drkit audit`: the Spark audit of both sides of a link, record by record; `drkit audit history`: earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from drkit.audit.findings.findings_path import discard_findings, findings_path
from drkit.cli.output import LogFormat, LogFormatOption, OutputMode
from drkit.cli.process.interrupts import deferred
from drkit.cli.verbs.audit.group import FullOption, ReportOption, register_group
from drkit.cli.verbs.audit.watch import register_watch
from drkit.cli.views.audit_view import (
    base64_text,
    digest_document,
    emit_trend,
    of_each_kind,
    print_audits,
    refuse_with_digest,
)
from drkit.cli.wiring.audit_journal import Failure, KeptRun, keep_run, new_run, overall
from drkit.cli.wiring.context import ConfigOption, Invocation, LinkOption, OutputOption, VerboseOption, command, verb
from drkit.cli.wiring.selection import TimezoneOption, TopicsOption, moment, topic_choices
from drkit.cli.wiring.spark_options import (
    NOTHING_KEPT,
    MasterOption,
    MemoryOption,
    SparkConfOption,
    flowing_links,
    require_spark,
    results_folder,
    spark_progress,
    spark_runtime,
)
from drkit.model.audit.audit_result import (
    ANY_AGE,
    AuditRequest,
    AuditResult,
    Counts,
    Finding,
    FindingKind,
    ForeignKeyAudit,
    Verdict,
)
from drkit.model.clock import iso, now
from drkit.model.errors import ConfigError, DrkitError, ExitCode
from drkit.model.process import working_on

if TYPE_CHECKING:
    from drkit.audit.spark.session import SparkRuntime
    from drkit.config import Config
    from drkit.failover.snapshot.point_in_time import Moment
    from drkit.store.api import Store


_WITNESSES = 25
MOST_FINDINGS = 1_000
"""How many findings the document of several links holds itself, as that of one does."""


def register(app: typer.Typer) -> None:
    """Add the verb and its subcommands."""
    verbs = typer.Typer(rich_markup_mode="rich")
    verbs.callback(invoke_without_command=True)(audit)
    register_group(verbs)
    register_watch(verbs)
    register_history(verbs)
    app.add_typer(verbs, name="audit")


def audit(
    ctx: typer.Context,
    topic: TopicsOption = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only records with a timestamp from this time on.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only records with a timestamp before this time.")
    ] = None,
    timezone: TimezoneOption = None,
    full: FullOption = False,
    from_digests: Annotated[
        bool,
        typer.Option(
            "--from-digests",
            help="Read only the target where the mirror kept digests of what it read, as far as the source still holds "
            "the batches that end them.",
        ),
    ] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="unseen[:AGE]",
            help="Count unseen records (older than AGE, as in 30s, 5m, 2h) as a deviation, too.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the findings go (default: the state directory).")
    ] = None,
    findings_table: Annotated[
        str | None,
        typer.Option(
            "--findings-table",
            metavar="NAME",
            help="Also append the findings to this table of a Spark catalog (created if missing).",
        ),
    ] = None,
    report: ReportOption = None,
    master: MasterOption = "local[*]",
    driver_memory: MemoryOption = "1g",
    spark_conf: SparkConfOption = None,
    link: LinkOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    log_format: LogFormatOption = LogFormat.TEXT,
    verbose: VerboseOption = False,
) -> None:
    """Find every record lost, duplicated, corrupted, reordered or foreign between both clusters.

    Exits 0 where the verdict is clean (records that the mirror had not reached, `unseen`, are no deviation unless
    --fail-on says so), 5 where records deviate, 8 where something could not be compared.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_before(ctx)
        return
    with command(config, output, verbose, log_format, unfinished=NOTHING_KEPT, at_once=True) as run:
        require_spark("`drkit audit`")
        from drkit.audit.compare.scope import choices_by_link

        began, choices = now(), topic_choices(topic)
        unseen_since = overdue_since(fail_on, began)
        if from_digests:
            refuse_with_digest({"--full": full, "--from": since, "--until": until})
        start = moment(since, timezone, option="--from")
        end = moment(until, timezone, option="--until")
        _refuse_empty(start, end)
        store, missing = run.store_if_any()
        if missing is not None:
            run.writer.log.print(Text(str(missing)))
        flowing = flowing_links(run, link)
        chosen = choices_by_link(flowing, choices, store, run.config)
        links = [each for each in flowing if each.id in chosen]
        folder = out or results_folder(began)
        runtime = spark_runtime(master, driver_memory, spark_conf)
        _check_table(findings_table, runtime)
        name = new_run(began)
        requests = [
            AuditRequest(
                link=each,
                out=str(folder if len(links) == 1 else folder / str(each.id).replace("->", "-to-")),
                topics=chosen[each.id],
                since=None if start is None else start.instant,
                until=None if end is None else end.instant,
                full=full,
                from_digests=from_digests,
                unseen_since=unseen_since,
                run=name,
            )
            for each in links
        ]
        for request in requests:
            findings_path(request)  # what is there once they are audited is then theirs
        with _discard_unless_kept(requests, folder) as kept_event:
            results, failures = _audit_links(run, requests, store, runtime)
            with deferred():
                kept = KeptRun(None, missing.what) if missing else keep_run(store, name, results, failures, began)
                run.unfinished = partial(_interrupt_meaning, results, name, findings_table)
                kept_event.set()
        if kept.problem is not None:
            run.writer.remark(
                Text(f"`drkit runs` won't list this audit: {kept.problem}", "yellow"), "warning", run=name
            )
        if failures and not results:
            raise failures[0].error
        if findings_table is not None:
            _append(results, findings_table, runtime, name)
        if report is not None:
            _write_report(report, results, run.config, name)
        run.writer.emit(
            audit_document(results, folder, failures)
            | {
                "run": kept.run,
                "report": None if report is None else str(report),
                "findings_table": findings_table,
            },
            lambda console: print_audits(console, results, failures, kept.run, report),
        )
        run.exit(_CODES[overall(results, failures)])


def _refuse_empty(start: Moment | None, end: Moment | None) -> None:
    """Raise `ConfigError` for a time window that can't contain a record: its audit would always be clean."""
    if start is not None and end is not None and start.instant >= end.instant:
        raise ConfigError(
            f"--from {iso(start.instant)} is not before --until {iso(end.instant)}",
            meaning="No timestamp is in such a window, so nothing would be compared",
            remedy="Give an earlier --from or a later --until",
        )


@contextmanager
def _discard_unless_kept(requests: Sequence[AuditRequest], folder: Path) -> Iterator[Event]:
    """An interrupt in the block, before the event is set, leaves no findings: `drkit runs` would not list them."""
    kept_event = Event()
    try:
        yield kept_event
    except KeyboardInterrupt:
        if not kept_event.is_set():
            for request in requests:
                discard_findings(request)
            with suppress(OSError):  # somebody else's files are in it, or it is gone with the only link's
                folder.rmdir()
        raise


def _interrupt_meaning(results: Sequence[AuditResult], name: str, table: str | None) -> str:
    """What an interrupt means once the audit is kept."""
    appended = "" if table is None else f"; whether they were appended to {table} isn't known"
    paths = ", ".join(result.findings_path for result in results)
    return f"The audit itself is done (run {name}), and its findings are kept{appended}: {paths}"


def _audit_links(
    run: Invocation, requests: Sequence[AuditRequest], store: Store, runtime: SparkRuntime
) -> tuple[list[AuditResult], list[Failure]]:
    """Audit the links, one after the other; one that fails stands in no other's way."""
    from drkit.audit.spark.session import session_starting

    results: list[AuditResult] = []
    failures: list[Failure] = []
    with session_starting(runtime, brief=True):
        from drkit.audit.run import run_audit

        for request in requests:
            with working_on(request.link.id, run=request.run), spark_progress(run, f"audit {request.link.id}") as bar:
                try:
                    result = run_audit(request, store, run.config, runtime, progress=bar.step, tasks=bar.tasks)
                except DrkitError as error:
                    failures.append(Failure(request.link.id, error))
                else:
                    results.append(result)
    return results, failures


def _refuse_before(ctx: typer.Context) -> None:
    """End with a usage error for an option before the subcommand: it would belong to the comparison."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name) if parameter.name else None
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"{parameter.opts[0]} comes before `{ctx.invoked_subcommand}`: put the options after it", ctx=ctx
            )


_CODES = {
    Verdict.CLEAN: ExitCode.OK,
    Verdict.DEVIATED: ExitCode.DEVIATION,
    Verdict.INCOMPLETE: ExitCode.UNKNOWN,
}


def overdue_since(option: str | None, began: datetime) -> datetime | None:
    """The instant before which unseen records count, by `--fail-on`; None without it.

    Raises:
        ConfigError: it is neither `unseen` nor `unseen:AGE`.
    """
    if option is None:
        return None
    what, colon, age = option.partition(":")
    seconds = _seconds(age) if colon else 0.0
    if what != "unseen" or seconds is None:
        raise ConfigError(
            f"--fail-on {option}: expected unseen or unseen:AGE",
            remedy="For example --fail-on unseen, or unseen:5m for records with timestamps older than 5 minutes",
        )
    return began - timedelta(seconds=seconds) if seconds else ANY_AGE


def _seconds(age: str) -> float | None:
    found = _AGE.fullmatch(age)
    seconds = None if found is None else float(found[1]) * _UNITS[found[2]]
    return seconds if seconds is None or seconds <= _LONGEST_AGE else None


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_AGE = 36_500 * 86_400.0
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd]?)")


def _check_table(table: str | None, runtime: SparkRuntime) -> None:
    if table is not None:
        from drkit.audit.findings.findings_files import check_table

        check_table(table, runtime)


def _append(results: Sequence[AuditResult], table: str, runtime: SparkRuntime, run: str) -> None:
    from drkit.audit.findings.findings_files import append_findings

    paths = [result.findings_path for result in results]
    try:
        append_findings(paths, table, runtime)
    except DrkitError as error:
        raise DrkitError(
            f"the findings can't be appended to {table}: {error.what}",
            meaning=f"The audit itself is done (run {run}), and its findings are kept: {', '.join(paths)}",
            remedy=error.remedy,
        ) from error


def _write_report(path: Path, results: Sequence[AuditResult], config: Config, run: str) -> None:
    from drkit.audit.findings.findings_files import over_time
    from drkit.audit.findings.witnesses import witnesses
    from drkit.cli.views.audit_report import render_report, write_report

    times = [over_time([Path(result.findings_path)]) for result in results]
    shown = [witnesses(of_each_kind(result.findings, _WITNESSES), result.link, config) for result in results]
    write_report(path, render_report(results, times, shown, run))


def audit_document(results: Sequence[AuditResult], folder: Path, failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """`drkit audit --output json`: the contract's document of one link.

    Of several links: the same keys over all of them (`source` and `target` are null, each topic and
    finding names its link), and each link's own document under `links`; links whose audit failed under `failures`.
    """
    documents = [_document(result) for result in results]
    if len(documents) == 1 and not failures:
        return documents[0] | {"failures": []}
    gravest_first = [each.value for each in FindingKind]
    findings = sorted(
        (finding for document in documents for finding in document["findings"]),
        key=lambda finding: gravest_first.index(finding["kind"]),
    )[:MOST_FINDINGS]
    total = sum(result.findings_total for result in results)
    return {
        "verdict": overall(results, failures).value,
        "source": None,
        "target": None,
        "totals": _counts(Counts.total(result.counts for result in results)),
        "topics": [topic for document in documents for topic in document["topics"]],
        "findings": findings,
        "findings_total": total,
        "findings_path": str(folder.resolve()),
        "findings_truncated": len(findings) < total,
        "incomplete": [reason for result in results for reason in result.incomplete],
        "links": documents,
        "failures": [
            {"link": str(link), "what": error.what, "meaning": error.meaning, "remedy": error.remedy}
            for link, error in failures
        ],
    }


def _document(result: AuditResult) -> dict[str, Any]:
    return {
        "verdict": result.verdict.value,
        "source": result.link.source,
        "target": result.link.target,
        "basis": result.basis.value,
        "observed_at": result.observed_at,
        "seconds": round(result.seconds, 3),
        "from": result.since,
        "until": result.until,
        "totals": _counts(result.counts),
        "topics": [
            {
                "link": str(result.link),
                "topic": each.topic,
                "target_topic": each.target_topic,
                "partition": each.partition,
                "basis": each.basis.value,
                **_counts(each.counts),
                "source_start": each.source_start,
                "source_end": each.source_end,
                "target_start": each.target_start,
                "target_end": each.target_end,
                "mirrored_through": each.mirrored_through,
                "target_bound": each.target_bound,
            }
            for each in result.partitions
        ],
        "findings": [{"link": str(result.link), **_finding(each)} for each in result.findings],
        "findings_total": result.findings_total,
        "findings_path": result.findings_path,
        "findings_truncated": result.findings_truncated,
        "notes": list(result.notes),
        "incomplete": list(result.incomplete),
        "overdue": result.overdue,
        "foreign_keys": [_foreign_key(each) for each in result.foreign_keys],
        "digest": digest_document(result),
    }


def _foreign_key(foreign_key: ForeignKeyAudit) -> dict[str, Any]:
    return {
        "child": foreign_key.child,
        "parent": foreign_key.parent,
        "key": foreign_key.key,
        "parent_key": foreign_key.parent_key,
        "children": foreign_key.children,
        "keyless": foreign_key.keyless,
        "orphans": foreign_key.orphans,
        "orphans_on_source": foreign_key.orphans_on_source,
        "brought": foreign_key.brought,
        "first": [
            {
                "partition": each.partition,
                "target_offset": each.offset,
                "parent": each.key,
                "timestamp": each.timestamp,
                "on_source": each.on_source,
            }
            for each in foreign_key.first
        ],
        "unread": list(foreign_key.unread),
    }


def _counts(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in Counts.__slots__}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "topic": finding.topic,
        "target_topic": finding.target_topic,
        "partition": finding.partition,
        "source_offset": finding.source_offset,
        "target_offset": finding.target_offset,
        "timestamp": finding.timestamp,
        "timestamp_ms": finding.timestamp_ms,
        "key": base64_text(finding.key),
        "digest": finding.digest,
        "target_timestamp": finding.target_timestamp,
        "target_timestamp_ms": finding.target_timestamp_ms,
        "target_key": base64_text(finding.target_key),
        "target_digest": finding.target_digest,
        "other_partition": finding.other_partition,
        "other_offset": finding.other_offset,
    }


def register_history(app: typer.Typer) -> None:
    """Add `audit history`."""
    app.command("history")(history)


@verb()
def history(
    run: Invocation,
    last: Annotated[int, typer.Option("--last", min=1, metavar="N", help="Only the last N.")] = 50,
    link: LinkOption = None,
) -> None:
    """List earlier audits with their results, oldest first: a trend."""
    from drkit.observe.audit_history import past_audits

    if link is not None:
        run.links(link)
    found = [each for each in past_audits(run.store()) if link is None or each.link == link]
    emit_trend(run, found[-last:])
