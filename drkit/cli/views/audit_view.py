"""Audits as people see them on a terminal: findings, what digests proved, earlier audits; keys and values as text."""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drkit.cli.views.layout import Column, FittingTable
from drkit.cli.wiring.audit_journal import Failure, foreign_key_line
from drkit.cli.wiring.context import Invocation
from drkit.model.audit.audit_result import AuditResult, Counts, Finding, FindingKind, Verdict
from drkit.model.clock import iso
from drkit.model.digests import Uncovered
from drkit.model.errors import ConfigError

if TYPE_CHECKING:
    from drkit.observe.audit_history import AuditOfLink


_OF_TEXT = frozenset("\t\n\r")
"""Control characters that text has, too."""


def shown_bytes(value: bytes | None, most: int = 80) -> str:
    """Bytes for people, on one line: text as it is, else hexadecimal; `most` characters of it, then how long it is.

    Numbers, Avro and Protobuf often decode as UTF-8: what holds control characters that no text has is no text.
    """
    if value is None:
        return "null"
    text: str | None = None
    with suppress(UnicodeDecodeError):
        text = value.decode()
    if text is None or any(unicodedata.category(each) == "Cc" and each not in _OF_TEXT for each in text):
        text = "0x" + value[:most].hex()
    elif not text.isprintable():
        text = json.dumps(text, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]} … {len(value):,} bytes"


def base64_text(value: bytes | None) -> str | None:
    """Bytes as JSON has them; None where there are none."""
    return None if value is None else base64.b64encode(value).decode()


_WHY = {
    Uncovered.NO_DIGEST: "the mirror kept no digest of them",
    Uncovered.DIFFERS: "the target doesn't sum up to the mirror's digest",
    Uncovered.BEYOND_END: "a log ends within the range of their digest",
    Uncovered.TARGET_RETIRED: "the target's log begins within the range of their digest",
    Uncovered.COMPACTED: "their topic is compacted",
    Uncovered.MAPPING: "the mapping rows place them elsewhere than their digest",
    Uncovered.SOURCE_DIVERGED: "nothing shows that the source still holds what the mirror read there",
}


def refuse_with_digest(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for options with which digests can't be used."""
    meanings = {
        "--full": "--full decodes every record of both sides, --from-digests reads none that a digest stands for",
        "--from": "A digest covers whole ranges of offsets, whatever their records' timestamps",
        "--until": "A digest covers whole ranges of offsets, whatever their records' timestamps",
    }
    for option, value in given.items():
        if value:
            raise ConfigError(
                f"{option} and --from-digests exclude each other",
                meaning=meanings[option],
                remedy="Leave one of them out; --topic chooses topics",
            )


def digest_document(result: AuditResult) -> dict[str, Any] | None:
    """What was proven by digest and what was compared on both sides; None where digests weren't asked for."""
    coverage = result.coverage
    if coverage is None:
        return None
    return {
        "proven": coverage.proven,
        "ranges": coverage.ranges,
        "compared": compared(result),
        "not_covered": [
            {"reason": each.reason.value, "stretches": each.stretches, "offsets": each.offsets}
            for each in coverage.not_covered
        ],
    }


def compared(result: AuditResult) -> int:
    """The source's records that were read: those within what no digest proved."""
    return result.counts.source_records - (0 if result.coverage is None else result.coverage.proven)


def digest_lines(result: AuditResult) -> list[str]:
    """The same in words."""
    coverage = result.coverage
    if coverage is None:
        return []
    first = (
        f"by digest: {coverage.proven:,} records proven on the target alone ({coverage.ranges:,} ranges), "
        f"{compared(result):,} compared on both sides"
    )
    return [first] + [
        f"compared on both sides: {each.offsets:,} source offsets in {each.stretches:,} "
        f"{'stretch' if each.stretches == 1 else 'stretches'}, since {_WHY[each.reason]}"
        for each in coverage.not_covered
    ]


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
        _print_audit(console, result)
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


def _print_audit(console: Console, result: AuditResult) -> None:
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


_TREND_STYLES = {"clean": "green", "incomplete": "yellow", "deviated": "bold red", "failed": "bold red"}


def emit_trend(run: Invocation, found: Sequence[AuditOfLink]) -> None:
    """Say what these audits found, one after the other (docs/schemas/audit-history.schema.json)."""
    run.writer.emit({"audits": [_audit_document(each) for each in found]}, lambda console: _print_trend(console, found))


def _audit_document(each: AuditOfLink) -> dict[str, Any]:
    return {
        "run": each.run,
        "link": each.link,
        "began": iso(each.began),
        "verdict": each.verdict,
        "totals": each.totals,
        "error": each.detail or None,
    }


def _print_trend(console: Console, found: Sequence[AuditOfLink]) -> None:
    if not found:
        console.print("[dim]no audit is recorded yet; `drkit audit` makes one[/]")
        return
    kinds = [kind for kind in _KINDS if any(each.totals and each.totals.get(kind) for each in found)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("began", "link", "verdict"):
        table.add_column(name, no_wrap=name != "link")
    for name in ("matched", *kinds):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        totals = each.totals
        cells = ["-" if totals is None else f"{totals.get(kind, 0):,}" for kind in ("matched", *kinds)]
        verdict = Text(each.verdict, _TREND_STYLES.get(each.verdict, ""))
        table.add_row(f"{each.began:%Y-%m-%d %H:%M}", each.link, verdict, *cells)
    console.print(table)
    for each in found:
        if each.detail:
            console.print(Text(f"{each.run}: {each.detail}", "dim"), soft_wrap=True)
