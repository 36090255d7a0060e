"""A directory in a key-value store: the entry under one key, replaced by compare-and-set."""

from __future__ import annotations

from abc import ABC, abstractmethod

from drkit.directory.api import Entry, contended, must_write, to_json
from drkit.directory.http import HttpServer
from drkit.model.deadline import Deadline

_ATTEMPTS = 5


class KeyValueDirectory(ABC):
    """The entry under a key of a server that numbers a key's versions."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    @property
    def name(self) -> str:
        """Its URL."""
        return self._server.name

    @property
    def confirms(self) -> bool:
        """It says what is there."""
        return True

    def read(self) -> Entry | None:
        """What the key holds, read consistently."""
        return self._kept(Deadline.after(self._server.timeout_seconds))[0]

    def publish(self, entry: Entry) -> bool:
        """Put it if the key still is at the version that was read; whether that changed anything."""
        deadline = Deadline.after(self._server.timeout_seconds)
        for _ in range(_ATTEMPTS):
            found, version = self._kept(deadline)
            if not must_write(found, entry, self.name):
                return False
            if self._put(deadline, to_json(entry), version):
                return True
        raise contended(self.name)

    @abstractmethod
    def _kept(self, deadline: Deadline) -> tuple[Entry | None, int]:
        """The entry and its version (0: the key isn't there)."""

    @abstractmethod
    def _put(self, deadline: Deadline, text: str, version: int) -> bool:
        """Write it if the key still is at this version; whether it was written."""
