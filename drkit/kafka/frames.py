"""Memory for large answers, used again.

An answer of megabytes is allocated and freed many times a second. Mapped anew each time, every page of it is a fault
and is zeroed by the kernel, which was half of what a record cost; kept by malloc, it leaves a heap full of holes. So
large answers lie in blocks of their own, which come back once nobody refers to any part of them.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref

_ROUND = 1 << 20
_KEPT = 12 << 20
"""Bytes of free blocks that are kept."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Frames:
    """Blocks of memory, free or lent. For any thread."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []  # in the order in which they came back
        self._lock = threading.Lock()

    @property
    def free_bytes(self) -> int:
        """What is kept for later."""
        return sum(map(len, tuple(self._free)))

    def lend(self, size: int) -> memoryview:
        """So many bytes, to be written; what they hold is arbitrary. Free again once no view of them is left."""
        with self._lock:
            block = self._fitting(size) or mmap.mmap(-1, -(-size // _ROUND) * _ROUND, flags=_PRIVATE)
        lent = (ctypes.c_char * len(block)).from_buffer(block)
        # without the lock: it is called wherever the last view goes, also in the midst of `lend`
        weakref.finalize(lent, self._free.append, block).atexit = False
        return memoryview(lent).cast("B")[:size]

    def _fitting(self, size: int) -> mmap.mmap | None:
        """The smallest free block that is large enough, if it isn't far too large; what is too much is let go."""
        while self._free and self.free_bytes > _KEPT:
            del self._free[0]
        fitting = [block for block in self._free if size <= len(block) <= 2 * size + _ROUND]
        if not fitting:
            return None
        best = min(fitting, key=len)
        self._free.remove(best)
        return best
