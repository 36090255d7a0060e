"""Kafka's logs as DataFrames, one row a record.

An audit instead reads both sides in one task (`compare/merge_join.py`), so the compared records are never rows in
Spark.

Spark's Python tasks decode the logs as Arrow: one row per record, and one per unreadable range of offsets. They read
committed records, each task about the same number of offsets. The cluster's connection, with its secrets, is sent to
them as code, and appears in no plan, property or log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from drkit.audit.read.log_tasks import read_rows
from drkit.audit.read.offset_ranges import Span, share_out, wanted_tasks
from drkit.kafka.config.client_config import packed

if TYPE_CHECKING:
    from drkit.config.schema.config import ClusterConfig

HEADERS = ArrayType(StructType([StructField("key", BinaryType()), StructField("value", BinaryType())]))
"""Names as bytes: what isn't UTF-8 stays what it is."""

RECORD_ROW = StructType(
    [
        StructField("p", IntegerType()),
        StructField("offset", LongType()),
        StructField("stamp", LongType()),
        StructField("append_time", BooleanType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
        StructField("unreadable_until", LongType()),
    ]
)
"""`stamp`: ms, any number that a producer may write; `append_time`: whether it is the broker's. Where
`unreadable_until` isn't null, the row stands for the offsets [offset, unreadable_until), which can't be read."""


def read_records(spark: SparkSession, cluster: Mapping[str, Any], spans: Sequence[Span]) -> DataFrame:
    """Rows of RECORD_ROW for the records in these spans; read when they are used.

    Args:
        spark: what to run on.
        cluster: how to reach it, as `reached` has it.
        spans: what to read.
    """
    tasks = share_out(spans, wanted_tasks(spans, spark.sparkContext.defaultParallelism)) or [[]]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(read_rows, cluster, tasks), RECORD_ROW)


def reached(
    alias: str,
    cluster: ClusterConfig,
    *,
    committed: bool = True,
    dense: Collection[str] = (),
    alteration: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """How a task reaches a cluster (`log_tasks.opened`), files included, whether it reads committed records only, which
    topics have no gaps (`LogReader`), and what it does to records
    (`drkit.kafka.transform.transformed_reader.packed_alteration`). It holds secrets.

    Raises:
        ConfigError: a secret or a file can't be read.
    """
    return packed(alias, cluster) | {"committed": committed, "dense": frozenset(dense), "alteration": alteration}
