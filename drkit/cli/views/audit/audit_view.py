"""What `drkit audit` shows people on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from rich.console import Console
from rich.text import Text

from drkit.cli.views.audit.bytes_text import shown_bytes
from drkit.cli.views.audit.digest_view import digest_lines
from drkit.cli.views.fitting_table import Column, FittingTable
from drkit.cli.wiring.audit_journal import Failure, foreign_key_line
from drkit.model.audit.audit_result import AuditResult, Counts, Finding, FindingKind, Verdict

_KINDS = tuple(kind.value for kind in FindingKind)
_STYLES = {Verdict.CLEAN: "bold green", Verdict.INCOMPLETE: "bold yellow", Verdict.DEVIATED: "bold red"}
_SHOWN = 12
_KEY_CHARACTERS = 40


def print_audits(
    console: Console,
    results: Sequence[AuditResult],
    failures: Sequence[Failure],
    run: str | None,
    report: Path | None,
) -> None:
    """Print audits of links: verdict, counts by topic, notes, foreign keys, some findings of each kind, the files.

    Args:
        console: stdout.
        results: an audit of each link.
        failures: the links whose audit failed.
        run: what `drkit runs` lists them as; None where it doesn't.
        report: the HTML page that was written.
    """
    for result in results:
        _print(console, result)
    for link, error in failures:
        console.print(Text.assemble((f"{link}  ", "bold"), ("failed", "bold red"), f"  {error.what}"))
        if error.remedy:
            console.print(Text(f"  do: {error.remedy}", "dim"))
    if run is not None:
        console.print(Text(f"run: {run}", "dim"), soft_wrap=True)
    if report is not None:
        console.print(Text(f"report: {report}", "dim"), soft_wrap=True)


def of_each_kind(findings: Sequence[Finding], most: int) -> list[Finding]:
    """The first findings, at most so many, shared out evenly among the kinds that are there; kind by kind."""
    kinds: dict[FindingKind, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    chosen = [each for turn in zip_longest(*kinds.values()) for each in turn if each is not None][:most]
    order = list(kinds)
    return sorted(chosen, key=lambda finding: order.index(finding.kind))


def _print(console: Console, result: AuditResult) -> None:
    counts = result.counts
    line = Text.assemble((f"{result.link}  ", "bold"), (result.verdict_in_words, _style(result)))
    line.append(f"  {counts.source_records:,} source and {counts.target_records:,} target records")
    line.append(f", {counts.matched:,} matched, {result.seconds:.1f} s")
    console.print(line)
    for each in _counts(result, console.width):
        console.print(each)
    for reason in result.incomplete:
        console.print(Text(f"! not compared: {reason}", "yellow"))
    if result.overdue:
        console.print(Text(f"! {result.overdue:,} unseen records are older than --fail-on allows", "bold red"))
    for note in (*digest_lines(result), *result.notes):
        console.print(Text(f"· {note}", "dim"))
    for foreign_key in result.foreign_keys:
        console.print(Text(foreign_key_line(foreign_key), "yellow" if foreign_key.brought else ""))
    shown = of_each_kind(result.findings, _SHOWN)
    for finding in shown:
        console.print(_finding(finding))
    if result.findings_total > len(shown):
        console.print(Text(f"  … {result.findings_total - len(shown):,} more", "dim"))
    if result.findings_total:
        console.print(Text(f"findings: {result.findings_path}", "dim"), soft_wrap=True)


def _style(result: AuditResult) -> str:
    """Of the verdict; one that isn't about all records isn't shown as if it were."""
    partly = result.verdict is Verdict.CLEAN and result.counts.unseen
    return _STYLES[Verdict.INCOMPLETE if partly else result.verdict]


def _counts(result: AuditResult, width: int) -> Iterator[FittingTable | Text]:
    """Counts by topic; where the terminal is narrow, without the kinds of which there is none, or in words."""
    by_topic: dict[str, list[Counts]] = {}
    for each in result.partitions:
        by_topic.setdefault(each.topic, []).append(each.counts)
    topics = [(topic, Counts.total(parts)) for topic, parts in sorted(by_topic.items())]
    found = [kind for kind in _KINDS if getattr(result.counts, kind)]
    for kinds in (_KINDS, found):
        table = _table(topics, kinds)
        if table.least_width <= width:
            yield table
            return
    yield _table(topics, ())
    for topic, counts in topics:
        words = [f"{count:,} {kind}" for kind in found if (count := getattr(counts, kind))]
        if words:
            yield Text(f"  {topic}: {', '.join(words)}", "yellow" if counts.clean else "bold red")


def _table(topics: Sequence[tuple[str, Counts]], kinds: Sequence[str]) -> FittingTable:
    numbers = [Column(name, right=True) for name in ("source", "matched", *kinds)]
    table = FittingTable([Column("topic", name=True), *numbers])
    for topic, counts in topics:
        cells = [
            Text("0", "dim") if not getattr(counts, kind) else _count(kind, getattr(counts, kind)) for kind in kinds
        ]
        table.add(topic, f"{counts.source_records:,}", f"{counts.matched:,}", *cells)
    return table


def _count(kind: str, count: int) -> Text:
    return Text(f"{count:,}", "yellow" if kind == "unseen" else "bold red")


def _finding(finding: Finding) -> Text:
    source = "-" if finding.source_offset is None else str(finding.source_offset)
    target = "-" if finding.target_offset is None else str(finding.target_offset)
    partition = f"{finding.topic}:{finding.partition}"
    line = Text.assemble(f"  {finding.kind.value:<10} {partition}  source {source}  target {target}")
    if finding.other_partition is not None:
        side = "source" if finding.kind is FindingKind.FOREIGN else "target"
        line.append(f"  found in partition {finding.other_partition} of the {side}, offset {finding.other_offset}")
    if finding.key is not None:
        line.append(f"  key {shown_bytes(finding.key, _KEY_CHARACTERS)}", "dim")
    return line
