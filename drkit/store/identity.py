"""The identity of a store, which tells it from others: in anchors of journals, and between workers."""

from __future__ import annotations

import platform
from hashlib import sha256
from urllib.parse import urlsplit

_FILE = "sqlite"


def store_identity(url: str) -> str:
    """A digest of a store's address without user and password.

    For a store in a file it includes the machine. The order of hosts doesn't matter, because operators differ in it.
    """
    parts = urlsplit(url)
    where = ",".join(sorted(parts.netloc.rpartition("@")[2].split(",")))
    machine = platform.node() if parts.scheme == _FILE else ""
    return sha256(f"{parts.scheme}|{machine}|{where}|{parts.path}".encode()).hexdigest()[:16]


def in_a_file(url: str) -> bool:
    """Whether a store is a file on one machine: then another identity is another store."""
    return urlsplit(url).scheme == _FILE
