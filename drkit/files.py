"""Files: written whole or not at all, for their owner alone, and known by their digest."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

PRIVATE = 0o600
"""The mode of a file that its owner alone reads."""


def write_atomically(path: Path, content: str | bytes, *, mode: int = PRIVATE) -> None:
    """Write a file so that a reader sees all of it or nothing; creates its folder.

    Whatever the umask is, it has this mode, and nobody else can read it before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    write_private(partial, content)
    partial.chmod(mode)
    partial.replace(path)


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that is its owner's alone, whatever the umask is, and also where there is one that others can read.

    What is no regular file (/dev/stdout, a pipe) keeps its rights.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE), "wb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), PRIVATE)
            file.truncate(0)
        file.write(content.encode() if isinstance(content, str) else content)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
