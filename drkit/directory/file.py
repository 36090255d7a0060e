"""A file on this machine: replaced atomically, durable on return, under a lock beside it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from drkit.directory.api import Entry, from_json, must_write, to_json
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, Unreachable

_MODE = 0o644
_AGAIN_SECONDS = 0.02


class FileDirectory:
    """The entry as a JSON file.

    Args:
        path: absolute; its folder is there already.
        timeout_seconds: how long to wait while another process publishes.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    @property
    def name(self) -> str:
        """Its URL."""
        return f"file://{self._path}"

    @property
    def confirms(self) -> bool:
        """It always returns an existing entry."""
        return True

    def read(self) -> Entry | None:
        """The file's entry; None: there is no file."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", error) from error
        return from_json(text, self.name)

    def publish(self, entry: Entry) -> bool:
        """Write a temporary file, sync, rename it, sync the folder."""
        try:
            with self._locked():
                if not must_write(self.read(), entry, self.name):
                    return False
                self._replace(to_json(entry))
        except OSError as error:
            raise self._failed("written", error) from error
        return True

    def _replace(self, text: str) -> None:
        beside = self._path.with_name(f".{self._path.name}.new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), self._mode())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _mode(self) -> int:
        """The file's current mode, else readable by all, so that clients can read it."""
        try:
            return self._path.stat().st_mode & 0o777
        except FileNotFoundError:
            return _MODE

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._path.with_name(f".{self._path.name}.lock").open("a", encoding="utf-8") as lock:
            deadline = Deadline.after(self._timeout_seconds)
            while not _taken(lock):  # the kernel releases it with the process that held it
                if deadline.passed:
                    raise Unreachable(
                        f"{self.name} is locked by another process for more than {self._timeout_seconds:g} s",
                        remedy=f"See who holds {lock.name} (lsof), and whether it was stopped",
                    )
                time.sleep(_AGAIN_SECONDS)
            yield

    def _failed(self, what: str, error: OSError) -> DrkitError:
        return DrkitError(
            f"{self.name} can't be {what}: {error.strerror or error}",
            remedy="Check the path, its permissions and the free space",
        )


def _taken(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
