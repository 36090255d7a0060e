"""One command at a time changes a lab: an fcntl lock in its folder, which dies with its holder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drkit.lab.interrupts import Interrupts

LOCK_FILE = ".lab.lock"
_POLL_SECONDS = 0.1


@contextmanager
def folder_lock(folder: Path, interrupts: Interrupts, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lab's folder; waits while another command does, saying so once.

    `down` removes the file with the folder, so a lock on a file that has no name any more is none:
    it is taken again on the file that is there now. The file goes when the last holder leaves an
    otherwise empty folder.
    """
    path = folder / LOCK_FILE
    said = False
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(file.fileno(), path):
                break
        except BlockingIOError:
            if not said:
                say(f"another drkit command is changing the lab in {folder}; waiting for it")
                said = True
            try:
                interrupts.wait(_POLL_SECONDS)
            except BaseException:
                file.close()
                raise
        file.close()
    try:
        yield
    finally:
        if not (folder / "lab.json").exists():
            path.unlink(missing_ok=True)
            _remove_if_empty(folder)
        file.close()


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
