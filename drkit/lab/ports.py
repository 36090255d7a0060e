"""Finds free ports for a lab, once.

They are below the kernel's range for outgoing connections: if a client's connection took the port of a
node that is down, the node couldn't start again.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

import psutil

from drkit.lab.process import named
from drkit.model.errors import Refused

_LOWEST = 15_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_HIGHEST = 32_767
_HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Distinct ports on loopback on which nobody listens now.

    Raises:
        Refused: there aren't as many.
    """
    candidates = list(range(_LOWEST, _highest()))
    random.shuffle(candidates)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            return found
        if is_free(port):
            found.append(port)
    raise Refused(f"no {count} free ports on this machine", remedy="Stop something that listens, and try again")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now (lingering connections of a former one don't count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
            probe.listen()
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Whether something accepts connections on the port."""
    try:
        with socket.create_connection((_HOST, port), timeout=0.5):
            return True
    except OSError:
        return False


def holder(port: int) -> str:
    """The process that listens on the port, if this user may see it: `pid 123 (nginx)`, else `another process`."""
    try:
        for connection in psutil.net_connections("tcp"):
            here = connection.laddr
            if here and here.port == port and connection.status == psutil.CONN_LISTEN and connection.pid:
                return named(connection.pid)
    except psutil.Error:
        return "another process"
    return "another process"


def _highest() -> int:
    try:
        lowest_ephemeral = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_HIGHEST
    return lowest_ephemeral if lowest_ephemeral > _LOWEST + 1000 else _DEFAULT_HIGHEST  # a range of a useful size
