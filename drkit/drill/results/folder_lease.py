"""The right to drill on this machine: one drill at a time in a folder of drills, whether or not a store has a lease."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drkit.failover.run.lease import Owner
from drkit.model.errors import DrkitError, Refused
from drkit.observe.drill_history import DRILL

LEASE = ".lease"


@contextmanager
def folder_lease(drills: Path) -> Iterator[None]:
    """Hold it in the block. It ends with the process that holds it, however that ends.

    Raises:
        Refused: another process drills; the message names it.
        DrkitError: the folder can't be written.
    """
    try:
        drills.mkdir(parents=True, mode=0o700, exist_ok=True)
        handle = os.open(drills / LEASE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DrkitError(
            f"{drills} can't be written: {error.strerror or error}",
            remedy="Correct its permissions, or free some space",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 1_000, 0).decode(errors="replace").strip()
            raise Refused(
                f"a drill is under way that is kept in {drills}: {holder or 'it has just begun'}",
                meaning="Two drills on one machine disturb each other's measurements",
                remedy="Wait until it has ended, or give this one a folder of its own (--drills DIR)",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{Owner.this_process(DRILL)}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
