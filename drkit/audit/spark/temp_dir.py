"""A temporary folder of one process: removed at its end, or by the next process if it was killed.

A lock, which ends with its process, identifies the owner. A process id could be reused, or belong to another container
that shares the folder for temporary files.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

PREFIX = "drkit-spark-"
OWNER = "owner"
"""The file that its process has locked."""


_mine: set[Path] = set()
"""Those of this process that are not removed yet."""


@dataclass(frozen=True, slots=True)
class TempDir:
    """`path` is this process's until it is removed."""

    path: Path
    _lock: TextIO

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
        _mine.discard(self.path)


def make_folder() -> TempDir:
    """Make one, and remove those that processes which were killed have left."""
    sweep()
    path = Path(tempfile.gettempdir()) / f"{PREFIX}{secrets.token_hex(8)}"
    _mine.add(path)  # before it is there, so that an interrupt in between leaves nothing
    path.mkdir(mode=0o700)
    new = path / f"{OWNER}.new"
    lock = new.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(path / OWNER)  # under this name it is locked from the first moment
    return TempDir(path, lock)


def sweep() -> None:
    """Remove this user's folders whose process is gone; one without an owner's file is nobody's to judge."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # gone meanwhile, another user's, or in use
            if path.lstat().st_uid != os.getuid():
                continue
            with (path / OWNER).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)


@atexit.register
def _remove_mine() -> None:
    """What an interrupt kept its owner from removing."""
    for path in _mine:
        shutil.rmtree(path, ignore_errors=True)
