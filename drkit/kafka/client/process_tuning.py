"""Tunes a process that mirrors batches: malloc, the interpreter's switch interval, garbage collection.

**Memory.** A batch is decoded and encoded in blocks of some hundred kilobytes, allocated and freed thousands of times a
second. By default glibc maps such a block anew each time, and the kernel faults in and zeroes every page: three
quarters of the time to decompress 150 KB of lz4. It also gives each thread a heap of its own and keeps freed memory in
all of them. Here all blocks come from one heap, whose end is returned to the system when much of it is free. Larger
blocks are mapped, and returned when they are freed. (Large responses: `drkit.kafka.client.connection`.)

**Switch interval.** One thread mirrors batches and wakes up hundreds of times a second for a moment; others check
groups and topics, or store watermarks, for some milliseconds each second. A thread that wakes up gets the GIL after
Python's switch interval, 5 ms, which would show in the 99th percentile of latency.

**Garbage collection** traverses everything that was ever imported, tens of milliseconds each time; it skips the objects
that exist at the start, and runs less often.
"""

from __future__ import annotations

import ctypes
import gc
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MAPPED_FROM = 12 << 20
_KEPT_FREE = 16 << 20
_TURN_SECONDS = 0.0005
_COLLECT_AFTER = (5_000, 20, 50)


def keep_freed_blocks() -> None:
    """Tune malloc, for the rest of the process; only where the C library is glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)
    mallopt(_M_ARENA_MAX, 1)


def serve_the_data_path() -> None:
    """Tune this process for the data path, for the rest of its life."""
    sys.setswitchinterval(_TURN_SECONDS)
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    keep_freed_blocks()
