"""Consul's key-value store: the entry's JSON under one key, replaced by check-and-set on its index."""

from __future__ import annotations

from base64 import b64decode
from urllib.parse import quote

from drkit.directory.api import Entry, from_json, not_ours
from drkit.directory.http import HttpServer, refused
from drkit.directory.key_value import KeyValueDirectory
from drkit.model.deadline import Deadline

_OK, _NOT_FOUND = 200, 404


class ConsulDirectory(KeyValueDirectory):
    """The entry under a key of Consul.

    Args:
        server: where Consul's HTTP API answers; the token is among its headers.
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
        """The entry and its index (0: the key isn't there)."""
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
