"""The records inside a batch that must be split: read, dropped, given other timestamps, encoded again. Pure.

A record of format 2 is (varints are zigzag-coded, KIP-98):

    length varint | attributes i8 | timestampDelta varlong | offsetDelta varint | key, value, headers …

Key, value and headers (`body`) are copied as bytes and never decoded, so that they arrive unchanged.
 Only batches of the old formats (magic 0 and 1) are decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import cramjam

from drkit.kafka.compiled import MOST
from drkit.kafka.protocol.record_batch import LOG_APPEND_TIME, Batch

_LZ4 = 3
_CODECS = {1: "gzip", 2: "snappy", _LZ4: "lz4", 4: "zstd"}
_IN_PLACE = {_LZ4: "lz4", 4: "zstd"}
KNOWN_CODECS = "0 (none), " + ", ".join(f"{number} ({name})" for number, name in _CODECS.items())
"""In words."""
_ONE_BYTE = 0x80
_LOW = 0x7F


class RawRecord(NamedTuple):
    """One record: its offset, its timestamp in ms, and its key, value and headers as they are encoded."""

    offset: int
    timestamp: int
    body: bytes | memoryview


class Damaged(Exception):
    """A batch whose records can't be read although its checksum fits, or whose codec isn't known."""


@cache
def _coder(codec: int, *, encodes: bool) -> Callable[..., Any] | None:
    """The function that compresses or decompresses with a codec; None: unknown codec.

    aiokafka is imported only for a compressed batch: it takes a tenth of a short command, which mostly reads none.
    """
    from aiokafka import codec as codecs  # noqa: PLC0415 - see the docstring

    name = _CODECS.get(codec)
    return None if name is None else getattr(codecs, f"{name}_{'encode' if encodes else 'decode'}")


def knows_codec(codec: int) -> bool:
    """Whether drkit can decompress it."""
    return codec == 0 or codec in _CODECS


def decompress(codec: int, data: bytes | memoryview) -> bytes | memoryview:
    """The plain records of a batch."""
    if codec == 0:
        return data
    decode = _coder(codec, encodes=False)
    if decode is None:
        raise Damaged(f"compression codec {codec} is not known: drkit knows {KNOWN_CODECS}")
    try:
        plain: bytes = decode(bytes(data))
    except Exception as error:
        raise Damaged(f"the records can't be decompressed: {error}") from error
    return plain


class PlainBuffer:
    """A buffer into which batches are decompressed in turn, for callers that only read the bytes.

    A new buffer for each batch costs as much as LZ4's work: the allocator gets such large blocks from the kernel
    each time, and aiokafka's codecs copy twice. Used by one thread.
    """

    def __init__(self) -> None:
        self._plain = bytearray(1 << 20)

    def fill(self, codec: int, data: bytes | memoryview) -> tuple[bytes | bytearray, int]:
        """The plain records of a batch, and how many bytes of what is returned they are. Valid until the next call.

        Raises:
            Damaged: they can't be read.
        """
        name = _IN_PLACE.get(codec)
        if name is not None:
            try:
                return self._plain, int(getattr(cramjam, name).decompress_into(data, self._plain))
            except cramjam.DecompressionError:  # no room, or a damaged batch: the slow path decides
                plain = bytes(decompress(codec, data))
                if len(plain) > len(self._plain):
                    self._plain = bytearray(len(plain))
                return plain, len(plain)
        plain = bytes(decompress(codec, data))
        return plain, len(plain)


def compress(codec: int, data: bytes, *, tight: bool = False) -> bytes:
    """Records compressed with a codec; `tight`: as small as possible, without regard to time."""
    if codec == 0:
        return data
    encode = _coder(codec, encodes=True)
    if encode is None:
        raise KeyError(codec)
    if codec == _LZ4 and not tight:
        encode = partial(encode, level=1)  # as Kafka's clients do; aiokafka's default takes fifteen times as long
    packed: bytes = encode(data)
    return packed


def read(batch: Batch) -> Iterator[RawRecord]:
    """The records of a batch of format 2, in order.

    Raises:
        Damaged: they can't be read.
    """
    data = decompress(batch.codec, batch.records)
    stamp = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else None
    return read_plain(data, batch.records_count, batch.base_offset, batch.base_timestamp, stamp)


def read_plain(
    data: bytes | memoryview, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> Iterator[RawRecord]:
    """The records of a plain payload, in order; `append_time` (ms) replaces their own timestamps.

    Raises:
        Damaged: they can't be read.
    """
    at = 0
    try:
        for _ in range(count):
            # varints of one or two bytes are read inline: a call for each is most of a record's cost
            first, second = data[at], data[at + 1]
            if first < _ONE_BYTE:
                length, at = (first >> 1) ^ -(first & 1), at + 1
            elif second < _ONE_BYTE:
                value = first & _LOW | second << 7
                length, at = (value >> 1) ^ -(value & 1), at + 2
            else:
                length, at = read_varint(data, at)
            end = at + length
            at += 1  # the record's attributes: none are defined
            first = data[at]
            if first < _ONE_BYTE:
                delta, at = (first >> 1) ^ -(first & 1), at + 1
            else:
                delta, at = read_varint(data, at)
            first, second = data[at], data[at + 1]
            if first < _ONE_BYTE:
                offset, at = (first >> 1) ^ -(first & 1), at + 1
            elif second < _ONE_BYTE:
                value = first & _LOW | second << 7
                offset, at = (value >> 1) ^ -(value & 1), at + 2
            else:
                offset, at = read_varint(data, at)
            stamp = base_timestamp + delta if append_time is None else append_time
            yield RawRecord(base_offset + offset, stamp, data[at:end])
            at = end
    except IndexError as error:
        raise Damaged(f"the records of the batch at offset {base_offset} end too early") from error
    if at != len(data):
        raise Damaged(f"the records of the batch at offset {base_offset} take {at} bytes, and there are {len(data)}")


class Built(NamedTuple):
    """Encoded records: the values for their header, and their bytes."""

    records_count: int
    base_timestamp: int
    max_timestamp: int
    payload: bytes


def build(records: Sequence[RawRecord], codec: int, *, tight: bool = False) -> Built:
    """Encode records as one batch's payload with consecutive offsets instead of theirs."""
    base = records[0].timestamp
    highest = base
    parts: list[bytes | memoryview] = []
    add = parts.append
    for number, (_, stamp, body) in enumerate(records):
        if stamp == base:
            middle = b"\0\0" + (NUMBERS[number] if number < MOST else encoded(number))
        else:
            highest = max(highest, stamp)
            middle = b"\0" + encoded(stamp - base) + (NUMBERS[number] if number < MOST else encoded(number))
        size = len(middle) + len(body)
        add(NUMBERS[size] if size < MOST else encoded(size))
        add(middle)
        add(body)
    return Built(len(records), base, highest, compress(codec, b"".join(parts), tight=tight))


def read_old(data: memoryview) -> list[RawRecord]:
    """The records of messages in the formats 0 and 1 (KIP-32), as format 2 would hold them.

    Raises:
        Damaged: they can't be read.
    """
    found = []
    damaged = False
    from aiokafka.record.memory_records import MemoryRecords  # noqa: PLC0415 - as for `_coder`

    try:
        memory = MemoryRecords(bytes(data))
        while memory.has_next():
            batch = memory.next_batch()
            if batch is None:
                break
            if not batch.validate_crc():
                damaged = True
                break
            for record in batch:
                stamp = -1 if record.timestamp is None else record.timestamp
                found.append(RawRecord(record.offset, stamp, _body(record.key, record.value)))
    except Exception as error:
        raise Damaged(f"messages of an old format can't be read: {error}") from error
    if damaged:
        raise Damaged("a message of an old format does not match its checksum")
    return found


def filler(count: int) -> bytes:
    """The plain payload of `count` records without key, value and headers."""
    return build([RawRecord(0, 0, EMPTY_BODY)] * count, 0).payload


def _body(key: bytes | None, value: bytes | None) -> bytes:
    """Key and value as format 2 encodes them, without headers."""
    out = bytearray()
    for part in (key, value):
        if part is None:
            out += encoded(-1)
        else:
            out += encoded(len(part))
            out += part
    out += b"\0"
    return bytes(out)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A zigzag-coded varint, and where it ends."""
    byte = data[at]
    at += 1
    if byte < _ONE_BYTE:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & _LOW, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & _LOW) << shift
        if byte < _ONE_BYTE:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def encoded(value: int) -> bytes:
    """A number as a zigzag-coded varint (Protocol Buffers' sint64)."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    if value < _ONE_BYTE:
        return _SMALL[value]
    out = bytearray()
    while value >= _ONE_BYTE:
        out.append((value & _LOW) | _ONE_BYTE)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes([value]) for value in range(_ONE_BYTE)]
NUMBERS = [encoded(value) for value in range(MOST)]
"""The first numbers as varints."""
EMPTY_BODY = b"\x01\x01\x00"
"""The body of a record without key, value and headers."""
