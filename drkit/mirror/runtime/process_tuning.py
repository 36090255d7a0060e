"""Tunes the process for the data path: malloc, the interpreter's switch interval, garbage collection.

**Memory.** Requests of a megabyte, and some of them in a row on their way to the socket, are allocated and freed many
times a second on one thread while others allocate a little each. By itself glibc gives each thread a heap of its own
and keeps what was freed in all of them. Here there is one heap, whose end is given back when it is free; such blocks
come from it, for mapped anew each time every page of them would be a fault. Larger ones are mapped, and given back
when they are freed. (What large answers lie in: `drkit.kafka.client.buffer_pool`.)

**Turns.** Batches are carried by one thread that wakes up hundreds of times a second for a moment; others look at
groups and topics, or keep watermarks, for some milliseconds each second. One that wakes up asks for the
interpreter's lock and gets it after Python's switch interval, 5 ms, which would be seen in the slowest hundredth of
all records.

**Collections of cycles** look at everything that was ever imported, tens of milliseconds each; what is there at the
start is left out of them, and they come less often.
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


def serve_the_data_path() -> None:
    """Set the process up as the module says, for the rest of its life; memory only where the C library is glibc."""
    sys.setswitchinterval(_TURN_SECONDS)
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)
    mallopt(_M_ARENA_MAX, 1)
