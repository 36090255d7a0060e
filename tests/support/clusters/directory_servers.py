"""Starts real directory servers for the bench and the tests: BIND, etcd and Consul, on their own ports and folders."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.query

from drkit.directory.http import HttpServer
from drkit.lab.ports import free_ports
from drkit.model.errors import DrkitError, Unreachable
from tests.support.wait import wait_until

ZONE = "drkit.test"
KEY = "drkit-key"
_READY_SECONDS = 60.0


class NotInstalled(DrkitError):
    """The machine lacks the server's program."""


def binary(name: str, package: str) -> str:
    """The path of a program.

    Raises:
        NotInstalled: it is not installed.
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotInstalled(f"{name} is not installed (Debian's package {package})")
    return found


@contextmanager
def child(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that runs during the block."""
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
    """BIND as the primary of `drkit.test`, which accepts updates signed with the key."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port
        self.secret = b64encode(secrets.token_bytes(32)).decode()

    def ask(self, name: str, kind: str) -> list[str]:
        """A client's answer to a query."""
        query = dns.message.make_query(f"{name}.{ZONE}.", kind)
        answer = dns.query.tcp(query, self.address, timeout=5, port=self.port)
        return sorted(str(record) for rrset in answer.answer for record in rrset)


@contextmanager
def bind(folder: Path, address: str = "127.0.0.1", port: int | None = None, records: str = "") -> Iterator[Bind]:
    """Run BIND; `port`: default: a free one; `records`: the first lines of the zone."""
    named = binary("named", "bind9")
    server = Bind(address, free_ports(1)[0] if port is None else port)
    (folder / "zone").write_text(
        f"$TTL 60\n@ IN SOA ns.{ZONE}. root.{ZONE}. 1 60 60 60 60\n@ IN NS ns.{ZONE}.\nns IN A 127.0.0.1\n{records}",
        encoding="ascii",
    )
    (folder / "named.conf").write_text(
        f"""
        key "{KEY}" {{ algorithm hmac-sha256; secret "{server.secret}"; }};
        options {{
          directory "{folder}"; pid-file "{folder}/named.pid"; session-keyfile "{folder}/session.key";
          lock-file none; listen-on port {server.port} {{ {address}; }}; listen-on-v6 {{ none; }};
          recursion no; dnssec-validation no; querylog no; empty-zones-enable no;
        }};
        controls {{ }};
        zone "{ZONE}" {{ type primary; file "{folder}/zone"; allow-update {{ key "{KEY}"; }}; }};
        """,
        encoding="ascii",
    )
    with child([named, "-g", "-4", "-n", "1", "-c", str(folder / "named.conf")], folder / "log"):
        wait_until(lambda: _answers(server.port, address) and server.ask("ns", "A"), _READY_SECONDS, "BIND")
        yield server


@contextmanager
def etcd(folder: Path) -> Iterator[int]:
    """Run etcd with one node; yields its client port."""
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
        wait_until(lambda: _healthy(client), _READY_SECONDS, "etcd")
        yield client


@contextmanager
def consul(folder: Path) -> Iterator[int]:
    """Run a Consul agent in development mode; yields its HTTP port."""
    program = binary("consul", "consul")
    http, *others = free_ports(5)
    names = ("serf-lan", "serf-wan", "server", "dns")
    ports = [f"-{name}-port={port}" for name, port in zip(names, others, strict=True)]
    command = [program, "agent", "-dev", "-bind=127.0.0.1", f"-http-port={http}", "-grpc-port=-1", *ports]
    with child([*command, f"-data-dir={folder}"], folder / "log"):
        wait_until(lambda: _answers(http) and _leader(http), _READY_SECONDS, "Consul")
        yield http


def _answers(port: int, address: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((address, port), 1).close()
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
