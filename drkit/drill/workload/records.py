"""The workload's records: writing and recognizing them.

A value is JSON with the drill, the key and the record's number; a digest covers key, value, headers and timestamp, so
that it reveals any change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from drkit.drill.judge.history import RecordId

HEADER = "drill"


def value_of(drill: str, record: RecordId, size: int) -> bytes:
    """The value of a record, padded to about `size` bytes."""
    body = json.dumps({"drill": drill, "key": record.key, "seq": record.seq}, separators=(",", ":"))[:-1]
    pad = max(0, size - len(body) - len(',"pad":""}'))
    return f'{body},"pad":"{"x" * pad}"}}'.encode()


def record_of(drill: str, key: bytes | None, value: bytes | None) -> RecordId | None:
    """The record of this drill with these bytes; None if there is none."""
    if key is None or value is None:
        return None
    try:
        body = json.loads(value)
        record = RecordId(body["key"], body["seq"])
        mine = body["drill"] == drill
    except (ValueError, KeyError, TypeError):
        return None
    typed = isinstance(record.key, str) and isinstance(record.seq, int)
    return record if mine and typed and record.key.encode() == key else None


def digest_of(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]], timestamp: int
) -> int:
    """A 63-bit digest of everything that must arrive unchanged. `timestamp` in ms."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (key, value, *(piece for name, content in headers for piece in (name.encode(), content))):
        digest.update(b"-" if part is None else b"+" + len(part).to_bytes(8, "big") + part)
    digest.update(timestamp.to_bytes(8, "big", signed=True))
    return int.from_bytes(digest.digest(), "big") >> 1
