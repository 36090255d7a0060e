"""The findings' Parquet: its columns are those that are documented, and what is written can be read back."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from drkit.audit.findings.findings import pair_findings
from drkit.audit.findings.findings_files import SCHEMA, findings_dataset, write_rows
from drkit.model.audit.audit_result import Finding, FindingKind

DOCS = Path(__file__).parents[4] / "docs"
AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)


def test_the_documented_columns_are_those_that_are_written() -> None:
    text = (DOCS / "audit.md").read_text(encoding="utf-8").partition("## Findings for other programs")[2]
    text = text.partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \|", text)
    assert rows == [(field.name, field.dataType.simpleString()) for field in SCHEMA]


def test_rows_lie_by_link_and_topic_and_are_read_back_whole(tmp_path: Path) -> None:
    common = {"kind": "lost", "link": "a->b", "run": "audit-1", "observed_at": AT, "key": b"\xff", "timestamp_ms": -1}
    rows = [common | {"topic": topic, "partition": 0, "source_offset": n} for n, topic in enumerate(("2024", "o.k"))]
    write_rows(rows, tmp_path / "some")
    write_rows([], tmp_path / "none")

    files = sorted(each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*.parquet"))
    assert files == [
        "none/part-00000.parquet",
        "some/link=a->b/topic=2024/part-00000.parquet",
        "some/link=a->b/topic=o.k/part-00000.parquet",
    ]
    read = findings_dataset(tmp_path / "some").to_table().sort_by("source_offset")
    assert read["topic"].to_pylist() == ["2024", "o.k"]
    assert read["link"].to_pylist() == ["a->b"] * 2
    assert read.schema.field("key").type == pa.binary()
    empty = pq.read_table(tmp_path / "none")
    assert empty.num_rows == 0
    assert set(empty.schema.names) == set(read.schema.names) == set(SCHEMA.fieldNames())


def finding(kind: FindingKind, partition: int, offset: int, digest: str, topic: str = "t") -> Finding:
    missing = kind is not FindingKind.FOREIGN
    return Finding(
        kind, topic, topic, partition, offset if missing else None, None if missing else offset, 0, None, digest
    )


def test_missing_and_foreign_records_of_a_topic_explain_each_other_one_to_one() -> None:
    lost, unseen, foreign, corrupted = (
        FindingKind.LOST,
        FindingKind.UNSEEN,
        FindingKind.FOREIGN,
        FindingKind.CORRUPTED,
    )
    found = [
        finding(lost, 0, 7, "a"),
        finding(lost, 0, 9, "a"),
        finding(lost, 2, 1, "b"),
        finding(corrupted, 0, 3, "c"),
        finding(foreign, 1, 5, "a"),
        finding(foreign, 1, 6, "c"),
        finding(foreign, 3, 0, "u"),
        finding(foreign, 1, 8, "b", topic="another"),
        finding(unseen, 0, 20, "u"),
    ]
    places = [(each.other_partition, each.other_offset) for each in pair_findings(found)]
    nothing = (None, None)
    assert places == [(1, 5), nothing, nothing, nothing, (0, 7), nothing, (0, 20), nothing, (3, 0)]
    assert pair_findings(found[:4]) == found[:4]
