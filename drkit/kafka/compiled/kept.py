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
_SOURCES = ("kernel.py", "limits.py", "build.py")
_CPUINFO = Path("/proc/cpuinfo")
_MATTERS = ("model name", "flags", "CPU part", "Features")
"""What the lines of /proc/cpuinfo begin with that say which instructions a processor has: x86-64's and ARM's."""


class Code(NamedTuple):
    """The machine code of the kernel's two functions."""

    join: bytes
    renumber: bytes


def place() -> Path:
    """The file for this machine; each processor, and each change of what it is made from, has its own."""
    digest = hashlib.sha256(_processor().encode())
    for package in ("numba", "llvmlite"):
        digest.update(version(package).encode())
    folder = Path(__file__).parent
    for name in _SOURCES:
        digest.update((folder / name).read_bytes())
    return cache_dir() / "compiled" / f"{digest.hexdigest()[:32]}.bin"


def keep(path: Path, code: Code) -> None:
    """Write machine code down, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = _SIZE.pack(len(code.join)) + code.join + code.renumber
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(hashlib.sha256(data).digest() + data)
    beside.replace(path)


def kept(path: Path) -> Code | None:
    """The machine code, where it is there and whole."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    digest, data = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != digest:
        return None
    first = _SIZE.size + _SIZE.unpack_from(data)[0]
    return Code(data[_SIZE.size : first], data[first:])


def _processor() -> str:
    """Which instructions this machine has, in whatever words."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    known = {line for line in lines if line.startswith(_MATTERS)}
    return f"{platform.machine()} {platform.libc_ver()} {sorted(known)}"
