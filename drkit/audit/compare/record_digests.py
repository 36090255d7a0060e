"""A record's digest as Spark's columns have it (`record_frames.digest_columns`), for records decoded in a task. Pure.

Spark's `xxhash64` hashes its arguments one after the other, each with the hash of those before as its seed; numbers
as 4 or 8 bytes, little-endian; nulls are skipped. Each argument's hash is XXH64.
"""

from __future__ import annotations

import struct

from xxhash import xxh64_intdigest

from drkit.kafka.protocol.record_columns import Headers

_FIRST_SEED = 42  # Spark's
_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
_NULL = _INT.pack(-1)
_LONGEST_NEEDLE = 256
_BEYOND = 1 << 63

Digest = tuple[int, int]
"""Two signed numbers of 64 bits."""


def content_digest(key: bytes | None, value: bytes | None, stamp: int, headers: Headers | None) -> Digest:
    """128 bits over key, value, headers in their order, and timestamp (ms); null and empty differ."""
    parts: list[bytes] = []
    _add(parts, key)
    _add(parts, value)
    parts.append(_LONG.pack(stamp))
    parts.append(_INT.pack(len(headers or ())))
    for name, content in headers or ():
        parts.append(name.encode(errors="surrogateescape"))
        _add(parts, content)
    return _chained(1, parts), _chained(2, parts)


def longest(key: bytes | None, value: bytes | None) -> bytes:
    """The part of a record to look for it with: of its value or key, whichever is longer, as much as is of use."""
    return max((part for part in (value, key) if part is not None), key=len, default=b"")[:_LONGEST_NEEDLE]


def _add(parts: list[bytes], content: bytes | None) -> None:
    if content is None:
        parts.append(_NULL)
    else:
        parts.append(_INT.pack(len(content)))
        parts.append(content)


def _chained(start: int, parts: list[bytes]) -> int:
    seed = xxh64_intdigest(_INT.pack(start), _FIRST_SEED)
    for part in parts:
        seed = xxh64_intdigest(part, seed)
    return seed - (_BEYOND << 1) if seed >= _BEYOND else seed
