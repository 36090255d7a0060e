"""How the process's C heap treats the data path's large blocks.

A fetch's answer is megabytes, allocated and freed many times a second on one thread while others allocate a
little each. glibc then raises the size up to which it keeps freed blocks for itself (to 32 MiB), and
gives each thread a heap of its own: memory that nobody uses any more stays with the process. With a fixed
threshold large blocks are mapped, and given back when they are freed.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MAPPED_FROM = 512 * 1024


def give_back_large_blocks() -> None:
    """Ask glibc for the above, for the rest of the process's life; does nothing with another C library."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
    mallopt(_M_ARENA_MAX, 1)
