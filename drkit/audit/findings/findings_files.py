"""The findings' Parquet: its columns, and how it lies on the disk.

    findings.parquet/link=primary->dr/topic=orders/part-….parquet

`link` and `topic` are in the folders' names, as Hive, Spark and Arrow have partitions. An audit without findings writes
a file of no rows instead of folders, which has all columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

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
