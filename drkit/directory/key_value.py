"""A directory in a key-value store, Consul or etcd: the entry under one key, replaced by compare-and-set."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import quote

from drkit.directory.api import Entry, contended, from_json, must_write, not_ours, to_json
from drkit.directory.http import HttpServer, refused
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError

_ATTEMPTS = 5
_OK, _NOT_FOUND = 200, 404


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
        """It always returns an existing entry."""
        return True

    def read(self) -> Entry | None:
        """The key's entry, read consistently."""
        return self._kept(Deadline.after(self._server.timeout_seconds))[0]

    def publish(self, entry: Entry) -> bool:
        """Write it if the key still has the version that was read; returns whether that changed anything."""
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
        """The entry and its version (0: no such key)."""

    @abstractmethod
    def _put(self, deadline: Deadline, text: str, version: int) -> bool:
        """Write it if the key still has this version; returns whether it was written."""


class ConsulDirectory(KeyValueDirectory):
    """The entry under a key of Consul.

    Args:
        server: Consul's HTTP API; the token is among its headers.
        key: the key, without a leading slash.
    """

    def __init__(self, server: HttpServer, key: str) -> None:
        super().__init__(server)
        self._path = f"/v1/kv/{quote(key)}"

    def _put(self, deadline: Deadline, text: str, index: int) -> bool:
        answer = self._server.request("PUT", f"{self._path}?cas={index}", text.encode(), deadline=deadline)
        if answer.status != _OK:
            raise refused(self.name, answer, "The token needs key_prefix write on this key")
        return answer.json(self.name) is True

    def _kept(self, deadline: Deadline) -> tuple[Entry | None, int]:
        """The entry and its index (0: no such key)."""
        answer = self._server.request("GET", f"{self._path}?consistent", deadline=deadline)
        if answer.status == _NOT_FOUND:
            return None, 0
        if answer.status != _OK:
            raise refused(self.name, answer, "The token needs key_prefix read on this key")
        try:
            (found,) = answer.json(self.name)
            value, index = b64decode(found["Value"] or ""), int(found["ModifyIndex"])
        except (ValueError, KeyError, TypeError) as error:
            raise not_ours(self.name, str(error)) from None
        return from_json(value, self.name), index


class EtcdDirectory(KeyValueDirectory):
    """The entry under a key of etcd (v3), by its JSON gateway.

    Args:
        server: etcd's client URL.
        key: the key, verbatim.
        user: the user, if etcd's authentication is on.
        password: the user's.
    """

    def __init__(self, server: HttpServer, key: str, user: str | None = None, password: str | None = None) -> None:
        super().__init__(server)
        self._key = b64encode(key.encode()).decode()
        self._user = user
        self._password = password
        self._token: str | None = None

    def _put(self, deadline: Deadline, text: str, revision: int) -> bool:
        value = b64encode(text.encode()).decode()
        answer = self._ask(
            deadline,
            "/v3/kv/txn",
            {
                "compare": [{"key": self._key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}],
                "success": [{"request_put": {"key": self._key, "value": value}}],
            },
        )
        return answer.get("succeeded") is True

    def _kept(self, deadline: Deadline) -> tuple[Entry | None, int]:
        """The entry and its revision (0: no such key)."""
        found = self._ask(deadline, "/v3/kv/range", {"key": self._key}).get("kvs") or []
        if not found:
            return None, 0
        try:
            value, revision = b64decode(found[0]["value"]), int(found[0]["mod_revision"])
        except (ValueError, KeyError, TypeError) as error:
            raise not_ours(self.name, f"{type(error).__name__}: {error}") from None
        return from_json(value, self.name), revision

    def _ask(self, deadline: Deadline, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self._user is not None and self._token is None:
            granted = self._post(deadline, "/v3/auth/authenticate", {"name": self._user, "password": self._password})
            self._token = str(granted["token"])
        return self._post(deadline, path, body)

    def _post(self, deadline: Deadline, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = self._token
        answer = self._server.request("POST", path, json.dumps(body).encode(), headers, deadline=deadline)
        if answer.status != _OK:
            self._token = None  # it may have run out
            raise refused(self.name, answer, "Check user and password, and that the user may read and write this key")
        found = answer.json(self.name)
        if not isinstance(found, dict):
            raise DrkitError(f"{self.name} answered {answer.text!r}", remedy="Check that the address is etcd's")
        return found
