"""The digest of one record batch at its offset: the same for its writer and its reader. Pure."""

from __future__ import annotations

from struct import Struct

from xxhash import xxh3_128, xxh3_128_intdigest

_pack = Struct(">q").pack
_SMALL = 4096
"""Bytes that are sooner copied than hashed in two steps."""


def placed_digest(base_offset: int, head: bytes | memoryview, records: bytes | memoryview) -> int:
    """128 bits over the batch's first offset, what its records are read by, and the records as they lie in it.

    Of the header these are attributes, last offset delta and base timestamp: what a broker leaves as it was produced.
    Base offset, leader epoch, producer and checksum are the log's own, and the highest timestamp is what the broker
    finds in the records. The number of records is the last delta and one where no offset is missing, which is for
    the reader to check.

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
