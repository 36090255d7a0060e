"""Real directory servers for the tests (`directory_servers`), and one that follows Consul's documentation.

If a program is missing, its tests are skipped with the reason. Not every Debian has Consul: a small server that follows
its documentation tests drkit's requests without it.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.clusters import directory_servers
from tests.support.clusters.directory_servers import KEY, ZONE, Bind

__all__ = ["KEY", "ZONE", "Bind", "bind", "consul", "consul_like", "etcd"]

Server = TypeVar("Server")
_TAKEN = 'foreign._x IN TXT "somebody\'s"\n_drkit.taken IN TXT "somebody\'s"\n'


@contextmanager
def _or_skipped(server: AbstractContextManager[Server]) -> Iterator[Server]:
    with ExitStack() as stack:
        try:
            entered = stack.enter_context(server)
        except directory_servers.NotInstalled as error:
            pytest.skip(error.what)
        yield entered


def bind(folder: Path) -> AbstractContextManager[Bind]:
    """BIND as the primary of `drkit.test`, with two TXT records of another owner."""
    return _or_skipped(directory_servers.bind(folder, records=_TAKEN))


def etcd(folder: Path) -> AbstractContextManager[int]:
    """One etcd node; yields its client port."""
    return _or_skipped(directory_servers.etcd(folder))


def consul(folder: Path) -> AbstractContextManager[int]:
    """A Consul agent in development mode; yields its HTTP port."""
    return _or_skipped(directory_servers.consul(folder))


@contextmanager
def consul_like() -> Iterator[int]:
    """A server with Consul's documented key-value calls: GET ?consistent, PUT ?cas=N (0: only if absent)."""

    class Handler(BaseHTTPRequestHandler):
        kept: dict[str, tuple[int, bytes]] = {}  # noqa: RUF012 - of this one class, made for this one server
        lock = threading.Lock()

        def do_GET(self) -> None:
            key = urlsplit(self.path).path
            if key not in self.kept:
                self._answer(404, b"")
                return
            index, value = self.kept[key]
            body = [{"Key": key, "ModifyIndex": index, "Value": b64encode(value).decode()}]
            self._answer(200, json.dumps(body).encode())

        def do_PUT(self) -> None:
            parts = urlsplit(self.path)
            value = self.rfile.read(int(self.headers["Content-Length"]))
            with self.lock:
                index = self.kept.get(parts.path, (0, b""))[0]
                taken = index == int(parse_qs(parts.query)["cas"][0])
                if taken:
                    self.kept[parts.path] = (index + 7, value)
            self._answer(200, b"true" if taken else b"false")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_given: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
