"""Kafka's logs as Spark data sources of drkit's own: one row a batch, or one row a record (Python Data Source API).

`drkit-batches` reads raw record batches and decodes none: a row says which offsets a batch covers, how many
records it has, and a digest of what it holds. Two batches of equal digests hold equal records (key, value,
headers, timestamp) at equal distances from their first offset: the digest is 128 bits over the records as they lie
in the batch and over the header's fields that they are read by. A mirror that forwards a batch rewrites other
fields only. Batches without a digest (`h1`, `h2` null) are those that prove nothing by it: offsets missing inside,
cut by the range that is read, an old format, or so small that a mirror merges them; of the last, several in a row
are one row.

`drkit-records` decodes: its rows are those of Spark's Kafka connector for the same offsets, but for the topic's name.

Both read committed, in tasks of about equal many offsets, and yield Arrow. What tasks need (how to reach the
clusters, what to read) are options; the one with the secrets is named so that Spark redacts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from xxhash import xxh3_128

from drkit.config.schema import ClusterConfig
from drkit.kafka.batch import CODEC_MASK, FIELDS, LOG_APPEND_TIME, MAGIC, Batch
from drkit.kafka.contents import Columns
from drkit.kafka.log_reader import LogReader
from drkit.kafka.records import Damaged, read_old
from drkit.model.errors import DrkitError

BATCHES, RECORDS = "drkit-batches", "drkit-records"
_CLUSTER = "secret_cluster"  # Spark redacts options whose names hold "secret"
_SPANS, _TASKS = "spans", "tasks"
FAILED = "drkit-task-failed "
"""Precedes the JSON of drkit's own error in what a failed task says."""

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

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
RECORD_ROW = StructType(
    [
        StructField("p", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)
_BATCH_ARROW = pa.schema(
    [("p", pa.int32())] + [(name, pa.int64()) for name in ("start", "stop", "n", "h1", "h2", "newest")]
)
_HEADERS_ARROW = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ROWS_A_BLOCK = 10_000
_RECORDS_A_BLOCK = 5_000
_OFFSETS_WORTH_A_TASK = 50_000
_MOST_OFFSETS_A_TASK = 5_000_000
_MERGED = 2
"""Batches of so few records are merged by a mirror as a rule: a digest of them is worth less than it costs."""


class Span(NamedTuple):
    """Offsets [first, until) of one partition; `number` names it in rows.

    Of a range that is cut for several tasks, `begins` marks the first piece, and `end` is where the range ends.
    """

    number: int
    topic: str
    partition: int
    first: int
    until: int
    end: int
    begins: bool = True


def read_batches(spark: SparkSession, alias: str, cluster: ClusterConfig, spans: Sequence[Span]) -> DataFrame:
    """Rows of BATCH_ROW for the batches of these spans; read when they are used."""
    return _load(spark, BatchSource, BATCHES, alias, cluster, spans)


def read_records(spark: SparkSession, alias: str, cluster: ClusterConfig, spans: Sequence[Span]) -> DataFrame:
    """Rows of RECORD_ROW for the records in these spans; read when they are used."""
    return _load(spark, RecordSource, RECORDS, alias, cluster, spans)


def _load(
    spark: SparkSession,
    source: type[DataSource],
    name: str,
    alias: str,
    cluster: ClusterConfig,
    spans: Sequence[Span],
) -> DataFrame:
    spark.dataSource.register(source)
    reached = {"alias": alias, "bootstrap_servers": cluster.bootstrap_servers, "client": cluster.properties()}
    options = {
        _CLUSTER: json.dumps(reached),
        _SPANS: json.dumps(spans),
        _TASKS: str(_wanted_tasks(spans, spark.sparkContext.defaultParallelism)),
    }
    return spark.read.format(name).options(**options).load()


def _wanted_tasks(spans: Sequence[Span], parallel: int) -> int:
    """How many tasks read so many offsets: every core has work, none too little to be worth a connection."""
    offsets = sum(span.until - span.first for span in spans)
    return max(1, min(2 * parallel, offsets // _OFFSETS_WORTH_A_TASK), offsets // _MOST_OFFSETS_A_TASK)


def share_out(spans: Sequence[Span], tasks: int) -> list[list[Span]]:
    """Spans for each of so many tasks, each with about as many offsets as the next; long ones are cut."""
    total = sum(span.until - span.first for span in spans)
    size = max(1, -(-total // max(1, tasks)))
    shared: list[list[Span]] = [[]]
    room = size
    for span in spans:
        rest = span
        while rest.until - rest.first > room:
            cut = rest.first + room
            shared[-1].append(rest._replace(until=cut))
            rest = rest._replace(first=cut, begins=False)
            shared.append([])
            room = size
        if rest.first < rest.until:
            shared[-1].append(rest)
            room -= rest.until - rest.first
    return [each for each in shared if each]


@dataclass
class _Task(InputPartition):
    """What one task reads."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__(None)
        self.spans = spans


class _Reader(DataSourceReader):
    """Plans tasks, and reads one of them in a worker."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._cluster: dict[str, str] = json.loads(options[_CLUSTER])
        self._spans = [Span(*each) for each in json.loads(options[_SPANS])]
        self._tasks = int(options[_TASKS])

    def partitions(self) -> list[InputPartition]:
        return [_Task(spans) for spans in share_out(self._spans, self._tasks)] or [_Task([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)  # noqa: S101 - those that `partitions` made
        alias = self._cluster["alias"]
        try:
            cluster = ClusterConfig.model_validate(
                {name: self._cluster[name] for name in ("bootstrap_servers", "client")}
            )
            with LogReader(alias, cluster) as reader:
                yield from self._rows(reader, partition.spans)
        except Damaged as error:
            raise _failure(DrkitError(f"cluster {alias}: {error}", remedy="Check the brokers' disks")) from None
        except DrkitError as error:
            raise _failure(error) from None

    def _rows(self, reader: LogReader, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class _BatchReader(_Reader):
    def _rows(self, reader: LogReader, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        rows = BatchRows()
        for span in spans:
            rows.begin(span)
            for found in reader.read(span.topic, span.partition, span.first, span.until):
                rows.add(found)
                if len(rows) >= _ROWS_A_BLOCK:
                    yield rows.take()
            rows.end()
        yield rows.take()


class _RecordReader(_Reader):
    def _rows(self, reader: LogReader, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        for span in spans:
            columns = Columns()
            for found in reader.read(span.topic, span.partition, span.first, span.until):
                for batch in found:
                    columns.add(batch, span.first, span.until)
                    if len(columns) >= _RECORDS_A_BLOCK:
                        yield _record_block(span.number, columns)
                        columns = Columns()
            if len(columns):
                yield _record_block(span.number, columns)


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
        return _BatchReader(self.options)


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
        return _RecordReader(self.options)


class BatchRows:
    """Rows of BATCH_ROW, gathered from batches in order. Pure."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int | None, int | None, int]] = []
        self._open: tuple[int, int, int, int, None, None, int] | None = None
        self._span = Span(0, "", 0, 0, 0, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, span: Span) -> None:
        """What is added from now on is of this span."""
        self._span = span

    def add(self, found: Sequence[Batch]) -> None:
        """Add the batches that are the span's: those that begin in it, and at its begin one that reaches into it."""
        number, _, _, first, until, end, begins = self._span
        rows = self._rows
        for batch in found:
            if batch.magic < MAGIC:
                self.end()
                if first <= batch.base_offset < until:
                    rows.append(_old_row(self._span, batch))
                continue
            base, after, count = batch.base_offset, batch.last_offset + 1, batch.records_count
            if after <= first or base >= until or (base < first and not begins):
                continue
            cut = base < first or after > end
            base, after = max(base, first), min(after, end)
            if count <= _MERGED:
                run = self._open
                if run is not None and run[2] == base:
                    self._open = (number, run[1], after, run[3] + count, None, None, max(run[6], batch.max_timestamp))
                else:
                    self.end()
                    self._open = (number, base, after, count, None, None, batch.max_timestamp)
                continue
            self.end()
            high, low = _digest(batch) if count == after - base and not cut else (None, None)
            rows.append((number, base, after, count, high, low, batch.max_timestamp))

    def end(self) -> None:
        """Close a row of several small batches."""
        if self._open is not None:
            self._rows.append(self._open)
            self._open = None

    def take(self) -> pa.RecordBatch:
        """The rows so far."""
        rows, self._rows = self._rows, []
        columns = list(zip(*rows, strict=True)) or [() for _ in _BATCH_ARROW]
        return pa.RecordBatch.from_arrays(
            [pa.array(values, kind.type) for values, kind in zip(columns, _BATCH_ARROW, strict=True)],
            schema=_BATCH_ARROW,
        )


def _digest(batch: Batch) -> tuple[int, int]:
    """128 bits over the records and what they are read by, as two signed numbers."""
    stamped = batch.attributes & LOG_APPEND_TIME
    prefix = FIELDS.pack(
        0,
        0,
        0,
        0,
        0,
        batch.attributes & (CODEC_MASK | LOG_APPEND_TIME),
        batch.last_delta,
        batch.base_timestamp,
        batch.max_timestamp if stamped else 0,
        0,
        0,
        0,
        batch.records_count,
    )
    state = xxh3_128(prefix)
    state.update(batch.records)
    both = state.digest()
    return int.from_bytes(both[:8], "big", signed=True), int.from_bytes(both[8:], "big", signed=True)


def _old_row(span: Span, batch: Batch) -> tuple[int, int, int, int, None, None, int]:
    """A message of an old format: a wrapper's offset is that of the last message in it."""
    inside = read_old(batch.whole)
    first = min((each.offset for each in inside), default=batch.base_offset)
    newest = max((each.timestamp for each in inside), default=-1)
    return (
        span.number,
        max(first, span.first) if span.begins else first,
        batch.base_offset + 1,
        len(inside),
        None,
        None,
        newest,
    )


def _record_block(number: int, columns: Columns) -> pa.RecordBatch:
    size = len(columns)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(size, number, np.int32)),
            pa.array(np.fromiter(columns.offsets, np.int64, size)),
            pa.array(np.fromiter(columns.stamps, np.int64, size) * 1000).cast(pa.timestamp("us", "UTC")),
            _binary(columns.keys),
            _binary(columns.values),
            pa.array(
                [None if each is None else [{"key": k, "value": v} for k, v in each] for each in columns.headers],
                _HEADERS_ARROW,
            ),
        ],
        names=RECORD_ROW.fieldNames(),
    )


def _binary(values: list[bytes | None]) -> pa.Array:
    """A binary column; without nulls its buffers are put together at once, which is several times as fast."""
    if None in values:
        return pa.array(values, pa.binary())
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])  # type: ignore[arg-type]  # no nulls
    joined = b"".join(values)  # type: ignore[arg-type]  # no nulls
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(joined)])


def _failure(error: DrkitError) -> RuntimeError:
    """An error of drkit as a worker can hand it over: its text is all that arrives."""
    told = {"type": type(error).__name__, "what": error.what, "meaning": error.meaning, "remedy": error.remedy}
    return RuntimeError(FAILED + json.dumps(told))
