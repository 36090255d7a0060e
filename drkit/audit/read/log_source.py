"""Kafka's logs as a Spark data source of drkit's own: one row a record (Python Data Source API).

An audit reads both sides in one task instead (`merge_join.py`), so what it compares is never a row of Spark's.

`drkit-records` decodes: one row a record, and one for each stretch of offsets that can't be read. It reads committed
records, in tasks of about equal many offsets, and yields Arrow. What tasks need (how to reach the
cluster, what to read) are options; the one with the secrets is named so that Spark redacts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from drkit.audit.read.offset_ranges import RECORDS, Span, share_out, wanted_tasks
from drkit.kafka.config.portable_config import packed

if TYPE_CHECKING:
    import pyarrow as pa

    from drkit.config.schema import ClusterConfig

_CLUSTER = "secret_cluster"  # Spark redacts options whose names hold "secret"
_SPANS, _TASKS = "spans", "tasks"
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
    spark.dataSource.register(RecordSource)
    options = {
        _CLUSTER: json.dumps(cluster),
        _SPANS: json.dumps(spans),
        _TASKS: str(wanted_tasks(spans, spark.sparkContext.defaultParallelism)),
    }
    return spark.read.format(RECORDS).options(**options).load()


def reached(
    alias: str, cluster: ClusterConfig, *, committed: bool = True, alteration: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """How a task reaches a cluster (`log_tasks.opened`), files included, whether it reads committed records only, and
    what it does to them (`drkit.kafka.alteration.altered_reader.packed_alteration`). It holds secrets.

    Raises:
        ConfigError: a secret or a file can't be read.
    """
    return packed(alias, cluster) | {"committed": committed, "alteration": alteration}


@dataclass
class _Task(InputPartition):
    """What one task reads."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__(None)
        self.spans = spans


class _Reader(DataSourceReader):
    """Plans tasks; a worker reads one of them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._cluster: dict[str, Any] = json.loads(options[_CLUSTER])
        self._spans = [Span(*each) for each in json.loads(options[_SPANS])]
        self._tasks = int(options[_TASKS])

    def partitions(self) -> list[InputPartition]:
        """A task each."""
        return [_Task(spans) for spans in share_out(self._spans, self._tasks)] or [_Task([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a worker."""
        from drkit.audit.read.log_tasks import read_rows  # noqa: PLC0415 - planning, done often, shall not load it

        assert isinstance(partition, _Task)  # noqa: S101 - those that `partitions` made
        return read_rows(self._cluster, partition.spans)


class RecordSource(DataSource):
    """`drkit-records`."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return RECORDS

    def schema(self) -> StructType:
        """Its rows."""
        return RECORD_ROW

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - one schema only
        """Plans and reads."""
        return _Reader(self.options)
