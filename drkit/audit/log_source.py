"""Kafka's logs as Spark data sources of drkit's own: one row a batch, or one row a record (Python Data Source API).

An audit's first pass reads both sides in one task instead (`abreast.py`): what it compares is never a row of Spark's.

`drkit-batches` reads raw record batches and decodes none: a row says which offsets a batch covers, how many
records it has, and a digest of what it holds. Two batches of equal digests hold equal records (key, value,
headers, timestamp) at equal distances from their first offset: the digest is 128 bits over the records as they lie
in the batch and over the header's fields that they are read by. A mirror that forwards a batch rewrites other
fields only. Batches without a digest (`h1`, `h2` null) are those that prove nothing by it: offsets missing inside,
cut by the range that is read, an old format, or so small that a mirror merges them; of the last, several in a row
are one row.

`drkit-search` gives the batches in which certain bytes occur, decompressed but not decoded.

`drkit-records` decodes: one row a record, and one for each stretch of offsets that can't be read.

All read committed, in tasks of about equal many offsets, and yield Arrow. What tasks need (how to reach the
clusters, what to read) are options; the one with the secrets is named so that Spark redacts it.
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

from drkit.audit.spans import BATCHES, RECORDS, SEARCH, Span, share_out, wanted_tasks
from drkit.kafka.shipped import packed

if TYPE_CHECKING:
    import pyarrow as pa

    from drkit.config.schema import ClusterConfig

_CLUSTER, _NEEDLES = "secret_cluster", "secret_needles"  # Spark redacts options whose names hold "secret"
_SPANS, _TASKS = "spans", "tasks"
BATCH_ROW = StructType(
    [
        StructField("p", IntegerType()),
        StructField("start", LongType()),
        StructField("stop", LongType()),
        StructField("n", LongType()),
        StructField("h1", LongType()),
        StructField("h2", LongType()),
        StructField("newest", LongType()),
    ]
)
"""`p`: the partition's number in the scope; offsets [start, stop); `n`: records; `newest`: highest timestamp, ms."""

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


def read_batches(spark: SparkSession, alias: str, cluster: ClusterConfig, spans: Sequence[Span]) -> DataFrame:
    """Rows of BATCH_ROW for the batches of these spans; read when they are used."""
    return _load(spark, BatchSource, BATCHES, reached(alias, cluster), spans)


def read_records(
    spark: SparkSession, alias: str, cluster: ClusterConfig, spans: Sequence[Span], *, committed: bool = True
) -> DataFrame:
    """Rows of RECORD_ROW for the records in these spans; read when they are used.

    Args:
        spark: what to run on.
        alias: the cluster's name in messages.
        cluster: how to reach it.
        spans: what to read.
        committed: leave out the records of aborted transactions.
    """
    return _load(spark, RecordSource, RECORDS, reached(alias, cluster, committed=committed), spans)


def search_batches(
    spark: SparkSession,
    alias: str,
    cluster: ClusterConfig,
    spans: Sequence[Span],
    needles: Mapping[int, Sequence[bytes]],
    *,
    committed: bool = True,
) -> DataFrame:
    """Rows of BATCH_ROW, without digests, for the batches in whose plain bytes one of their partition's needles is."""
    texts = {number: [each.hex() for each in found] for number, found in needles.items()}
    cluster_reached = reached(alias, cluster, committed=committed)
    return _load(spark, SearchSource, SEARCH, cluster_reached, spans, {_NEEDLES: json.dumps(texts)})


def reached(alias: str, cluster: ClusterConfig, *, committed: bool = True) -> dict[str, Any]:
    """How a task reaches a cluster (`log_tasks.opened`), files included, and whether it reads committed records only.
    It holds secrets.

    Raises:
        ConfigError: a secret or a file can't be read.
    """
    return packed(alias, cluster) | {"committed": committed}


def _load(
    spark: SparkSession,
    source: type[DataSource],
    name: str,
    cluster: Mapping[str, Any],
    spans: Sequence[Span],
    more: Mapping[str, str] | None = None,
) -> DataFrame:
    spark.dataSource.register(source)
    options = {
        _CLUSTER: json.dumps(cluster),
        _SPANS: json.dumps(spans),
        _TASKS: str(wanted_tasks(spans, spark.sparkContext.defaultParallelism)),
    }
    return spark.read.format(name).options(**options, **(more or {})).load()


@dataclass
class _Task(InputPartition):
    """What one task reads."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__(None)
        self.spans = spans


class _Reader(DataSourceReader):
    """Plans tasks; a worker reads one of them."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self._name = name
        self._cluster: dict[str, Any] = json.loads(options[_CLUSTER])
        self._spans = [Span(*each) for each in json.loads(options[_SPANS])]
        self._tasks = int(options[_TASKS])
        self._needles: dict[str, list[str]] = json.loads(options.get(_NEEDLES, "{}"))

    def partitions(self) -> list[InputPartition]:
        """A task each."""
        return [_Task(spans) for spans in share_out(self._spans, self._tasks)] or [_Task([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a worker."""
        from drkit.audit.log_tasks import run_task  # noqa: PLC0415 - planning, done often, shall not load it

        assert isinstance(partition, _Task)  # noqa: S101 - those that `partitions` made
        return run_task(self._name, self._cluster, partition.spans, self._needles)


class BatchSource(DataSource):
    """`drkit-batches`."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return BATCHES

    def schema(self) -> StructType:
        """Its rows."""
        return BATCH_ROW

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - one schema only
        """Plans and reads."""
        return _Reader(BATCHES, self.options)


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
        return _Reader(RECORDS, self.options)


class SearchSource(DataSource):
    """`drkit-search`."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return SEARCH

    def schema(self) -> StructType:
        """Its rows."""
        return BATCH_ROW

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - one schema only
        """Plans and reads."""
        return _Reader(SEARCH, self.options)
