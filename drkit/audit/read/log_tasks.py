"""What Spark's workers do for a log as a DataFrame (`log_source.py`): read spans of it, yield Arrow."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa

from drkit.audit.read.offset_ranges import Span
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.client.process_tuning import keep_freed_blocks
from drkit.kafka.config.client_config import unpacked
from drkit.kafka.protocol.record_columns import Headers, RecordColumns
from drkit.kafka.transform.transformed_reader import AlteredReader, BatchReader, unpacked_alteration
from drkit.model.errors import DrkitError

FAILED = "drkit-task-failed "
"""Precedes the JSON of drkit's own error in what a failed task says."""

_RECORD_COLUMNS = ["p", "offset", "stamp", "append_time", "key", "value", "headers", "unreadable_until"]
_HEADERS_ARROW = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
_RECORDS_A_BLOCK = 5_000
_settled = False


def read_rows(
    cluster: Mapping[str, Any], tasks: Sequence[Sequence[Span]], blocks: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The records of the tasks that one is given by number, as rows of `log_source.RECORD_ROW`.

    Args:
        cluster: how to reach it (`log_source.reached`).
        tasks: what each reads.
        blocks: the task's, each with a column of numbers.

    Raises:
        RuntimeError: it failed; the text carries drkit's error.
    """
    settle()
    with failures(), opened(cluster) as reader:
        for block in blocks:
            for number in block.column(0).to_pylist():
                yield from _records(reader, tasks[number])


def settle() -> None:
    """Make what Spark does in its Python workers after each task cheap, and memory for batches; called at the beginning
    of one.

    A worker that is to be used again looks for garbage in all that was ever imported, and reads the directories of
    all archives on its path again (that of Spark's own jar has thousands of entries): a tenth of a second of CPU a
    task, more than a short task takes. What is imported is no garbage; and archives don't change under a session, so
    their directories are kept (an importer that is needed again takes them from zipimport's cache).
    """
    global _settled  # noqa: PLW0603 - asking gc how much is frozen counts it all, which takes 10 ms
    if not _settled:
        gc.freeze()
        keep_freed_blocks()
        _settled = True
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


@contextmanager
def opened(cluster: Mapping[str, Any]) -> Iterator[BatchReader]:
    """A reader of a cluster as `log_source.reached` packs it; what its link does to records is done.

    Raises:
        ConfigError: a callable of the link can't be imported here.
    """
    altered = cluster["alteration"]
    alteration = None if altered is None else unpacked_alteration(altered)
    alias, committed, dense = cluster["alias"], cluster["committed"], cluster["dense"]
    with unpacked(cluster) as reached, LogReader(alias, reached, committed=committed, dense=dense) as reader:
        yield reader if alteration is None else AlteredReader(reader, alteration)


@contextmanager
def failures() -> Iterator[None]:
    """Errors of drkit's own, in a form in which they get from a worker to the driver.

    Raises:
        RuntimeError: its text carries the error.
    """
    try:
        yield
    except DrkitError as error:
        raise _failure(error) from None


def _records(reader: BatchReader, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    for span in spans:
        columns = RecordColumns()
        for found in reader.read(span.topic, span.partition, span.first, span.until):
            for batch in found:
                if not columns.add_readable(batch, span.first, span.until):
                    first, until = max(batch.base_offset, span.first), min(batch.last_offset + 1, span.until)
                    yield _unreadable_row(span.number, first, until)
                if len(columns) >= _RECORDS_A_BLOCK:
                    yield _record_block(span.number, columns)
                    columns = RecordColumns()
        if len(columns):
            yield _record_block(span.number, columns)


def _record_block(number: int, columns: RecordColumns) -> pa.RecordBatch:
    size = len(columns)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(size, number, np.int32)),
            pa.array(np.fromiter(columns.offsets, np.int64, size)),
            pa.array(np.fromiter(columns.stamps, np.int64, size)),
            pa.array(np.fromiter(columns.append_times, np.bool_, size)),
            _binary(columns.keys),
            _binary(columns.values),
            _headers(columns.headers),
            pa.nulls(size, pa.int64()),
        ],
        names=_RECORD_COLUMNS,
    )


def _unreadable_row(number: int, first: int, until: int) -> pa.RecordBatch:
    values = (number, first, None, None, None, None, None, until)
    kinds = (pa.int32(), pa.int64(), pa.int64(), pa.bool_(), pa.binary(), pa.binary(), _HEADERS_ARROW, pa.int64())
    arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=_RECORD_COLUMNS)


def _headers(rows: list[Headers | None]) -> pa.Array:
    """A column of headers; where there are none at all, which is often, without looking at each."""
    if not any(rows):
        return pa.nulls(len(rows), _HEADERS_ARROW)
    return pa.array(
        [
            None if each is None else [{"key": k.encode(errors="surrogateescape"), "value": v} for k, v in each]
            for each in rows
        ],
        _HEADERS_ARROW,
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
