"""The time of sending, carried in a record's value. The clock is monotonic and one for all processes of a machine."""

from __future__ import annotations

import time

_PREFIX = b'{"sent_ns":"'
_DIGITS = 19
_STAMP = slice(len(_PREFIX), len(_PREFIX) + _DIGITS)


def stamped(filler: bytes, at_ns: int) -> bytes:
    """A JSON value that carries `at_ns`, padded with `filler` (no quotes or backslashes in it)."""
    return _PREFIX + str(at_ns).zfill(_DIGITS).encode() + b'","note":"' + filler + b'"}'


OVERHEAD = len(stamped(b"", 0))
"""Bytes of a value besides its filler."""


def sent_ns(value: bytes) -> int:
    """When a value was sent, nanoseconds of the monotonic clock."""
    return int(value[_STAMP])


def now_ns() -> int:
    """Now, on that clock."""
    return time.monotonic_ns()
