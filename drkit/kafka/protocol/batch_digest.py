"""The digest of one record batch at its offset: the same for its writer and its reader. Pure."""

from __future__ import annotations

from struct import Struct

from xxhash import xxh3_128, xxh3_128_intdigest

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
