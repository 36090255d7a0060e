"""The per-user cache of jars, and how it is filled: missing jars are fetched, each is checked against its lock."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from drkit.files import sha256_of
from drkit.lab.process import Interrupts
from drkit.lab.toolchain.java import IvyProcess, find_ivy, start_fetch
from drkit.lab.toolchain.lockfile import Coordinate, Jar
from drkit.lab.toolchain.repository import network_options
from drkit.model.errors import DrkitError
from drkit.model.wording import and_more

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


_PROCESSES = 8  # the many small files cost latency, not bandwidth or CPU
_ROUNDS = 3
_SAY_EVERY_SECONDS = 5.0  # if stderr is not a terminal, so without a progress bar
_NAMES_IN_ERROR = 5


def fetch_missing(
    cache: Path, java_home: Path, jars: Sequence[Jar], interrupts: Interrupts, repository: str | None = None
) -> None:
    """Fetch every missing or damaged jar into the cache, which must be locked.

    `repository`: the URL of a Maven repository, instead of the central one.

    A jar enters the cache only if its SHA-256 matches, by a rename; so an interrupted fetch leaves
    valid jars, and the next one continues from there.

    Raises:
        DrkitError: some couldn't be fetched; it names them, the cause, and the remedy.
    """
    wanted = missing(cache, jars)
    if not wanted:
        return
    work = cache / "fetching"
    shutil.rmtree(work, ignore_errors=True)
    _refuse_full_disk(cache, wanted)
    work.mkdir(parents=True)
    try:
        options = network_options(java_home, work)
        with _progress(len(wanted), len(jars)) as progress:
            task = progress.add_task("jars", total=sum(jar.size for jar in wanted))
            for number in range(_ROUNDS):
                attempt = _Round(cache, interrupts, progress, task, repository)
                attempt.run(java_home, wanted, work / f"round-{number}", options)
                wanted = [jar for jar in wanted if jar not in attempt.kept]
                if not wanted:
                    return
    finally:
        shutil.rmtree(work, ignore_errors=True)
    names = and_more([str(jar) for jar in wanted], shown=_NAMES_IN_ERROR)
    raise DrkitError(
        f"{len(wanted)} of {len(jars)} jars could not be fetched: {names}",
        meaning="; ".join(dict.fromkeys(attempt.reasons)) or "Ivy gave no reason",
        remedy=(
            f"Make sure that {repository} has them, "
            if repository is not None
            else "Check the network (the proxy variables and certificate bundles that pip uses are used here too), "
        )
        + f"then run the same command again: it keeps the jars in {cache} and fetches only the rest. Without "
        "this network: drkit jars fetch --repository URL",
    )


@dataclass(slots=True)
class _Round:
    """One attempt at fetching: several concurrent Ivy processes, each with its own cache."""

    cache: Path
    interrupts: Interrupts
    progress: Progress
    task: TaskID
    repository: str | None = None
    kept: set[Jar] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    def run(self, java_home: Path, wanted: Sequence[Jar], folder: Path, options: Sequence[str]) -> None:
        """Fetch; then `kept` has the fetched jars, and `reasons` why others are missing."""
        ivy = find_ivy()
        java = java_home / "bin" / "java"
        fetches: list[IvyProcess] = []
        try:
            for number, share in enumerate(_shares(wanted)):
                fetches.append(start_fetch(java, ivy, share, folder / str(number), options, self.repository))
            running, said_at = True, time.monotonic()
            while running:
                self.interrupts.wait(_POLL_SECONDS)
                running = any(fetch.process.poll() is None for fetch in fetches)
                for fetch in fetches:
                    self._take_arrived(fetch)
                if self.progress.disable and time.monotonic() - said_at > _SAY_EVERY_SECONDS:
                    self.progress.console.print(f"  {len(self.kept)} of {len(wanted)} fetched")
                    said_at = time.monotonic()
        finally:
            for fetch in fetches:
                fetch.stop()
        failed = [fetch for fetch in fetches if any(jar not in self.kept for jar in fetch.jars)]
        self.reasons += [trouble for fetch in failed if (trouble := fetch.trouble())]

    def _take_arrived(self, fetch: IvyProcess) -> None:
        for jar in fetch.jars:
            path = None if jar in self.kept else fetch.arrived(jar)
            if path is None:
                continue
            reason = _keep(self.cache, jar, path)
            if reason is None:
                self.kept.add(jar)
                self.progress.advance(self.task, jar.size)
            elif reason not in self.reasons:
                self.reasons.append(reason)


def _keep(cache: Path, jar: Jar, path: Path) -> str | None:
    """Move a fetched jar into the cache; returns why not if its bytes aren't the locked ones."""
    target = jar_path(cache, jar)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    shutil.copyfile(path, partial)
    found = sha256_of(partial)
    if found != jar.sha256:
        partial.unlink()
        return f"{jar} has SHA-256 {found}, its lock says {jar.sha256}: it was changed at its origin or in transit"
    partial.replace(target)
    return None


def _shares(jars: Sequence[Jar]) -> list[list[Jar]]:
    """Jars distributed evenly over the processes; artifacts of one module stay together."""
    modules: dict[Coordinate, list[Jar]] = {}
    for jar in sorted(jars, key=lambda jar: -jar.size):
        modules.setdefault(jar.module, []).append(jar)
    shares: list[list[Jar]] = [[] for _ in range(min(_PROCESSES, len(modules)))]
    for number, members in enumerate(modules.values()):
        shares[number % len(shares)] += members
    return shares


def _refuse_full_disk(cache: Path, wanted: Sequence[Jar]) -> None:
    need = 2 * sum(jar.size for jar in wanted)
    free = shutil.disk_usage(cache).free
    if free < need:
        raise DrkitError(
            f"the jars need {need >> 20} MiB in {cache}, but only {free >> 20} MiB are free there",
            remedy="Free some space, or set DRKIT_CACHE_DIR to a folder with more",
        )


def _progress(wanted: int, total: int) -> Progress:
    console = Console(stderr=True, highlight=False)
    console.print(f"Fetching {wanted} of {total} jars, once for each user", soft_wrap=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
