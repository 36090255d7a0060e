"""Tunes the process for the data path: malloc, the interpreter's switch interval, garbage collection.

**Memory.** Freed blocks are kept for the next batch (`drkit.kafka.client.malloc_tuning`).

**Turns.** Batches are carried by one thread that wakes up hundreds of times a second for a moment; others look at
groups and topics, or keep watermarks, for some milliseconds each second. One that wakes up asks for the
interpreter's lock and gets it after Python's switch interval, 5 ms, which would be seen in the slowest hundredth of
all records.

**Collections of cycles** look at everything that was ever imported, tens of milliseconds each; what is there at the
start is left out of them, and they come less often.
"""

from __future__ import annotations

import gc
import sys

from drkit.kafka.client.malloc_tuning import keep_freed_blocks

_TURN_SECONDS = 0.0005
_COLLECT_AFTER = (5_000, 20, 50)


def serve_the_data_path() -> None:
    """Set the process up as the module says, for the rest of its life."""
    sys.setswitchinterval(_TURN_SECONDS)
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    keep_freed_blocks()
