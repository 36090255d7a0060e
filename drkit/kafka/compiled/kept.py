"""Where machine code is kept: in drkit's cache, under a name that says what it was made from and for."""

from __future__ import annotations

import hashlib
import os
import platform
import struct
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from drkit.config.cache import cache_dir

_DIGEST_BYTES = 32
_SIZE = struct.Struct(">I")
_SUPPORTED = ("x86_64", "aarch64")
_OTHERS_WRITE = 0o022
_CPUINFO = Path("/proc/cpuinfo")
_MATTERS = ("model name", "flags", "CPU part", "Features")
"""What the lines of /proc/cpuinfo begin with that say which instructions a processor has: x86-64's and ARM's."""


class Code(NamedTuple):
    """The machine code of the kernel's two functions."""

    join: bytes
    renumber: bytes


def place() -> Path:
    """The file for this machine; each processor, and each change of what it is made from, has its own.

    Raises:
        RuntimeError: it is of a kind that nobody has tried this on.
    """
    if platform.machine() not in _SUPPORTED:
        raise RuntimeError(f"there is none for {platform.machine()}")
    digest = hashlib.sha256(_processor().encode())
    for package in ("numba", "llvmlite"):
        digest.update(version(package).encode())
    here = Path(__file__).parent
    for source in (*sorted(here.glob("*.py")), here.parent / "batch.py"):
        digest.update(source.read_bytes())
    return cache_dir() / "compiled" / f"{digest.hexdigest()[:32]}.bin"


def keep(path: Path, code: Code) -> None:
    """Write machine code down, whole or not at all."""
    data = _SIZE.pack(len(code.join)) + code.join + code.renumber
    beside = path.with_suffix(f".{os.getpid()}")
    beside.touch(mode=0o600)
    beside.write_bytes(hashlib.sha256(data).digest() + data)
    beside.replace(path)


def kept(path: Path) -> Code | None:
    """The machine code, where it is there and whole.

    Raises:
        PermissionError: others may write it, so that it could be anybody's.
    """
    try:
        found = path.read_bytes()
    except OSError:
        return None
    check_own(path.parent)
    check_own(path)
    digest, data = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != digest:
        return None
    first = _SIZE.size + _SIZE.unpack_from(data)[0]
    return Code(data[_SIZE.size : first], data[first:])


def check_own(path: Path) -> None:
    """Whether only this user may write a file or folder.

    Raises:
        PermissionError: others may, so that what is there could be anybody's.
    """
    about = path.stat()
    if about.st_uid not in {os.geteuid(), 0} or about.st_mode & _OTHERS_WRITE:
        raise PermissionError(
            f"others than this user may write {path}: remove it, or give DRKIT_CACHE_DIR another folder"
        )


def _processor() -> str:
    """Which instructions this machine has, in whatever words."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    known = {line for line in lines if line.startswith(_MATTERS)}
    return f"{platform.machine()} {platform.libc_ver()} {sorted(known)}"
