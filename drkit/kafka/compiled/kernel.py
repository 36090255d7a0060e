"""The loops over single records that decide what badly batched sources cost, compiled by Numba when this is imported.

`drkit.kafka.protocol.coalescing` and `drkit.kafka.protocol.records` do the same in plain Python, and tests compare the
two byte for byte. They are C callbacks (`numba.cfunc`), which take plain pointers: over arrays Numba would check each
index for being negative, at twice the cost. Compiled code is cached (`cache=True`).

Nothing that the bytes say is trusted: each place is checked against their end before it is read, and a batch that
isn't what its header says is left out. The caller ensures that a whole header lies at `at`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc, njit, types

from drkit.kafka.compiled import FARTHEST, FEW, GROWTH, LEAST, MOST, SMALL
from drkit.kafka.protocol.record_batch import CRC_FROM, HEADER_BYTES, LOG_OVERHEAD, MAGIC

_POLYNOMIAL = 0x82F63B78
_STEP = 8


def tables() -> list[int]:
    """Eight tables of 256 in a row: what a byte does to the checksum, in table k that with k bytes behind it."""
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    for at in range(256 * (_STEP - 1)):
        crc = found[at]
        found.append(found[crc & 0xFF] ^ (crc >> 8))
    return found


_BYTES: Any = types.CPointer(types.uint8)  # type: ignore[no-untyped-call]
_NUMBERS: Any = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
_INT = types.int64
_TABLES = np.array(tables(), dtype=np.uint32)
_BROKEN = -1
_MORE, _LOW, _BITS = 0x80, 0x7F, 64
"""Of a varint: the bit that says that it continues, the seven below it, and how many its value has."""


@njit(inline="always")
def _int32(data: Any, at: Any) -> Any:
    high = (np.int64(data[at]) << 24) | (np.int64(data[at + 1]) << 16)
    return np.int64(np.int32(high | (np.int64(data[at + 2]) << 8) | np.int64(data[at + 3])))


@njit(inline="always")
def _int64(data: Any, at: Any) -> Any:
    return (_int32(data, at) << 32) | (_int32(data, at + 4) & 0xFFFFFFFF)


@njit
def _checksum(data: Any, at: Any, end: Any) -> Any:
    """CRC-32C, eight bytes a step; see `tables`."""
    crc = np.uint32(0xFFFFFFFF)
    low = np.uint32(0xFF)
    while end - at >= _STEP:
        word = np.uint32(data[at]) | (np.uint32(data[at + 1]) << np.uint32(8))
        word |= (np.uint32(data[at + 2]) << np.uint32(16)) | (np.uint32(data[at + 3]) << np.uint32(24))
        word ^= crc
        crc = _TABLES[7 * 256 + (word & low)] ^ _TABLES[6 * 256 + ((word >> np.uint32(8)) & low)]
        crc ^= _TABLES[5 * 256 + ((word >> np.uint32(16)) & low)] ^ _TABLES[4 * 256 + (word >> np.uint32(24))]
        crc ^= _TABLES[3 * 256 + data[at + 4]] ^ _TABLES[2 * 256 + data[at + 5]]
        crc ^= _TABLES[256 + data[at + 6]] ^ _TABLES[data[at + 7]]
        at += _STEP
    while at < end:
        crc = _TABLES[(crc ^ data[at]) & low] ^ (crc >> np.uint32(8))
        at += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@njit
def _read(data: Any, at: Any, end: Any) -> Any:
    """A zigzag-coded varint and where it ends; that is -1 where the bytes do, or where it is longer than any."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < _BITS:
        byte = data[at]
        at += 1
        if shift == _BITS - 1 and byte > 1:
            break
        value |= np.uint64(byte & _LOW) << shift
        if byte < _MORE:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(_BROKEN)


@njit(inline="always")
def _size(value: Any) -> Any:
    """Bytes of a number as a varint."""
    rest, size = np.uint64((value << 1) ^ (value >> 63)), 1
    while rest >= _MORE:
        rest >>= np.uint64(7)
        size += 1
    return size


@njit(inline="always")
def _write(out: Any, at: Any, value: Any) -> Any:
    """A number as a varint; returns where it ends."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= _MORE:
        out[at] = np.uint8(rest & np.uint64(_LOW)) | np.uint8(_MORE)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@njit
def _renumbered(
    data: Any, at: Any, end: Any, out: Any, place: Any, records: Any, since: Any, number: Any, highest: Any
) -> Any:
    """Write records again at `place`: stamped later by `since` ms, numbered from `number` on.

    Returns where that ends (-1: they aren't what they should be) and the highest stamp, theirs or the one given.
    """
    for index in range(records):
        size, at = _read(data, at, end)
        if at < 0:
            return np.int64(_BROKEN), highest
        stop = at + size
        stamp, at = _read(data, at + 1, end)  # behind the record's attributes: none are defined
        if at < 0:
            return np.int64(_BROKEN), highest
        offset, at = _read(data, at, end)
        if at < 0 or stop < at or stop > end or offset != index or not -FARTHEST < stamp < FARTHEST:
            return np.int64(_BROKEN), highest
        stamp += since
        highest = max(highest, stamp)
        body = stop - at
        place = _write(out, place, 1 + _size(stamp) + _size(number + index) + body)
        out[place] = 0
        place = _write(out, _write(out, place + 1, stamp), number + index)
        for byte in range(body):
            out[place + byte] = data[at + byte]
        place += body
        at = stop
    return (place if at == end else np.int64(_BROKEN)), highest


@cfunc(_INT(_BYTES, _INT, _INT, _BYTES, _INT, _NUMBERS), cache=True)
def join(data: Any, at: Any, end: Any, out: Any, room: Any, result: Any) -> Any:
    """Join the small plain batches from `at` on into one payload, as `drkit.kafka.protocol.coalescing` does.

    `result`: where the first that isn't joined begins, records, bytes written, the highest timestamp, their
    leader epoch, the checksum of the last one. Returns how many batches were joined.
    """
    base, base_stamp, epoch = _int64(data, at), _int64(data, at + 27), _int32(data, at + 12)
    count, place, batches, highest, last = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    while end - at >= HEADER_BYTES and count <= MOST - FEW:
        length, records, stamp = _int32(data, at + 8), _int32(data, at + 57), _int64(data, at + 27)
        if not LEAST <= length < SMALL or not 0 < records <= FEW or _int32(data, at + 23) != records - 1:
            break
        after = at + LOG_OVERHEAD + length
        if after > end or _int64(data, at) != base + count or data[at + 16] != MAGIC or data[at + 21] or data[at + 22]:
            break
        if _int32(data, at + 12) != epoch:
            break
        if not (-FARTHEST < stamp < FARTHEST and -FARTHEST < base_stamp < FARTHEST):
            break
        if place + length + GROWTH * records > room:
            break
        crc = _int32(data, at + 17) & 0xFFFFFFFF
        if _checksum(data, at + CRC_FROM, after) != crc:
            break
        since = stamp - base_stamp
        written, most = _renumbered(data, at + HEADER_BYTES, after, out, place, records, since, count, highest)
        if written < 0:
            break
        place, highest = written, most
        count += records
        batches += 1
        at, last = after, crc
    result[0], result[1], result[2], result[3] = at, count, place, base_stamp + highest
    result[4], result[5] = epoch, last
    return batches


@cfunc(_INT(_BYTES, _INT, _BYTES, _INT, _INT, _INT, _INT, _INT, _NUMBERS), cache=True)
def renumber(
    data: Any, end: Any, out: Any, place: Any, room: Any, records: Any, since: Any, number: Any, result: Any
) -> Any:
    """Write a batch's plain records again at `place`: stamped later by `since` ms, numbered from `number` on.

    `result`: the highest stamp, theirs or the one that it holds already. Returns where that ends; -1 where there is no
    room or they aren't what they should be.
    """
    if records < 1 or room - place - end < GROWTH * records or not -FARTHEST < since < FARTHEST:
        return np.int64(_BROKEN)
    written, highest = _renumbered(data, np.int64(0), end, out, place, records, since, number, result[0])
    result[0] = highest
    return written
