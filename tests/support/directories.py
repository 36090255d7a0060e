"""Real directory servers for the tests: BIND, etcd and Consul on loopback, with ports and folders of their own.

Where a binary is absent, the test that asks for it is skipped with the reason. Consul isn't in every
Debian: then what drkit says to it is tried on a small server that does what its documentation says.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dns.message
import dns.query
import pytest

from drkit.directory.http import HttpServer
from drkit.model.errors import Unreachable
from tests.support.wait import wait_until

ZONE = "drkit.test"
KEY = "drkit-key"


def binary(name: str, package: str) -> str:
    """A program, or the test is skipped with the reason."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian's package {package})")
    return found


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def child(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that ends with the block."""
    with log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


class Bind:
    """BIND as the primary of `drkit.test`, taking updates that the key signs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.secret = b64encode(secrets.token_bytes(32)).decode()

    def ask(self, name: str, kind: str) -> list[str]:
        """What any client gets."""
        query = dns.message.make_query(f"{name}.{ZONE}.", kind)
        answer = dns.query.tcp(query, "127.0.0.1", timeout=5, port=self.port)
        return sorted(str(record) for rrset in answer.answer for record in rrset)


@contextmanager
def bind(folder: Path) -> Iterator[Bind]:
    named = binary("named", "bind9")
    (port,) = free_ports(1)
    server = Bind(port)
    (folder / "zone").write_text(
        f"$TTL 60\n@ IN SOA ns.{ZONE}. root.{ZONE}. 1 60 60 60 60\n@ IN NS ns.{ZONE}.\nns IN A 127.0.0.1\n"
        'foreign._x IN TXT "somebody\'s"\n_drkit.taken IN TXT "somebody\'s"\n',
        encoding="ascii",
    )
    (folder / "named.conf").write_text(
        f"""
        key "{KEY}" {{ algorithm hmac-sha256; secret "{server.secret}"; }};
        options {{
          directory "{folder}"; pid-file "{folder}/named.pid"; session-keyfile "{folder}/session.key";
          lock-file none; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
          recursion no; dnssec-validation no; querylog no; empty-zones-enable no;
        }};
        controls {{ }};
        zone "{ZONE}" {{ type primary; file "{folder}/zone"; allow-update {{ key "{KEY}"; }}; }};
        """,
        encoding="ascii",
    )
    with child([named, "-g", "-4", "-n", "1", "-c", str(folder / "named.conf")], folder / "log"):
        wait_until(lambda: _answers(port) and server.ask("ns", "A"), what="BIND")
        yield server


@contextmanager
def etcd(folder: Path) -> Iterator[int]:
    """etcd of one node; its client port."""
    program = binary("etcd", "etcd-server")
    client, peer = free_ports(2)
    command = [
        program, "--data-dir", str(folder / "data"), "--name", "one",
        "--listen-client-urls", f"http://127.0.0.1:{client}", "--advertise-client-urls", f"http://127.0.0.1:{client}",
        "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-cluster", f"one=http://127.0.0.1:{peer}", "--unsafe-no-fsync",
    ]  # fmt: skip
    if "unsafe-no-fsync" not in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout:
        command.remove("--unsafe-no-fsync")
    with child(command, folder / "log"):
        wait_until(lambda: _healthy(client), what="etcd")
        yield client


@contextmanager
def consul(folder: Path) -> Iterator[int]:
    """A Consul agent in its development mode; its HTTP port."""
    program = binary("consul", "consul")
    http, *others = free_ports(5)
    names = ("serf-lan", "serf-wan", "server", "dns")
    ports = [f"-{name}-port={port}" for name, port in zip(names, others, strict=True)]
    command = [program, "agent", "-dev", "-bind=127.0.0.1", f"-http-port={http}", "-grpc-port=-1", *ports]
    with child([*command, f"-data-dir={folder}"], folder / "log"):
        wait_until(lambda: _answers(http) and _leader(http), what="Consul")
        yield http


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


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _get(port: int, path: str) -> bytes:
    try:
        return HttpServer("test", "127.0.0.1", port, tls=False, timeout_seconds=5).request("GET", path).body
    except Unreachable:
        return b""


def _healthy(port: int) -> bool:
    return _answers(port) and b"true" in _get(port, "/health")


def _leader(port: int) -> bool:
    return b":" in _get(port, "/v1/status/leader")
