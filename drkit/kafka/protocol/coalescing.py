"""Coalesces uncompressed batches of a few records while they are read, as producers that hardly batch write them.

For these the work per batch is work per record. So one pass over the fetched bytes checks each such batch
and adds its records to a payload, without creating an object for it; everything else is returned as
`Batch`, as by `drkit.kafka.protocol.record_batch.parse`.

Only the beginning of a coalesced record changes: its length, timestamp delta and offset delta. The rest is
copied unchanged.

In a backlog compiled code (`drkit.kafka.compiled`) does the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from drkit.kafka import compiled
from drkit.kafka.compiled import FARTHEST, FEW, GROWTH, LEAST, MOST, SMALL
from drkit.kafka.protocol.record_batch import (
    CRC_FROM,
    DELETE_HORIZON,
    FIELDS,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    Batch,
    batch_of,
    damaged_at,
    parse,
    shortest,
)
from drkit.kafka.protocol.records import (
    NUMBERS,
    Built,
    RawRecord,
    compress,
    decompress,
    encoded,
    read_plain,
    read_varint,
)

if TYPE_CHECKING:
    from drkit.kafka.compiled.native import Kernel


_LARGEST = 256 * 1024
_ONE_BYTE = 0x80

_SOME_FIELDS = struct.Struct(">qiibIhiq22xi")
"""A header without the highest timestamp and producer: unpacking all of them is a third of a batch's cost."""

_HEADER_LEFT = HEADER_BYTES - CRC_FROM
"""Bytes of the header that the checksum covers."""
_SHORT, _LONG = _HEADER_LEFT + 2, _HEADER_LEFT + 3
"""Where a batch's first record is stamped (behind its length and attributes), by whether its length takes one byte or
two."""
_LENGTH_END = _HEADER_LEFT + 2
_FIRST = struct.Struct(">q19xq")
"""A header's first offset and timestamp."""


class CoalescedRun(NamedTuple):
    """Uncompressed small batches in a row of one leader epoch, as one payload with consecutive offsets. `batches`: how
    many they were; `crc`: the last one's checksum."""

    base_offset: int
    leader_epoch: int
    records_count: int
    base_timestamp: int
    max_timestamp: int
    payload: bytes
    batches: int
    crc: int

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""
        return self.base_offset + self.records_count - 1

    def records(self) -> list[RawRecord]:
        """Its single records, if it must be split again."""
        return list(read_plain(self.payload, self.records_count, self.base_offset, self.base_timestamp))


Found = Batch | CoalescedRun


def scan(data: memoryview) -> tuple[list[Found], int | None]:
    """The complete batches in fetched bytes, runs of small ones joined.

    The second result is the offset of the first batch with a wrong checksum, an impossibly short length, or a base
    offset out of order, which no checksum covers; the batches before it are good. Of two batches out of order nobody
    knows which is in its place. Batches of the old formats are checked when they are decoded.
    """
    found, damaged = _scan(data)
    for index, (one, other) in enumerate(pairwise(found)):
        if other.base_offset <= one.last_offset:
            return found[:index], one.base_offset
    return found, damaged


def _scan(data: memoryview) -> tuple[list[Found], int | None]:
    """`scan`, without a look at their order."""
    found: list[Found] = []
    at, end = 0, len(data)
    unpack = FIELDS.unpack_from
    chunk, chunk_at, small = b"", 0, 0
    while end - at >= HEADER_BYTES:
        fields = unpack(data, at)
        if fields[1] < shortest(fields[3]):
            return found, fields[0]
        after = at + LOG_OVERHEAD + fields[1]
        if after > end:
            break
        if end - after >= HEADER_BYTES and _joins(fields, following := unpack(data, after)):
            if after + LOG_OVERHEAD + following[1] > chunk_at + len(chunk):
                chunk, chunk_at = bytes(data[at : at + _LARGEST]), at  # its slices cost less than a view's, and stay
            joined, next_at = _join(chunk, at - chunk_at)
            if joined is not None and joined.batches > 1:
                found.append(joined)
                small += joined.batches
                at = chunk_at + next_at
                continue
        if fields[3] == MAGIC and crc32c(data[at + CRC_FROM : after]) != fields[4]:
            return found, fields[0]
        found.append(batch_of(fields, data[at:after]))
        at = after
    compiled.found(small)
    if at == end:
        return found, None
    for batch in parse(data[at:]):  # a message of an old format may be shorter than a header of this one
        found.append(batch)
        at += len(batch.whole)
    return found, damaged_at(data[at:])


def _joins(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two headers (`FIELDS`) are of adjacent small plain batches: else nothing is copied."""
    return (
        LEAST <= one[1] < SMALL
        and LEAST <= other[1] < SMALL
        and not (one[5] or other[5])
        and one[2] == other[2]
        and other[0] == one[0] + one[12]
        and one[12] <= FEW
        and other[12] <= FEW
    )


def _join(chunk: bytes, at: int) -> tuple[CoalescedRun | None, int]:
    """The small batches from there on as one, up to the first that is of another kind, fails its checksum or isn't
    adjacent; and the position of that one. None if already the first one is such."""
    kernel = compiled.ready()
    return joined_plainly(chunk, at) if kernel is None else joined_natively(kernel, chunk, at)


def joined_natively(kernel: Kernel, chunk: bytes, at: int) -> tuple[CoalescedRun | None, int]:
    """As `_join`, by machine code."""
    base, base_stamp = _FIRST.unpack_from(chunk, at)
    batches, after, count, highest, epoch, crc, payload = kernel.join(chunk, at)
    return (CoalescedRun(base, epoch, count, base_stamp, highest, payload, batches, crc) if batches else None), after


def joined_plainly(chunk: bytes, at: int) -> tuple[CoalescedRun | None, int]:  # noqa: C901, PLR0912 - one pass: a call for each batch would cost as much
    """As `_join`, in plain Python."""
    unpack, numbers, unstamped = _SOME_FIELDS.unpack_from, NUMBERS, _UNSTAMPED
    base, _, epoch, _, _, _, _, base_stamp, _ = unpack(chunk, at)
    end, last_start = len(chunk), len(chunk) - HEADER_BYTES
    count = batches = highest = last = 0
    parts: list[bytes] = []
    add = parts.append
    while at <= last_start and count <= MOST - FEW:
        offset, length, leader_epoch, magic, crc, attributes, last_delta, stamp, records = unpack(chunk, at)
        after = at + LOG_OVERHEAD + length
        if after > end or attributes or offset != base + count or magic != MAGIC or leader_epoch != epoch:
            break
        if last_delta != records - 1 or not 0 < records <= FEW or not LEAST <= length < SMALL:
            break
        covered = chunk[at + CRC_FROM : after]
        if crc32c(covered) != crc:
            break
        delta = stamp - base_stamp
        inside = after - at - HEADER_BYTES
        if covered[_HEADER_LEFT] < _ONE_BYTE:
            place = _SHORT if covered[_HEADER_LEFT] == inside - 1 << 1 else 0
        else:
            place = _LONG if inside <= MOST and covered[_HEADER_LEFT:_LENGTH_END] == numbers[inside - 2] else 0
        if records == 1 and place and not (covered[place] or covered[place + 1]):
            several: tuple[tuple[int, bytes], ...] = ((delta, covered[place + 2 :]),)
        else:
            found = _several(covered, records, delta)
            if found is None:  # its records contradict its header: leave them unchanged
                break
            several = found
        for delta, body in several:
            if not delta:
                middle = unstamped[count]
            elif 0 < delta < MOST:
                middle = b"\0" + numbers[delta] + numbers[count]
            else:
                middle = b"\0" + encoded(delta) + numbers[count]
            if delta > highest:  # noqa: PLR1730 - `max` takes twice the time, for each record
                highest = delta
            size = len(middle) + len(body)
            add(numbers[size] if size < MOST else encoded(size))
            add(middle)
            add(body)
            count += 1
        batches += 1
        at, last = after, crc
    if not batches:
        return None, at
    return CoalescedRun(base, epoch, count, base_stamp, base_stamp + highest, b"".join(parts), batches, last), at


def _several(covered: bytes, records: int, since: int) -> tuple[tuple[int, bytes], ...] | None:
    """What a batch's records are stamped by, `since` added, and what they hold; None where they aren't what its header
    says. `covered`: the batch from its attributes on."""
    found = []
    stop, end = _HEADER_LEFT, len(covered)
    try:
        for number in range(records):
            size, at = read_varint(covered, stop)
            stop = at + size
            stamp, at = read_varint(covered, at + 1)
            if covered[at] != number << 1:
                return None
            found.append((since + stamp, covered[at + 1 : stop]))
    except IndexError:
        return None
    return tuple(found) if stop == end else None


_UNSTAMPED = [b"\0\0" + number for number in NUMBERS]


def merged(batches: Sequence[Batch], room: int) -> list[tuple[int, Built]] | None:
    """Complete batches of one codec as few, none with more than `room` plain bytes; of each how many it was made of.

    None where there is no machine code (yet), or for what is left to plain Python: a batch that is larger than that,
    one whose stamps count from a delete horizon (KIP-534), one that isn't what its header says.

    Raises:
        Damaged: one can't be decompressed.
    """
    kernel = compiled.ready()
    if kernel is None:
        compiled.found(len(batches))
        return None
    if any(batch.attributes & DELETE_HORIZON for batch in batches):
        return None
    plains = [bytes(decompress(batch.codec, batch.records)) for batch in batches]
    sizes = [len(plain) + GROWTH * batch.records_count for plain, batch in zip(plains, batches, strict=True)]
    if max(sizes) > room:
        return None
    found = []
    for begin, end in pairwise(_cuts(sizes, room)):
        built = _built(kernel, batches[begin:end], plains[begin:end])
        if built is None:
            return None
        found.append((end - begin, built))
    return found


def _cuts(sizes: Sequence[int], room: int) -> Iterator[int]:
    """Where one of them ends and the next begins, from 0 to the end."""
    yield 0
    taken = 0
    for index, size in enumerate(sizes):
        if taken + size > room:
            yield index
            taken = 0
        taken += size
    yield len(sizes)


def _built(kernel: Kernel, batches: Sequence[Batch], plains: Sequence[bytes]) -> Built | None:
    base = batches[0].base_timestamp
    since = [batch.base_timestamp - base for batch in batches]
    if not -FARTHEST < min(since) <= max(since) < FARTHEST:
        return None
    counts = [batch.records_count for batch in batches]
    done = kernel.merge(list(zip(plains, counts, since, strict=True)))
    if done is None:
        return None
    payload, highest = done
    return Built(sum(counts), base, base + highest, compress(batches[0].codec, payload))
