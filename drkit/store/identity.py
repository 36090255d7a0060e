"""The identity of a store, which tells it from others where it isn't open: in journals' anchors, between workers."""

from __future__ import annotations

import platform
from hashlib import sha256
from urllib.parse import urlsplit

_FILE = "sqlite"


def store_identity(url: str) -> str:
    """A digest of a store's address without user and password.

    A store in a file is told by the machine, too. Hosts may be named in any order: two operators often do.
    """
    parts = urlsplit(url)
    where = ",".join(sorted(parts.netloc.rpartition("@")[2].split(",")))
    machine = platform.node() if parts.scheme == _FILE else ""
    return sha256(f"{parts.scheme}|{machine}|{where}|{parts.path}".encode()).hexdigest()[:16]


def in_a_file(url: str) -> bool:
    """Whether a store is a file of one machine: then another identity is another store."""
    return urlsplit(url).scheme == _FILE
