"""Findings for other programs: how they lie on the disk, what explains them, and tables of Spark's catalogs."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from drkit.audit.findings.findings_files import SCHEMA, append_findings, check_table
from drkit.audit.run import run_audit
from drkit.audit.spark.session import SparkRuntime, quietly, spark_session, stop_session
from drkit.model.audit.audit_result import AuditRequest, TopicChoice
from drkit.model.errors import Refused
from tests.support.audits.damage import records, seeded

pytestmark = [pytest.mark.lab, pytest.mark.spark]


def places_without(missing: set[int]) -> dict[int, int]:
    """Places of 30 records of which some didn't get there."""
    there = [offset for offset in range(30) if offset not in missing]
    return {offset: place for place, offset in enumerate(there)}


@pytest.fixture
def astray(bench, unique_name):
    """Two topics of two partitions; of the first, two records of partition 0 are in partition 1 on the target."""
    first, second = bench.create(unique_name, partitions=2), bench.create(f"{unique_name}.2", partitions=2)
    made = {partition: records(30, rng=seeded(partition), first=100 * partition) for partition in range(2)}
    for topic in (first, second):
        for partition in range(2):
            bench.produce("primary", topic, partition, made[partition])
    # the mirror says where the others are: nothing is displaced
    places = {0: places_without({7, 20}), 1: {offset: offset + (offset >= 10) for offset in range(30)}}
    bench.remember(first, places)
    bench.remember(second, {0: places_without({0}), 1: {offset: offset for offset in range(30)}})
    bench.produce("dr", first, 0, [*made[0][:7], *made[0][8:20], *made[0][21:]])
    bench.produce("dr", first, 1, [*made[1][:10], made[0][7], *made[1][10:], made[0][20]])
    bench.produce("dr", second, 0, [*made[0][1:]])
    bench.produce("dr", second, 1, made[1])
    return first, second


def test_a_record_in_another_partition_is_said_to_be_there(audit, astray):
    first, second = astray
    for full in (False, True):
        result = audit(first, second, full=full)
        names = ("topic", "kind", "partition", "source_offset", "target_offset", "other_partition", "other_offset")
        found = {tuple(getattr(each, name) for name in names) for each in result.findings}
        assert found == {
            (first, "lost", 0, 7, None, 1, 10),
            (first, "lost", 0, 20, None, 1, 31),
            (first, "foreign", 1, None, 10, 0, 7),
            (first, "foreign", 1, None, 31, 0, 20),
            (second, "lost", 0, 0, None, None, None),
        }
        rows = pq.read_table(result.findings_path).to_pylist()
        assert {(row["partition"], row["other_partition"]) for row in rows if row["topic"] == first} == {(0, 1), (1, 0)}
        assert all(isinstance(row["key"], bytes) for row in rows)
        folders = {each.parent.relative_to(result.findings_path).as_posix() for each in _files(result.findings_path)}
        assert folders == {f"link=primary->dr/topic={topic}" for topic in astray}


def _files(path: str) -> list[Path]:
    return list(Path(path).rglob("*.parquet"))


def test_findings_of_several_audits_are_a_trend_in_a_table(bench, spark, astray, tmp_path: Path):
    catalog = "spark.sql.catalog.found"
    settings = {
        catalog: "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        f"{catalog}.url": f"jdbc:derby:{tmp_path / 'db'};create=true",
        f"{catalog}.driver": "org.apache.derby.jdbc.EmbeddedDriver",
    }
    runtime, table = SparkRuntime(spark.java_home, settings=settings), "found.APP.findings"
    try:
        with pytest.raises(Refused, match="in memory") as refused:
            check_table("findings", runtime)
        assert "spark.sql.catalog.NAME" in (refused.value.remedy or "")
        for run, topics in (("audit-1", astray), ("audit-2", astray[1:])):
            check_table(table, runtime)
            request = AuditRequest(bench.link, str(tmp_path / run), tuple(map(TopicChoice, topics)), run=run)
            result = run_audit(request, bench.store, bench.config, runtime)
            assert append_findings([result.findings_path], table, runtime) == result.findings_total
        session = spark_session(runtime)
        with quietly():  # PySpark leaves its sockets to the garbage collector
            kept = session.table(table)
            assert kept.columns == SCHEMA.fieldNames()
            trend = Counter((row["run"], row["link"], row["kind"]) for row in kept.collect())
            gc.collect()
        assert trend == {
            ("audit-1", "primary->dr", "lost"): 3,
            ("audit-1", "primary->dr", "foreign"): 2,
            ("audit-2", "primary->dr", "lost"): 1,
        }
        with quietly():
            session.sql("create table found.APP.other (run int)")
        with pytest.raises(Refused, match="has no column"):
            check_table("found.APP.other", runtime)
    finally:
        stop_session()
