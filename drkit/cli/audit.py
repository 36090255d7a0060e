"""`drkit audit`: the Spark audit of both sides of a link, record by record."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from drkit.cli.audit_continuous import (
    ContinuousOptions,
    refuse_with_continuous,
    refuse_without_continuous,
    run_continuous,
)
from drkit.cli.audit_digest import digest_document, refuse_with_digest
from drkit.cli.audit_group import refuse_window, run_group_view
from drkit.cli.audit_run import keep_run
from drkit.cli.audit_view import of_each_kind, print_audits
from drkit.cli.context import ConfigOption, LinkOption, OutputOption, VerboseOption, command
from drkit.cli.output import OutputMode
from drkit.cli.spark import (
    MasterOption,
    MemoryOption,
    SparkConfOption,
    TopicsOption,
    flowing_links,
    results_folder,
    spark_runtime,
    told,
    topic_choices,
)
from drkit.cli.when import TimezoneOption, moment
from drkit.config import Config
from drkit.model.audit import AuditRequest, AuditResult, Counts, Finding, RelationAudit, Verdict
from drkit.model.clock import now
from drkit.model.errors import ConfigError, DrkitError, ExitCode

_WITNESSES = 25
MOST_FINDINGS = 1_000
"""How many findings the document of several links holds itself, as that of one does."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("audit")(audit)


def audit(
    topic: TopicsOption = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only records stamped at or after this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only records stamped before this time.")
    ] = None,
    timezone: TimezoneOption = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="G", help="One group's view: what it missed or sees twice by a failover."),
    ] = None,
    failover: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="With --group: by this failover (default: the last that moved it)."),
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Run beside the mirror: reconcile what it mirrors, tell of a loss.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="With --continuous: how often to look.")
    ] = 10.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="With --continuous: where progress is kept."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="With --continuous: serve Prometheus metrics.")
    ] = None,
    from_now: Annotated[
        bool, typer.Option("--from-now", help="With --continuous: leave out what is mirrored already.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Decode every record, also where whole batches are equal on both sides.")
    ] = False,
    since_digest: Annotated[
        bool,
        typer.Option(
            "--since-digest",
            help="Read the target only, where the mirror kept digests of what it read. Later changes to the source "
            "go unseen there.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the findings go (default: the state directory).")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write an HTML report, too. It shows records' contents."),
    ] = None,
    master: MasterOption = "local[*]",
    driver_memory: MemoryOption = "1g",
    spark_conf: SparkConfOption = None,
    link: LinkOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Find every record lost, duplicated, corrupted, reordered or foreign between both clusters.

    Exits 0 where the verdict is clean (records that the mirror had not reached, `unseen`, are no
    deviation), 5 where it is not.
    """
    with command(config, output, verbose) as run:
        began, choices = now(), topic_choices(topic)
        if since_digest:
            options = {"--full": full, "--from": since, "--until": until}
            refuse_with_digest(options | {"--group": group, "--continuous": continuous})
        start = moment(since, timezone, option="--from")
        end = moment(until, timezone, option="--until")
        if continuous:
            refuse_with_continuous(
                {"--group": group, "--from": since, "--until": until, "--out": out, "--report": report, "--full": full}
            )
            store = run.store()
            how = ContinuousOptions(interval, checkpoint, metrics, from_now)
            runtime = spark_runtime(master, driver_memory, spark_conf)
            run_continuous(run, flowing_links(run, link, store), choices, how, runtime)
            return
        refuse_without_continuous({"--checkpoint": checkpoint, "--metrics": metrics, "--from-now": from_now})
        if group is not None:
            refuse_window(since, until, out)
            run_group_view(
                run,
                group,
                failover,
                choices,
                link,
                lambda: spark_runtime(master, driver_memory, spark_conf),
                full=full,
                report=report,
                began=began,
            )
            return
        if failover is not None:
            raise ConfigError("--run names a failover for --group", remedy="Add --group G, or leave --run out")
        store = run.store(create=False)
        links = flowing_links(run, link, store)
        folder = out or results_folder("audits", began)
        from drkit.audit.run import run_audit  # noqa: PLC0415 - PySpark loads only where it is used

        runtime = spark_runtime(master, driver_memory, spark_conf)
        results = []
        for each in links:
            request = AuditRequest(
                link=each,
                out=str(folder if len(links) == 1 else folder / str(each.id).replace("->", "-to-")),
                topics=choices,
                since=None if start is None else start.instant,
                until=None if end is None else end.instant,
                full=full,
                since_digest=since_digest,
            )
            with told(run, f"audit {each.id}") as telling:
                results.append(
                    run_audit(request, store, run.config, runtime, progress=telling.step, tasks=telling.tasks)
                )
        kept = keep_run(store, results, began)
        if kept.problem is not None:
            run.writer.log.print(Text(f"`drkit runs` won't list this audit: {kept.problem}", "yellow"))
        if report is not None:
            _write_report(report, results, run.config)
        run.writer.emit(
            audit_document(results, folder) | {"run": kept.run, "report": None if report is None else str(report)},
            lambda console: print_audits(console, results, kept.run, report),
        )
        if any(result.verdict is Verdict.DEVIATED for result in results):
            run.exit(ExitCode.DEVIATION)


def _write_report(path: Path, results: Sequence[AuditResult], config: Config) -> None:
    from drkit.audit.over_time import over_time  # noqa: PLC0415 - Arrow loads only where it is used
    from drkit.audit.witnesses import witnesses  # noqa: PLC0415 - as above
    from drkit.cli.audit_report import render_report  # noqa: PLC0415 - as above

    times = [over_time([Path(result.findings_path)]) for result in results]
    shown = [witnesses(of_each_kind(result.findings, _WITNESSES), result.link, config) for result in results]
    try:
        path.write_text(render_report(results, times, shown), encoding="utf-8")
    except OSError as error:
        raise DrkitError(
            f"the report can't be written to {path}: {error.strerror or error}",
            meaning="The audit itself is done, and its findings are kept",
            remedy="Give another --report",
        ) from error


def audit_document(results: Sequence[AuditResult], folder: Path) -> dict[str, Any]:
    """`drkit audit --output json`: the contract's document of one link.

    Of several links: the same keys over all of them (`source` and `target` are null, each topic and
    finding names its link), and each link's own document under `links`.
    """
    documents = [_document(result) for result in results]
    if len(documents) == 1:
        return documents[0]
    findings = [finding for document in documents for finding in document["findings"]][:MOST_FINDINGS]
    total = sum(result.findings_total for result in results)
    return {
        "verdict": _worst(results).value,
        "source": None,
        "target": None,
        "totals": _counts(Counts.total(result.counts for result in results)),
        "topics": [topic for document in documents for topic in document["topics"]],
        "findings": findings,
        "findings_total": total,
        "findings_path": str(folder.resolve()),
        "findings_truncated": len(findings) < total,
        "links": documents,
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
        "relations": [_relation(each) for each in result.relations],
        "digest": digest_document(result),
    }


def _relation(relation: RelationAudit) -> dict[str, Any]:
    return {
        "child": relation.child,
        "parent": relation.parent,
        "key": relation.key,
        "parent_key": relation.parent_key,
        "children": relation.children,
        "keyless": relation.keyless,
        "orphans": relation.orphans,
        "orphans_on_source": relation.orphans_on_source,
        "brought": relation.brought,
        "first": [
            {
                "partition": each.partition,
                "target_offset": each.offset,
                "parent": each.key,
                "timestamp": each.timestamp,
                "on_source": each.on_source,
            }
            for each in relation.first
        ],
    }


def _worst(results: Sequence[AuditResult]) -> Verdict:
    deviated = any(result.verdict is Verdict.DEVIATED for result in results)
    return Verdict.DEVIATED if deviated else Verdict.CLEAN


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
        "key": _base64(finding.key),
        "digest": finding.digest,
        "target_timestamp": finding.target_timestamp,
        "target_key": _base64(finding.target_key),
        "target_digest": finding.target_digest,
    }


def _base64(key: bytes | None) -> str | None:
    return None if key is None else base64.b64encode(key).decode()
