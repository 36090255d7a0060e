"""The compiled loops, called with bytes. Other threads continue while they run: ctypes releases the GIL."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from drkit.kafka.compiled import FEW, GROWTH
from drkit.kafka.compiled.kernel import join, renumber
from drkit.kafka.protocol.record_batch import HEADER_BYTES

_INT = ctypes.c_int64
_POINTER = ctypes.c_void_p
_JOIN = ctypes.CFUNCTYPE(_INT, ctypes.c_char_p, _INT, _INT, _POINTER, _INT, _POINTER)
_RENUMBER = ctypes.CFUNCTYPE(_INT, ctypes.c_char_p, _INT, _POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER)
_RESULT = ctypes.c_int64 * 6
_LOWEST = -(2**63)


class JoinedBatches(NamedTuple):
    """What `Kernel.join` made of so many batches. `after`: where the first begins that isn't among them; `crc`: the
    last one's checksum."""

    batches: int
    after: int
    records_count: int
    max_timestamp: int
    leader_epoch: int
    crc: int
    payload: bytes


class _Workspace(threading.local):
    """Memory to work in, each thread its own: making it again would cost more than joining two batches."""

    def __init__(self) -> None:
        self._bytes, self._room = ctypes.create_string_buffer(0), 0
        self._result = _RESULT()

    def for_bytes(self, needed: int) -> tuple[int, int, Any]:
        """The address and size of so many bytes, and room for the numbers of an answer."""
        if self._room < needed:
            self._bytes, self._room = ctypes.create_string_buffer(needed), needed
        return ctypes.addressof(self._bytes), self._room, self._result


class Kernel:
    """The functions of `drkit.kafka.compiled.kernel`, which importing this module compiles or loads from the cache."""

    def __init__(self) -> None:
        self._join, self._renumber = _JOIN(cast("int", join.address)), _RENUMBER(cast("int", renumber.address))
        self._workspace = _Workspace()

    def join(self, chunk: bytes, at: int) -> JoinedBatches:
        """The small plain batches from `at` on as one payload; none where not even the first is one.

        Raises:
            ValueError: there is no whole header at `at`.
        """
        if not 0 <= at <= len(chunk) - HEADER_BYTES:
            raise ValueError(f"no batch header at {at} of {len(chunk)} bytes")
        out, room, result = self._workspace.for_bytes(len(chunk) - at + FEW * GROWTH)
        batches = self._join(chunk, at, len(chunk), out, room, result)
        after, count, size, highest, epoch, crc = result
        return JoinedBatches(batches, after, count, highest, epoch, crc, ctypes.string_at(out, size))

    def merge(self, parts: Sequence[tuple[bytes, int, int]]) -> tuple[bytes, int] | None:
        """Plain payloads as one, numbered throughout.

        Args:
            parts: of each its bytes, how many records it has, and by how many ms its stamps begin later than the
                first one's.

        Returns:
            The payload and the highest stamp, in ms from the first one's beginning; None where a part isn't what it
            should be.
        """
        out, room, result = self._workspace.for_bytes(sum(len(plain) + GROWTH * records for plain, records, _ in parts))
        result[0] = _LOWEST
        place = number = 0
        for plain, records, since in parts:
            place = self._renumber(plain, len(plain), out, place, room, records, since, number, result)
            if place < 0:
                return None
            number += records
        return ctypes.string_at(out, place), result[0]
