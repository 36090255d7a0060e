"""The HTML report of an audit: whole, self-contained, and safe with whatever records hold."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from drkit.audit.findings.findings_files import BUCKETS, over_time
from drkit.audit.findings.witnesses import Content, FindingWitness
from drkit.cli.views.audit_report import render_report
from drkit.cli.views.audit_view import of_each_kind, print_audits, shown_bytes
from drkit.cli.wiring.audit_journal import Failure, keep_run, new_run
from drkit.model.audit.audit_result import AuditResult, Counts, Finding, FindingKind, PartitionAudit, PlacementBasis
from drkit.model.errors import Unreachable
from drkit.model.runs import verify_chain
from drkit.model.topology import LinkId
from drkit.observe.audit_history import past_audits
from drkit.store import open_store

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
STAMP = 1_795_147_380_000
COUNTS = Counts(source_records=1000, target_records=999, matched=998, lost=2, foreign=1)
LOST = Finding(FindingKind.LOST, "a<b>&c", "a<b>&c", 0, 17, None, STAMP, b"<script>", "0" * 32)
FOREIGN = Finding(FindingKind.FOREIGN, "a<b>&c", "a<b>&c", 0, None, 30, STAMP, b"k", "1" * 32)

GONE = Unreachable("cluster x does not answer")


def result(**changed) -> AuditResult:
    part = PartitionAudit("a<b>&c", "a<b>&c", 0, PlacementBasis.MAPPING, COUNTS, 0, 1000, 0, 999, 1000, None)
    fields = {
        "link": LinkId("primary", "dr"),
        "counts": COUNTS,
        "partitions": (part,),
        "findings": (LOST, FOREIGN),
        "findings_total": 2,
        "findings_path": "/x/findings.parquet",
        "basis": PlacementBasis.MAPPING,
        "observed_at": AT,
        "seconds": 1.5,
    }
    return AuditResult(**fields | changed)


def parquet(path: Path, rows: list[tuple[str, str, int]]) -> Path:
    kinds, topics, stamps = zip(*rows, strict=True) if rows else ((), (), ())
    path.mkdir()
    columns = [pa.array(kinds, pa.string()), pa.array(topics, pa.string()), pa.array(stamps, pa.int64())]
    pq.write_table(pa.table(columns, names=["kind", "topic", "timestamp_ms"]), path / "part.parquet")
    return path


class Page(HTMLParser):
    """Tags as they open and close, and the text between."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href"}]
        if tag not in {"meta", "br", "line", "rect"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"line", "rect"}:
            assert self.open.pop() == tag


def test_the_page_is_whole_self_contained_and_shows_what_records_hold(tmp_path: Path):
    second = 1_000
    times = over_time(
        [parquet(tmp_path / "one", [("lost", "a<b>&c", 0), ("lost", "a<b>&c", 60 * second), ("foreign", "t", second)])]
    )
    value = b'{"note": "</pre><img src=x>"}'
    shown = [
        FindingWitness(LOST, Content(1_700_000_000_000, b"<script>", value, [("h", None)]), None),
        FindingWitness(FOREIGN, None, Content(-1, b"\xff\x00", b"", [])),
        FindingWitness(FOREIGN, None, "no longer there"),
    ]

    text = render_report([result(), result(findings=(), findings_total=0)], [times, None], [shown, []], "audit-1")

    page = Page(text)
    assert page.open == []
    assert not page.addresses
    assert page.seen.isdisjoint({"script", "img", "link", "iframe"})
    assert "svg" in page.seen
    assert "url(" not in text
    assert "&lt;/pre&gt;&lt;img src=x&gt;" in text
    assert "0xff00" in text
    assert "<title>drkit audit-1: primary-&gt;dr, primary-&gt;dr</title>" in text
    assert text.count('<p class="dim">Observed ') == 2
    assert "no longer there" in text
    assert len(re.findall(r"<title>lost: 1</title>", text)) == 2  # one in each bucket


def test_topics_with_findings_come_first_and_what_is_no_deviation_is_said():
    counts = {"a": Counts(3, 3, 3), "z": Counts(3, 2, 2, lost=1, source_retired=4_000)}
    parts = tuple(
        PartitionAudit(topic, topic, 0, PlacementBasis.MAPPING, each, 0, 3, 0, 3, 3, None)
        for topic, each in counts.items()
    )
    text = render_report([result(partitions=parts, counts=Counts.total(counts.values()))], [None], [[]], "audit-1")

    Page(text)
    assert text.index('<td class="topic">z') < text.index('<td class="topic">a')
    assert "4,000 on the target only" in text
    assert text.count("zero") > 10  # cells that a phone leaves out


def test_findings_are_counted_by_their_time(tmp_path: Path):
    stamps = [number * 1_000 for number in range(BUCKETS)]
    one = parquet(tmp_path / "one", [("lost", "t", stamp) for stamp in stamps])
    two = parquet(tmp_path / "two", [("foreign", "u", 0)] * 5)

    found = over_time([one, two])

    assert found is not None
    assert (found.first.timestamp(), found.last.timestamp()) == (0, BUCKETS - 1)
    assert sum(found.counts["t", "lost"]) == BUCKETS
    assert found.counts["u", "foreign"] == [5] + [0] * (BUCKETS - 1)
    assert over_time([parquet(tmp_path / "none", [])]) is None


def test_odd_stamps_do_not_hide_when_the_rest_was(tmp_path: Path):
    hour, now = 3600 * 1_000, 1_800_000_000 * 1_000
    rows = [("lost", "t", now + number * hour // 60) for number in range(60)]

    found = over_time([parquet(tmp_path / "one", [*rows, ("foreign", "t", 0), ("foreign", "t", 2 * now)])])

    assert found is not None
    assert (found.earlier, found.later) == (1, 1)
    assert (found.first.timestamp(), found.last.timestamp()) == (now / 1e3, now / 1e3 + 59 * 60)
    assert sum(found.counts["t", "lost"]) == 60
    text = render_report([result()], [found], [[]], "audit-1")
    assert "<span>1 earlier</span><span>1 later</span>" in text


def test_each_kind_has_its_witnesses():
    findings = [LOST] * 50 + [FOREIGN] * 2

    assert [each.kind.value for each in of_each_kind(findings, 5)] == ["lost"] * 3 + ["foreign"] * 2
    assert of_each_kind([], 5) == []


@pytest.mark.parametrize("width", [80, 140])
def test_on_a_terminal_kinds_keep_their_names_and_keys_are_text(width: int):
    out = StringIO()
    print_audits(Console(file=out, width=width), [result()], [], "audit-1", Path("/x/report.html"))
    said = out.getvalue()
    assert ("corrupted" in said) is (width == 140)
    assert "source  matched  lost" in said
    assert "key <script>" in said
    assert said.splitlines()[-2:] == ["run: audit-1", "report: /x/report.html"]


def test_an_audit_is_a_run():
    store = open_store("sqlite:///:memory:")

    matching = Counts(source_records=5, target_records=5, matched=5)
    kept = keep_run(store, new_run(AT), [result()], [], AT)
    clean = keep_run(store, new_run(AT), [result(counts=matching)], [], AT)
    partly = keep_run(store, new_run(AT), [result(counts=matching)], [Failure(LinkId("x", "dr"), GONE)], AT)
    failed = keep_run(store, new_run(AT), [], [Failure(LinkId("x", "dr"), GONE)], AT)

    listed = {summary.run: summary for summary in store.runs()}
    assert listed[kept.run or ""].state == "deviated"
    assert listed[kept.run or ""].detail == "primary->dr: 2 lost, 1 foreign"
    assert (listed[clean.run or ""].kind, listed[clean.run or ""].state) == ("audit", "clean")
    assert [listed[each.run or ""].state for each in (partly, failed)] == ["incomplete", "failed"]
    assert listed[failed.run or ""].detail == "x->dr failed: cluster x does not answer"
    assert [each.verdict for each in past_audits(store)].count("failed") == 2
    assert verify_chain(store.entries(kept.run or "")) is None
    assert "findings.parquet" in store.entries(kept.run or "")[0].payload
    store.close()


def test_a_clean_verdict_says_how_many_records_it_is_not_about():
    counts = Counts(source_records=1000, target_records=988, matched=988, unseen=12)
    part = PartitionAudit("t", "t", 0, PlacementBasis.MAPPING, counts, 0, 1000, 0, 988, 988, None)
    behind = result(counts=counts, partitions=(part,), findings=(), findings_total=0)
    words = "clean as far as it was mirrored, 12 records unseen"
    out = StringIO()
    print_audits(Console(file=out, width=160), [behind], [], None, None)
    assert f"primary->dr  {words}  1,000 source" in out.getvalue()
    assert behind.verdict_in_words == words
    assert result().verdict_in_words == "deviated"
    all_there = Counts(source_records=3, target_records=3, matched=3)
    assert result(counts=all_there).verdict_in_words == "clean"
    assert result(counts=counts, incomplete=("a topic",)).verdict_in_words == "incomplete"


@pytest.mark.parametrize("width", [80, 100, 160])
def test_counts_fit_the_terminal_and_none_that_is_found_is_left_out(width):
    names = ("orders", "payments.settled-by-region.and-by-currency.v2")
    kinds = dict.fromkeys(("lost", "unreadable", "corrupted", "duplicated", "foreign", "reordered"), 7)
    counts = {name: Counts(source_records=1_234_567, matched=1_234_000, **kinds) for name in names}
    parts = tuple(
        PartitionAudit(name, name, 0, PlacementBasis.MAPPING, each, 0, 9, 0, 9, 9, None)
        for name, each in counts.items()
    )
    out = StringIO()
    found = result(partitions=parts, counts=Counts.total(counts.values()), findings=(), findings_total=0)
    gone = Unreachable("cluster x does not answer", remedy="Start it")

    print_audits(Console(file=out, width=width), [found], [Failure(LinkId("x", "y"), gone)], None, None)

    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.lstrip().startswith("orders") and "1,234,000" in line for line in lines)
    assert all(kind in out.getvalue() for kind in kinds)
    assert ("unseen" in out.getvalue()) == (width == 160)
    assert "do: Start it" in out.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (b"", ""),
        (b"order-7", "order-7"),
        ("Zürich".encode(), "Zürich"),
        (b"two\nlines", '"two\\nlines"'),
        ((7).to_bytes(8, "big"), "0x0000000000000007"),  # decodes as UTF-8, as most small numbers do
        (b"\x00\x00\x00\x00\x05\x0eorder-7", "0x00000000050e6f726465722d37"),  # Avro of a schema registry
        (b"\xff", "0xff"),
        (("ü" * 60).encode(), f"{'ü' * 40} … 120 bytes"),
    ],
)
def test_bytes_are_shown_as_text_where_they_are_text_and_else_as_hexadecimal(value: bytes | None, shown: str):
    assert shown_bytes(value, 40) == shown
