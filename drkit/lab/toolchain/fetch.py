"""Fill the cache: fetch what is missing, check every jar against its lock, show how far it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from drkit.lab.interrupts import Interrupts
from drkit.lab.toolchain import cache as caching
from drkit.lab.toolchain.ivy import Fetch, start_fetch
from drkit.lab.toolchain.java import find_ivy
from drkit.lab.toolchain.lockfile import Jar
from drkit.lab.toolchain.trust import network_options
from drkit.model.errors import DrkitError

_PROCESSES = 8  # the time goes into waiting for many small files, not into bandwidth or CPU
_ROUNDS = 3
_POLL_SECONDS = 0.2


def fetch_missing(cache: Path, java_home: Path, jars: Sequence[Jar], interrupts: Interrupts) -> None:
    """Bring every jar that is missing, or not whole, into the cache. Call it with the cache locked.

    A jar enters the cache only after its SHA-256 matched, by a rename; so an interrupted fetch leaves
    whole jars and the next one goes on from there.

    Raises:
        DrkitError: some couldn't be had; it names them, says why, and what to do.
    """
    wanted = caching.missing(cache, jars)
    if not wanted:
        return
    work = cache / "fetching"
    shutil.rmtree(work, ignore_errors=True)
    _refuse_full_disk(cache, wanted)
    work.mkdir(parents=True)
    reasons: list[str] = []
    try:
        options = network_options(java_home, work)
        with _progress(len(wanted), len(jars)) as progress:
            task = progress.add_task("jars", total=sum(jar.size for jar in wanted))
            for number in range(_ROUNDS):
                folder = work / f"round-{number}"
                wanted, reasons = _one_round(cache, java_home, wanted, folder, options, interrupts, (progress, task))
                if not wanted:
                    return
    finally:
        shutil.rmtree(work, ignore_errors=True)
    names = ", ".join(str(jar) for jar in wanted[:5]) + (f" and {len(wanted) - 5} more" if len(wanted) > 5 else "")  # noqa: PLR2004 - enough to name
    raise DrkitError(
        f"{len(wanted)} of {len(jars)} jars could not be fetched: {names}",
        meaning="; ".join(dict.fromkeys(reasons)) or "the package registry gave no reason",
        remedy="Check the network (proxy variables and certificate bundles that pip uses are used here too) and run the "
        f"same command again: what was fetched is kept in {cache} and only the rest is fetched",
    )


def _one_round(
    cache: Path,
    java_home: Path,
    wanted: Sequence[Jar],
    folder: Path,
    options: Sequence[str],
    interrupts: Interrupts,
    progress: tuple[Progress, object],
) -> tuple[list[Jar], list[str]]:
    """Fetch once; returns what is still missing and why."""
    ivy = find_ivy()
    fetches: list[Fetch] = []
    kept: set[Jar] = set()
    reasons: list[str] = []
    bar, task = progress
    try:
        for number, share in enumerate(_shares(wanted)):
            fetches.append(start_fetch(java_home / "bin" / "java", ivy, share, folder / str(number), options))
        while True:
            running = [fetch for fetch in fetches if fetch.process.poll() is None]
            for fetch in fetches:
                for jar in fetch.jars:
                    if jar not in kept and (path := fetch.arrived(jar)) is not None:
                        reason = _keep(cache, jar, path)
                        if reason is None:
                            bar.advance(task, jar.size)  # type: ignore[arg-type]  # rich's TaskID is an int by another name
                            kept.add(jar)
                        else:
                            reasons.append(reason)
                            return [jar for jar in wanted if jar not in kept], reasons
            if not running:
                break
            interrupts.wait(_POLL_SECONDS)
        for fetch in fetches:
            if any(jar not in kept for jar in fetch.jars):
                reasons.append(fetch.trouble())
    finally:
        for fetch in fetches:
            fetch.stop()
    return [jar for jar in wanted if jar not in kept], [reason for reason in reasons if reason]


def _keep(cache: Path, jar: Jar, path: Path) -> str | None:
    """Move a fetched jar into the cache; returns why not where its bytes aren't the locked ones."""
    found = caching.sha256_of(path)
    if found != jar.sha256:
        return f"{jar} came with SHA-256 {found}, and the lock says {jar.sha256}: it was changed on the way or at its origin"
    target = caching.jar_path(cache, jar)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with suppress(FileNotFoundError):
        partial.unlink()
    os.link(path, partial)  # Ivy still reads its own copy
    partial.replace(target)
    return None


def _shares(jars: Sequence[Jar]) -> list[list[Jar]]:
    """Jars dealt out so that each process gets about as many; artifacts of one module stay together."""
    modules: dict[str, list[Jar]] = {}
    for jar in sorted(jars, key=lambda jar: -jar.size):
        modules.setdefault(f"{jar.module.org}:{jar.module.name}:{jar.module.rev}", []).append(jar)
    shares: list[list[Jar]] = [[] for _ in range(min(_PROCESSES, len(modules)))]
    for number, members in enumerate(modules.values()):
        shares[number % len(shares)] += members
    return shares


def _refuse_full_disk(cache: Path, wanted: Sequence[Jar]) -> None:
    need = 2 * sum(jar.size for jar in wanted)
    free = shutil.disk_usage(cache).free
    if free < need:
        raise DrkitError(
            f"the jars need {need >> 20} MiB in {cache}, and {free >> 20} MiB are free there",
            remedy="Free some space, or set DRKIT_CACHE_DIR to a folder with more",
        )


def _progress(wanted: int, total: int) -> Progress:
    console = Console(stderr=True)
    console.print(
        f"Fetching {wanted} of {total} jars (Kafka, Cassandra, Spark's connector): once for each user, then cached",
        highlight=False,
    )
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
