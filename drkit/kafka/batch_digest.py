"""The digest of one record batch at its place: for who appends it and for who reads it there. Pure."""

from __future__ import annotations

from struct import Struct

from xxhash import xxh3_128

_PLACE = Struct(">q")


def placed_digest(base_offset: int, head: bytes | memoryview, records: bytes | memoryview) -> int:
    """128 bits over the batch's first offset, what its records are read by, and the records as they lie in it.

    Of the header these are attributes, last offset delta, base timestamp and record count: what a broker leaves as
    it was produced. Base offset, leader epoch, producer and checksum are the log's own, and the highest timestamp
    is what the broker finds in the records.

    Args:
        base_offset: of its first record, on the target.
        head: the batch's header, of format 2; more bytes may follow.
        records: what follows the header.
    """
    state = xxh3_128(_PLACE.pack(base_offset) + bytes(head[21:35]) + bytes(head[57:61]))
    state.update(records)
    return state.intdigest()
