"""Keeps the blocks that are freed for the next batch: glibc's malloc, for processes that carry batches.

A batch is taken apart and put together in blocks of some hundred kilobytes, allocated and freed thousands of times a
second. By itself glibc maps such a block again each time, and every page of it is a fault that the kernel answers with
zeros: of decompressing 150 KB of lz4 that is three quarters of the time. It also gives each thread a heap of its own
and keeps what was freed in all of them. Here there is one heap, whose end is given back when much of it is free; blocks
come from it. Larger ones are mapped, and given back when they are freed. (What large answers lie in:
`drkit.kafka.client.buffer_pool`.)
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MAPPED_FROM = 12 << 20
_KEPT_FREE = 16 << 20


def keep_freed_blocks() -> None:
    """Set malloc up as the module says, for the rest of the process; only where the C library is glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)
    mallopt(_M_ARENA_MAX, 1)
