"""The per-user cache: its folder, its lock, and its missing jars."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from drkit.files import sha256_of
from drkit.lab.interrupts import Interrupts
from drkit.lab.toolchain.lockfile import Jar
from drkit.model.errors import DrkitError

_POLL_SECONDS = 0.2


def make_cache_dir(path: Path) -> None:
    """Create the cache. Raises DrkitError, with the way to move it, if that isn't possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise DrkitError(
            f"the cache folder {path} can't be written: {error.strerror or error}",
            remedy="Set DRKIT_CACHE_DIR to a folder that you can write",
        ) from error


@contextmanager
def cache_lock(cache: Path, interrupts: Interrupts, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the cache's write lock; a second process waits (and calls `on_wait` once). It dies with its holder."""
    with (cache / ".lock").open("w") as file:
        waited = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    on_wait()
                    waited = True
                interrupts.wait(_POLL_SECONDS)
        yield


def jar_path(cache: Path, jar: Jar) -> Path:
    """The path of a jar in the cache."""
    return cache / "jars" / jar.relative_path


def is_whole(path: Path, jar: Jar) -> bool:
    """Whether the file exists and has the locked bytes."""
    try:
        return path.stat().st_size == jar.size and sha256_of(path) == jar.sha256
    except OSError:
        return False


def missing(cache: Path, jars: Iterable[Jar]) -> list[Jar]:
    """The jars that are missing or damaged in the cache. Reads every byte."""
    listed = list(jars)
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        whole = list(pool.map(lambda jar: is_whole(jar_path(cache, jar), jar), listed))
    return [jar for jar, ok in zip(listed, whole, strict=True) if not ok]
