"""The findings at rest: columns, their Parquet, its counts over time, and a table of one of Spark's catalogs.

    findings.parquet/link=primary->dr/topic=orders/part-….parquet

`link` and `topic` are in the folders' names, as Hive, Spark and Arrow have partitions. An audit without findings writes
a file of no rows instead of folders, which has all columns.

A table (`--findings-table`) may be in any catalog that the session knows: one of `spark.sql.catalog.NAME` (Iceberg,
JDBC …), or Hive's as the session's own. One that isn't there is made, partitioned by link and topic where its catalog
can; each audit appends, so a trend is one query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from drkit.audit.spark.failures import causes, in_words
from drkit.audit.spark.session import SparkRuntime, describe, is_own, spark_session
from drkit.model.clock import YEAR_10000, from_millis, to_millis
from drkit.model.errors import Refused

if TYPE_CHECKING:
    import pyarrow.dataset as ds

SCHEMA = StructType(
    [
        StructField("kind", StringType()),
        StructField("topic", StringType()),
        StructField("target_topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("source_offset", LongType()),
        StructField("target_offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestamp_ms", LongType()),
        StructField("key", BinaryType()),
        StructField("digest", StringType()),
        StructField("target_timestamp", TimestampType()),
        StructField("target_timestamp_ms", LongType()),
        StructField("target_key", BinaryType()),
        StructField("target_digest", StringType()),
        StructField("other_partition", IntegerType()),
        StructField("other_offset", LongType()),
        StructField("link", StringType()),
        StructField("run", StringType()),
        StructField("observed_at", TimestampType()),
    ]
)
"""Timestamps that are no dates are null, and their number is in `…_ms`. docs/audit.md says what each column is."""

PARTITIONS = ("link", "topic")

_ARROW = to_arrow_schema(SCHEMA)
_ONE_FILE = 1_000_000


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write findings that the driver holds."""
    table = pa.Table.from_pylist(list(rows), _ARROW)
    path.mkdir()
    if not rows:
        pq.write_table(table, path / "part-00000.parquet")
        return
    for values in {tuple(row[name] for name in PARTITIONS) for row in rows}:
        part, folder = table, path
        for name, value in zip(PARTITIONS, values, strict=True):
            part = part.filter(pc.equal(part[name], value)).drop_columns([name])
            folder /= f"{name}={quote(value, safe='>')}"  # as Spark writes them; Arrow would write %3E
        folder.mkdir(parents=True)
        pq.write_table(part, folder / "part-00000.parquet")


def write_frame(frame: DataFrame, path: Path, total: int) -> None:
    """Write findings that Spark holds, all columns of SCHEMA; `total` are they.

    The path is this machine's, also where the session's default file system is another (HDFS).
    """
    files = max(1, -(-total // _ONE_FILE))
    frame.select(*SCHEMA.fieldNames()).coalesce(files).write.partitionBy(*PARTITIONS).parquet(path.as_uri())


def findings_dataset(path: Path) -> ds.Dataset:
    """The findings of an audit, to be read by Arrow."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - it loads pandas, which an audit itself doesn't need

    hive = ds.partitioning(pa.schema([(name, pa.string()) for name in PARTITIONS]), flavor="hive")
    return ds.dataset(path, format="parquet", partitioning=hive)


BUCKETS = 60
_COLUMNS = ["kind", "topic", "timestamp_ms"]


_MOST = 0.75
_FEW_BUCKETS = 3
_LOOKS = 6
_LEAST_MS = 60_000


@dataclass(frozen=True, slots=True)
class FindingsOverTime:
    """Findings by time of stamp: `counts` by (topic, kind), one for each of BUCKETS equal parts of [first, last].

    `earlier`, `later`: findings outside of these, at most a quarter: one odd stamp doesn't hide when the rest was.
    """

    first: datetime
    last: datetime
    counts: dict[tuple[str, str], list[int]]
    earlier: int = 0
    later: int = 0


def over_time(paths: Iterable[Path]) -> FindingsOverTime | None:
    """Count the findings in these Parquet folders; None where there are none. Memory doesn't grow with them."""
    sources = [findings_dataset(path) for path in paths]
    bounds = _bounds(sources, None)
    if bounds is None:
        return None
    found = _counted(sources, *bounds)
    for _ in range(_LOOKS):
        nearer = _nearer(found)
        bounds = None if nearer is None else _bounds(sources, nearer)
        if bounds is None:
            break
        found = _counted(sources, *bounds)
    return found


def _bounds(sources: Sequence[ds.Dataset], within: tuple[int, int] | None) -> tuple[int, int] | None:
    """The first and last stamp, in ms; None where there is none."""
    low, high = None, None
    for source in sources:
        for batch in source.to_batches(columns=["timestamp_ms"]):
            stamps = _millis(batch)
            if within is not None:
                stamps = stamps[(stamps >= within[0]) & (stamps <= within[1])]
            if len(stamps):
                low = int(stamps.min()) if low is None else min(low, int(stamps.min()))
                high = int(stamps.max()) if high is None else max(high, int(stamps.max()))
    return None if low is None or high is None else (low, high)


def _nearer(found: FindingsOverTime) -> tuple[int, int] | None:
    """The few neighbouring buckets that hold most findings, as [low, high] in ms; None where they are spread out."""
    low, width = to_millis(found.first), to_millis(found.last) - to_millis(found.first)
    sums = np.sum(list(found.counts.values()), axis=0)
    windows = np.convolve(sums, np.ones(_FEW_BUCKETS, np.int64), "valid")
    at = int(windows.argmax())
    everything = int(sums.sum()) + found.earlier + found.later
    if width < _LEAST_MS or windows[at] < everything * _MOST:
        return None
    return low + at * width // BUCKETS, low + -(-(at + _FEW_BUCKETS) * width // BUCKETS)


def _counted(sources: Sequence[ds.Dataset], low: int, high: int) -> FindingsOverTime:
    width = max(1, high - low)
    earlier = later = 0
    counts: dict[tuple[str, str], np.ndarray] = {}
    for source in sources:
        for batch in source.to_batches(columns=_COLUMNS):
            stamps = _millis(batch)
            earlier += int((stamps < low).sum())
            later += int((stamps > high).sum())
            for topic in pc.unique(batch["topic"]).to_pylist():
                of_topic = batch.filter(pc.equal(batch["topic"], topic))
                for kind in pc.unique(of_topic["kind"]).to_pylist():
                    stamps = _millis(of_topic.filter(pc.equal(of_topic["kind"], kind)))
                    stamps = stamps[(stamps >= low) & (stamps <= high)]
                    places = np.minimum((stamps - low) * BUCKETS // width, BUCKETS - 1)
                    found = np.bincount(places, minlength=BUCKETS)
                    counts[topic, kind] = counts.get((topic, kind), np.zeros(BUCKETS, np.int64)) + found
    return FindingsOverTime(
        from_millis(low), from_millis(high), {each: sums.tolist() for each, sums in counts.items()}, earlier, later
    )


def _millis(batch: pa.RecordBatch) -> np.ndarray:
    """The timestamps that are dates."""
    stamps = np.asarray(batch["timestamp_ms"].to_numpy(zero_copy_only=False))
    return stamps[(stamps >= 0) & (stamps < YEAR_10000)]


_SESSION_CATALOG = "spark_catalog"


def check_table(table: str, runtime: SparkRuntime) -> None:
    """See ahead of an audit that its findings can be appended to a table.

    Raises:
        Refused: its catalog isn't known, forgets its tables with the session, or the table has other columns.
        DrkitError: Spark doesn't start, or the catalog doesn't answer.
    """
    session = spark_session(runtime)
    with in_words("looking at the findings' table"):
        describe(session, f"audit: looking at {table}")
        _refuse_forgotten(table, session)
        if not _exists(session, table):
            return
        there = {name.lower() for name in session.table(table).columns}
    missing = sorted(set(SCHEMA.fieldNames()) - there)
    if missing:
        raise Refused(
            f"--findings-table {table}: the table has no column {', '.join(missing)}",
            meaning="It is another kind of table, or was made by another version of drkit",
            remedy="Name another table, or one that isn't there yet: it is made with the columns of docs/audit.md",
        )


def append_findings(paths: Sequence[str], table: str, runtime: SparkRuntime) -> int:
    """Append the findings of audits to a table; returns how many they are.

    Args:
        paths: the findings' Parquet of each.
        table: as Spark SQL names it.
        runtime: the session's; the same that made the audits.

    Raises:
        DrkitError: the table can't be written.
    """
    session = spark_session(runtime)
    names = SCHEMA.fieldNames()
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in SCHEMA)
    rows = None
    with in_words(f"writing findings to {table}"):
        describe(session, f"audit: writing findings to {table}")
        for path in paths:
            found = session.read.schema(columns).parquet(Path(path).as_uri()).select(*names)
            rows = found if rows is None else rows.unionByName(found)
        if rows is None:
            return 0
        total = rows.count()
        if _exists(session, table):
            _append(session, table, rows)
        else:
            _create(table, rows)
    return total


def _exists(session: SparkSession, table: str) -> bool:
    try:
        return bool(session.catalog.tableExists(table))
    except AnalysisException as error:
        raise Refused(
            f"--findings-table {table}: {_first(error)}",
            remedy="Name it as Spark SQL does (CATALOG.SCHEMA.TABLE), and give its catalog by "
            "--spark-conf spark.sql.catalog.CATALOG=…",
        ) from error


def _refuse_forgotten(table: str, session: SparkSession) -> None:
    """Refuse a table of the session's own catalog where that is in memory only and goes with the session."""
    first, dot, _ = table.partition(".")
    of_session = not dot or first == _SESSION_CATALOG or session.conf.get(f"spark.sql.catalog.{first}", None) is None
    replaced = session.conf.get(f"spark.sql.catalog.{_SESSION_CATALOG}", "builtin") != "builtin"
    in_memory = session.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"
    if of_session and in_memory and not replaced and is_own(session):
        raise Refused(
            f"--findings-table {table}: the session's own catalog is in memory, and ends with this command",
            meaning="The table would be gone with it",
            remedy="Give a catalog by --spark-conf spark.sql.catalog.NAME=… and name the table NAME.SCHEMA.TABLE, or "
            "use Hive's (--spark-conf spark.sql.catalogImplementation=hive)",
        )


def _append(session: SparkSession, table: str, rows: DataFrame) -> None:
    columns = {name.lower(): name for name in session.table(table).columns}
    rows = rows.select(*(rows[name].alias(columns[name]) for name in SCHEMA.fieldNames()))
    try:
        rows.writeTo(table).append()
    except AnalysisException as error:
        if "v1 table" not in str(error):
            raise
        rows.select(*session.table(table).columns).write.insertInto(table)  # Hive's, and files of the session's catalog


def _create(table: str, rows: DataFrame) -> None:
    try:
        rows.writeTo(table).partitionedBy(*map(F.col, PARTITIONS)).create()
    except PySparkException as error:
        if "partition" not in str(error).lower():
            raise
        rows.writeTo(table).create()  # JDBC's, for one, has no partitions


def _first(error: BaseException) -> str:
    return (causes(error) or [str(error)])[0]
