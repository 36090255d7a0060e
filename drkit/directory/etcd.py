"""etcd by its JSON gateway (v3): the entry's JSON under one key, replaced if its revision is the one looked at."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from drkit.directory.api import Entry, from_json, not_ours
from drkit.directory.http import HttpServer, refused
from drkit.directory.key_value import KeyValueDirectory
from drkit.model.deadline import Deadline
from drkit.model.errors import DrkitError

_OK = 200


class EtcdDirectory(KeyValueDirectory):
    """The entry under a key of etcd.

    Args:
        server: where etcd's client URL answers.
        key: the key, as it is.
        user: who asks, where etcd's authentication is on.
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
        """The entry and its revision (0: the key isn't there)."""
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
