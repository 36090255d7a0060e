"""Tunes a process that carries batches: malloc, the interpreter's switch interval, garbage collection.

**Memory.** A batch is taken apart and put together in blocks of some hundred kilobytes, allocated and freed thousands
of times a second. By itself glibc maps such a block again each time, and every page of it is a fault that the kernel
answers with zeros: of decompressing 150 KB of lz4 that is three quarters of the time. It also gives each thread a heap
of its own and keeps what was freed in all of them. Here there is one heap, whose end is given back when much of it is
free; blocks come from it. Larger ones are mapped, and given back when they are freed. (What large answers lie in:
`drkit.kafka.client.buffer_pool`.)

**Switch interval.** Batches are carried by one thread that wakes up hundreds of times a second for a moment; others
look at groups and topics, or keep watermarks, for some milliseconds each second. A thread that wakes up gets the
interpreter's lock after Python's switch interval, 5 ms, which would show in the slowest hundredth of all records.

**Garbage collection** looks at everything that was ever imported, tens of milliseconds each time; what is there at the
start is left out of it, and it runs less often.
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
