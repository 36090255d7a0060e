"""The fields of records, column by column: batches decoded for comparison rather than for forwarding. Pure.

aiokafka's compiled reader does the work. It decodes header keys strictly; keys that aren't UTF-8 are decoded here, with
surrogates for their bytes (PEP 383), so that different keys stay different.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafka.record.default_records import DefaultRecordBatch

from drkit.kafka.protocol.record_batch import LOG_APPEND_TIME, MAGIC, Batch
from drkit.kafka.protocol.record_body import decode
from drkit.kafka.protocol.records import Damaged, RawRecord, read, read_old

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class RecordColumns:
    """Records in order; timestamps in ms, headers None where there are none; `append_times`: whether a timestamp is the
    broker's (LogAppendTime)."""

    offsets: list[int] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    append_times: list[bool] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, batch: Batch, first: int, until: int) -> None:
        """Append a batch's records with offsets in [first, until).

        Raises:
            Damaged: they can't be read.
        """
        if batch.magic < MAGIC:
            self._add_plain(read_old(batch.whole), first, until)
            self._fill_append_times(stamped=False)
            return
        if not batch.intact():
            raise Damaged(f"the batch at offset {batch.base_offset} fails its checksum")
        before = len(self.offsets)
        try:
            try:
                self._add_compiled(batch, first, until)
            except UnicodeDecodeError:
                self._cut(before)
                self._add_plain(list(read(batch)), first, until)
        except Damaged:
            raise
        except Exception as error:
            raise Damaged(f"the records of the batch at offset {batch.base_offset} can't be read: {error}") from error
        self._fill_append_times(stamped=bool(batch.attributes & LOG_APPEND_TIME))

    def _fill_append_times(self, *, stamped: bool) -> None:
        self.append_times.extend([stamped] * (len(self.offsets) - len(self.append_times)))

    def add_readable(self, batch: Batch, first: int, until: int) -> bool:
        """As `add`; false, with nothing appended, if they can't be read."""
        before = len(self.offsets)
        try:
            self.add(batch, first, until)
        except Damaged:
            self._cut(before)
            return False
        return True

    def add_row(self, other: RecordColumns, at: int) -> None:
        """Append one record of others."""
        self.offsets.append(other.offsets[at])
        self.stamps.append(other.stamps[at])
        self.append_times.append(other.append_times[at])
        self.keys.append(other.keys[at])
        self.values.append(other.values[at])
        self.headers.append(other.headers[at])

    def _add_compiled(self, batch: Batch, first: int, until: int) -> None:
        whole = first <= batch.base_offset and batch.last_offset < until
        offsets, stamps, keys, values, headers = self.offsets, self.stamps, self.keys, self.values, self.headers
        append = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else None
        for record in DefaultRecordBatch(bytes(batch.whole)):
            offset = record.offset
            if whole or first <= offset < until:
                offsets.append(offset)
                stamps.append(record.timestamp if append is None else append)
                keys.append(record.key)
                values.append(record.value)
                headers.append(record.headers or None)

    def _add_plain(self, found: list[RawRecord], first: int, until: int) -> None:
        for record in found:
            if first <= record.offset < until:
                key, value, headers = decode(bytes(record.body))
                self.offsets.append(record.offset)
                self.stamps.append(record.timestamp)
                self.keys.append(key)
                self.values.append(value)
                self.headers.append(headers or None)

    def _cut(self, size: int) -> None:
        for column in (self.offsets, self.stamps, self.append_times, self.keys, self.values, self.headers):
            del column[size:]
