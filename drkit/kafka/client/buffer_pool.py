"""A pool of buffers for large responses.

A response of megabytes is allocated and freed many times a second. If it were mapped anew each time, the kernel would
fault in and zero every page, some two fifths of the cost of a record; malloc would fragment its heap. So large
responses use blocks of their own. A block is free when only the list of all blocks refers to it: each view of it,
and each slice of a view, holds a reference.
"""

from __future__ import annotations

import mmap
import sys
import threading

_ROUND = 1 << 20
_KEPT = 12 << 20
"""Bytes of free blocks to keep, or twice the last request if that is more."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class BufferPool:
    """Buffers, free or lent. Shared by threads."""

    def __init__(self) -> None:
        self._blocks: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def lend(self, size: int) -> memoryview:
        """A writable buffer of this size with arbitrary content. Free again once no view of it is left."""
        with self._lock:
            fitting = [block for block in _free(self._blocks) if size <= len(block) <= 2 * size + _ROUND]
            if fitting:
                block = min(fitting, key=len)
            else:
                block = mmap.mmap(-1, -(-size // _ROUND) * _ROUND, flags=_PRIVATE)
                self._blocks.append(block)
            lent = memoryview(block)[:size]
            del fitting, block
            self._release(max(_KEPT, 2 * size))
        return lent

    def release(self) -> None:
        """Return free buffers to the system."""
        with self._lock:
            self._release(0)

    def _release(self, kept: int) -> None:
        for block in _free(self._blocks):
            kept -= len(block)
            if kept < 0:
                self._blocks.remove(block)


def _free(blocks: list[mmap.mmap]) -> list[mmap.mmap]:
    return [block for block in blocks if sys.getrefcount(block) == _UNUSED]


def _unused() -> int:
    """The reference count that `_free` sees for a block that only the list holds."""
    return [sys.getrefcount(block) for block in [mmap.mmap(-1, _ROUND)]][0]  # noqa: RUF015 - the very expression of `_free`


_UNUSED = _unused()
