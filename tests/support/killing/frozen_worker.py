"""A process that is frozen (SIGSTOP) while it holds no lock of the embedded store.

SQLite's write lock is its own until it wakes up or ends (docs/store.md): frozen within a write it would keep everybody
out, on one machine only.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from tests.support.wait import wait_until


def freeze_between_writes(process: subprocess.Popen[str] | subprocess.Popen[bytes], store: Path) -> None:
    """Freeze it, or find that it has ended.

    Args:
        process: a mirror, of any store.
        store: the file of an embedded store that it writes to; where there is none, it holds nothing.
    """

    def frozen() -> bool:
        process.send_signal(signal.SIGSTOP)
        if process.poll() is not None or not store.exists() or not _locked(store):
            return True
        process.send_signal(signal.SIGCONT)
        return False

    wait_until(frozen, 60, "a moment in which it writes nothing")


def _locked(store: Path) -> bool:
    """Whether a process holds the store's write lock."""
    with closing(sqlite3.connect(store, timeout=0.1, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
    return False
