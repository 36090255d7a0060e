"""Uncompressed batches of a few records, joined while they are read: what producers leave that hardly batch. Pure.

There the work per batch is work per record, and what a record costs decides. So one pass over the
fetched bytes checks each such batch and appends its records to a payload, without making an object of
it; everything else comes out as `Batch`, as `drkit.kafka.batch.parse` gives it.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from drkit.kafka.batch import CRC_FROM, FIELDS, HEADER_BYTES, LOG_OVERHEAD, MAGIC, Batch, parse
from drkit.kafka.records import Record, encoded, read_plain, read_varint

_MOST = 4_000
_FEW = 4
_LARGEST = 256 * 1024
_ONE_BYTE = 0x80


class Joined(NamedTuple):
    """Uncompressed small batches in a row, as one payload with consecutive offsets. `batches`: how many they were."""

    base_offset: int
    leader_epoch: int
    records_count: int
    base_timestamp: int
    max_timestamp: int
    payload: bytes
    batches: int

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""
        return self.base_offset + self.records_count - 1

    def records(self) -> list[Record]:
        """One by one, where it must be taken apart again."""
        return list(read_plain(memoryview(self.payload), self.records_count, self.base_offset, self.base_timestamp))


Found = Batch | Joined


def scan(data: memoryview) -> tuple[list[Found], int | None]:  # noqa: C901, PLR0912, PLR0915 - one pass: a call for each batch would cost as much
    """The complete batches in fetched bytes, runs of small ones joined.

    The second is the offset of the first batch that doesn't match its checksum; what is before it is
    good. Batches of the old formats are checked when they are read.
    """
    found: list[Found] = []
    at, end = 0, len(data)
    unpack, small, numbers = FIELDS.unpack_from, _SMALL, _NUMBERS
    out = bytearray()
    count = batches = run_at = base = base_stamp = highest = epoch = 0
    while end - at >= HEADER_BYTES:
        offset, length, leader_epoch, magic, crc, attributes, last_delta, stamp, _, _, _, _, records = unpack(data, at)
        after = at + LOG_OVERHEAD + length
        if after > end:
            break
        if magic == MAGIC and crc32c(data[at + CRC_FROM : after]) != crc:
            _flush(found, data[run_at:at], Joined(base, epoch, count, base_stamp, highest, b"", batches), out)
            return found, offset
        body_at = at + HEADER_BYTES + 1
        several: list[tuple[int, memoryview]] | None = None
        if attributes or magic != MAGIC or last_delta != records - 1 or not 0 < records <= _FEW:
            usual = False
        elif records == 1:
            while data[body_at - 1] >= _ONE_BYTE:  # the record's length
                body_at += 1
            usual = not (data[body_at + 1] or data[body_at + 2])  # its timestamp and offset deltas
        else:
            several = _several(data[at + HEADER_BYTES : after], records, stamp)
            usual = several is not None
        if not usual:
            _flush(found, data[run_at:at], Joined(base, epoch, count, base_stamp, highest, b"", batches), out)
            found.extend(parse(data[at:after]))
            count, batches, out, at = 0, 0, bytearray(), after
            continue
        if count and (offset != base + count or count + records > _MOST or len(out) > _LARGEST):
            _flush(found, data[run_at:at], Joined(base, epoch, count, base_stamp, highest, b"", batches), out)
            count, batches, out = 0, 0, bytearray()
        if not count:
            run_at, base, base_stamp, highest = at, offset, stamp, stamp
        epoch = leader_epoch
        if several is None:
            if stamp == base_stamp:
                middle = b"\0\0" + numbers[count]
            else:
                highest = max(highest, stamp)
                middle = b"\0" + encoded(stamp - base_stamp) + numbers[count]
            size = (len(middle) + after - body_at - 3) << 1
            out += small[size] if size < _ONE_BYTE else encoded(size >> 1)
            out += middle
            out += data[body_at + 3 : after]
        else:
            for number, (stamped, body) in enumerate(several):
                highest = max(highest, stamped)
                middle = b"\0" + encoded(stamped - base_stamp) + numbers[count + number]
                out += encoded(len(middle) + len(body))
                out += middle
                out += body
        count += records
        batches += 1
        at = after
    _flush(found, data[run_at:at], Joined(base, epoch, count, base_stamp, highest, b"", batches), out)
    found.extend(parse(data[at:]))
    return found, None


def _several(data: memoryview, count: int, base_timestamp: int) -> list[tuple[int, memoryview]] | None:
    """Timestamp and body of each record of a payload; None where they aren't what the header says."""
    found = []
    at = 0
    try:
        for number in range(count):
            length, at = read_varint(data, at)
            end = at + length
            delta, at = read_varint(data, at + 1)
            index, at = read_varint(data, at)
            if index != number:
                return None
            found.append((base_timestamp + delta, data[at:end]))
            at = end
    except IndexError:
        return None
    return found if at == len(data) else None


def _flush(found: list[Found], run: memoryview, joined: Joined, out: bytearray) -> None:
    """Add the open run; one batch alone stays as it is."""
    if joined.batches == 1:
        found.extend(parse(run))
    elif joined.batches:
        found.append(joined._replace(payload=bytes(out)))


_SMALL = [bytes([value]) for value in range(_ONE_BYTE)]
_NUMBERS = [encoded(value) for value in range(_MOST)]
