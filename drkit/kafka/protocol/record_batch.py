"""Kafka's record batch, format version 2: its header, read and rewritten without touching the records. Pure.

A batch is 61 bytes of header and the records, compressed or not (big-endian; KIP-98, and Kafka's
`DefaultRecordBatch`):

    0  baseOffset i64        8  length i32             12 partitionLeaderEpoch i32   16 magic i8
    17 crc u32               21 attributes i16         23 lastOffsetDelta i32        27 baseTimestamp i64
    35 maxTimestamp i64      43 producerId i64         51 producerEpoch i16          53 baseSequence i32
    57 count i32             61 records …

`length` counts from byte 12; the CRC-32C covers everything from the attributes on. Older formats
(magic 0 and 1) share only the first two fields and the place of the magic byte; their CRC-32 stands at 12 and
covers everything from 16 on (Kafka's `LegacyRecord`).

`Batch` is a view into the fetched bytes: nothing is copied before a request is built.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from crc32c import crc32c
from xxhash import xxh3_128, xxh3_128_intdigest

HEADER_BYTES = 61
LOG_OVERHEAD = 12
_MAGIC_AT = 16
CRC_FROM = 21
_SHORTEST_OLD = 14
_OLD_CRC_AT, _OLD_CRC_UNTIL = 12, 16
MAGIC = 2
UNKNOWN_EPOCH = -1
"""An unknown or absent leader epoch."""

FIELDS = struct.Struct(">qiibIhiqqqhii")
"""All of the header, in the order of the module docstring."""
_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")
_PREFIX = struct.Struct(">qi")

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

SEQUENCES = 2**31
"""Sequence numbers wrap at this."""


_EPOCH_AT = 51
"""Where a header of format 2 has the producer's epoch."""


class Batch(NamedTuple):
    """One fetched batch. `records` is what follows the header, `whole` the batch with it.

    For magic 0 and 1 only `base_offset`, `magic` and `whole` mean anything.
    """

    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    records_count: int
    whole: memoryview

    @property
    def last_offset(self) -> int:
        """The offset of its last record, or of the last that was removed from it."""
        return self.base_offset + self.last_delta

    @property
    def records(self) -> memoryview:
        """The records as they lie in the batch, compressed by `codec`."""
        return self.whole[HEADER_BYTES:]

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether its records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def producer_epoch(self) -> int:
        """Its producer's epoch (format 2); -1: it has none."""
        return int.from_bytes(self.whole[_EPOCH_AT : _EPOCH_AT + 2], "big", signed=True)

    def intact(self) -> bool:
        """Whether the bytes match their checksum (format 2)."""
        return crc32c(self.whole[CRC_FROM:]) == self.crc

    @property
    def readable(self) -> bool:
        """Whether a consumer that checks CRCs accepts it. For an old format's messages only decoding can tell."""
        if self.magic >= MAGIC:
            return self.intact()
        return crc32(self.whole[_OLD_CRC_UNTIL:]) == int.from_bytes(self.whole[_OLD_CRC_AT:_OLD_CRC_UNTIL], "big")


def parse(data: memoryview) -> Iterator[Batch]:
    """The complete batches in fetched bytes; a partial one at the end (the broker cuts there) is dropped, and so is
    everything from a batch with an impossibly short length on."""
    at, end = 0, len(data)
    while end - at >= HEADER_BYTES:
        fields = FIELDS.unpack_from(data, at)
        after = at + LOG_OVERHEAD + fields[1]
        if after > end or fields[1] < shortest(fields[3]):
            return
        yield batch_of(fields, data[at:after])
        at = after
    # a message of an old format may be shorter than a v2 header
    while end - at > _MAGIC_AT:
        base_offset, length = _PREFIX.unpack_from(data, at)
        after = at + LOG_OVERHEAD + length
        magic = data[at + _MAGIC_AT]
        if after > end or magic >= MAGIC or length < _SHORTEST_OLD:
            return
        yield Batch(base_offset, -1, magic, 0, 0, 0, -1, -1, -1, 1, data[at:after])
        at = after


def unreadable(first: int, until: int) -> Batch:
    """A placeholder for the offsets [first, until) of a log without a valid batch: it is never `readable`."""
    return Batch(first, -1, MAGIC, 1, 0, until - first - 1, -1, -1, -1, until - first, memoryview(b""))


def shortest(magic: int) -> int:
    """The least `length` of a batch, in bytes: a header, or a message without key and value (format 0)."""
    return HEADER_BYTES - LOG_OVERHEAD if magic >= MAGIC else _SHORTEST_OLD


def damaged_at(data: memoryview) -> int | None:
    """The offset of the batch that begins there, if its length is impossibly short."""
    if len(data) <= _MAGIC_AT:
        return None
    base_offset, length = _PREFIX.unpack_from(data)
    return int(base_offset) if length < shortest(data[_MAGIC_AT]) else None


def batch_of(fields: tuple[int, ...], whole: memoryview) -> Batch:
    """A batch by the fields of its header (`FIELDS`)."""
    base, _, leader_epoch, magic, crc, attributes, last_delta, first, most, producer_id, _, _, count = fields
    if magic < MAGIC:  # what follows the magic byte is another format's
        return Batch(base, -1, magic, 0, 0, 0, -1, -1, -1, 1, whole)
    return Batch(base, leader_epoch, magic, crc, attributes, last_delta, first, most, producer_id, count, whole)


def header(
    *,
    attributes: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    records: bytes | memoryview,
) -> bytes:
    """The header of a batch to be produced: base offset 0, no leader epoch, CRC over all that follows it.

    `count` records with consecutive offsets. The attributes keep codec and time stamp type only:
    transactional bit, control bit and delete horizon belong to the log it came from.
    """
    kept = attributes & (CODEC_MASK | LOG_APPEND_TIME)
    tail = _AFTER_CRC.pack(
        kept, count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
    )
    length = HEADER_BYTES - LOG_OVERHEAD + len(records)
    return _BEFORE_CRC.pack(0, length, -1, MAGIC, crc32c(records, crc32c(tail))) + tail


def next_sequence(sequence: int, count: int) -> int:
    """The sequence number after `count` records from `sequence` on."""
    return (sequence + count) % SEQUENCES


_pack = Struct(">q").pack
_SMALL = 4096
"""The size up to which copying is faster than hashing in two steps."""


def placed_digest(base_offset: int, head: bytes | memoryview, records: bytes | memoryview) -> int:
    """128 bits over the batch's first offset, the header fields needed to decode its records, and its records.

    These fields are attributes, last offset delta and base timestamp, which a broker leaves as produced. Base offset,
    leader epoch, producer and checksum belong to the log, and the broker computes the highest timestamp from the
    records. The number of records is the last delta plus one if no offset is missing, which the reader must check.

    Args:
        base_offset: of its first record, on the target.
        head: the batch's header, of format 2; more bytes may follow.
        records: what follows the header.
    """
    prefix = _pack(base_offset) + head[21:35]
    if len(records) < _SMALL:
        return xxh3_128_intdigest(prefix + records)
    state = xxh3_128(prefix)
    state.update(records)
    return state.intdigest()
