"""Breaks a component of prepared runs for real, and repairs it after the commands have run.

A broker is killed, frozen (SIGSTOP), returns with empty or cut logs, or as a new cluster at the same address. A store's
address doesn't answer, another process locks the store forever, it is lost, an earlier copy, or a new one. A running
mirror is frozen. A run's process is frozen and wakes up too late; another machine has another pid namespace and another
home, and may lack the first one's files. A salvage folder is lost, emptied, cut, full, or read-only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from drkit.drill.environment.log_surgery import Disk, stopped
from drkit.failover.context.state_machine import Kind, Mode, State
from drkit.failover.recovery.way_out import Component, ComponentCondition
from drkit.lab.layout import cluster_uuid
from drkit.store import open_store
from drkit.store.workers import mirror_at_work
from tests.support.killing.frozen_worker import freeze_between_writes
from tests.support.links.estates import texts
from tests.support.recovery.prepared_runs import PreparedRun, Site, ended
from tests.support.recovery.recovery_cells import Fault
from tests.support.wait import wait_until

ALIAS = {Component.SOURCE: "primary", Component.TARGET: "dr"}
_LOST_WITH_THE_LOGS = ("__consumer_offsets-*", "__transaction_state-*", "c-*")
_PARTITIONS = (0, 1)


Mend = Callable[[PreparedRun], None]
"""Restores a run's store that was down, unchanged."""


@contextmanager
def broken(site: Site, fault: Fault, runs: Sequence[PreparedRun]) -> Iterator[Mend]:
    """Break the component during the body."""
    stores: dict[str, ExitStack] = {}
    with ExitStack() as later:
        if fault.part in ALIAS:
            _cluster(site, ALIAS[fault.part], fault.condition, runs, later)
        elif fault.part is Component.STORE:
            for run in runs:
                stores[run.name] = later.enter_context(ExitStack())
                _store(run, fault.condition, stores[run.name])
        elif fault.part is Component.MIRROR:
            _mirrors(fault.condition, runs, later)
        elif fault.part is Component.SALVAGE:
            _salvages(site, fault.condition, runs, later)
        elif fault == Fault(Component.MACHINE, ComponentCondition.REPLACED):
            for run in runs:
                shutil.rmtree(run.salvage, ignore_errors=True)
        yield lambda run: stores[run.name].close()
        for run in runs:
            if run.frozen is not None:
                run.frozen.send_signal(signal.SIGCONT)
                run.frozen.wait(60)  # it woke up too late and ends by itself


def _cluster(
    site: Site, alias: str, condition: ComponentCondition, runs: Sequence[PreparedRun], later: ExitStack
) -> None:
    lab, node = site.lab, site.node(alias)
    if condition is ComponentCondition.FROZEN:
        lab.pause(node)
        later.callback(lab.resume, node)
        return
    if condition is ComponentCondition.CUT:
        with stopped(lab, node) as disk:
            for run in runs:
                _cut(disk, run.topic)
        return
    lab.kill(node)
    if condition is ComponentCondition.DOWN:
        later.callback(lab.restart, node)
        return
    data = site.data(alias)
    if condition is ComponentCondition.EMPTY:
        for folder in (found for name in _LOST_WITH_THE_LOGS for found in data.glob(name)):
            shutil.rmtree(folder)
    elif condition is ComponentCondition.REPLACED:
        format_anew(data)
    lab.restart(node)


def _cut(disk: Disk, topic: str) -> None:
    """Remove the last batch of each partition."""
    for partition in _PARTITIONS:
        if not disk.partition(topic, partition).exists():
            continue
        batches = disk.batches(topic, partition)
        if batches:
            disk.cut(topic, partition, batches[-1].last_offset)


def format_anew(data: Path) -> None:
    """Replace the disk with that of a new cluster with another id."""
    checkpoint = (data / "bootstrap.checkpoint").read_bytes()
    meta = dict(line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines() if "=" in line)
    shutil.rmtree(data)
    data.mkdir()
    (data / "bootstrap.checkpoint").write_bytes(checkpoint)
    meta |= {"cluster.id": cluster_uuid(), "directory.id": cluster_uuid()}
    (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in meta.items()))


def _store(run: PreparedRun, condition: ComponentCondition, later: ExitStack) -> None:
    match condition:
        case ComponentCondition.DOWN:
            _at(run, f"cassandra://127.0.0.1:{_free_port()}/drkit?dc=dr&replication_factor=1", later)
        case ComponentCondition.FROZEN:
            holder = sqlite3.connect(run.store, isolation_level=None, check_same_thread=False)
            later.callback(holder.close)
            holder.execute("BEGIN EXCLUSIVE")
            _at(run, f"sqlite:///{run.store}?timeout=1", later)
        case ComponentCondition.EMPTY | ComponentCondition.REPLACED | ComponentCondition.CUT:
            for file in run.folder.glob("drkit.db*"):
                file.unlink()
            if condition is ComponentCondition.CUT:
                shutil.copy(run.earlier_store, run.store)
            elif condition is ComponentCondition.REPLACED:  # of drkit, and nothing of it is about this link
                open_store(f"sqlite:///{run.store}").close()
        case _:
            pass


def _at(run: PreparedRun, url: str, later: ExitStack) -> None:
    """Make the configuration name another store's URL during the body."""
    text, there = run.config_path.read_text(), f"sqlite:///{run.store}"
    assert there in text
    run.config_path.write_text(text.replace(there, url))
    later.callback(run.config_path.write_text, text)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def unmirrored(run: PreparedRun) -> bool:
    """Whether the source still serves, so that records wait while the mirror is down."""
    kind, mode, state = run.at
    early = state in {State.PLANNED, State.FENCED}
    return kind is None or (kind is Kind.FAILOVER and mode is Mode.PLANNED and early)


def _mirrors(condition: ComponentCondition, runs: Sequence[PreparedRun], later: ExitStack) -> None:
    """A frozen mirror, or none; if the source serves, it has records that aren't mirrored yet."""
    if condition is ComponentCondition.FROZEN:
        children = [(run, _mirror(run, later)) for run in runs]
        for run, child in children:
            _frozen_at_work(run, child)
    for run in runs:
        if unmirrored(run):
            mine = run.open()
            with contextlib.closing(mine.store):
                mine.produce("primary", run.topic, texts("unmirrored", 2))


def _mirror(run: PreparedRun, later: ExitStack) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "drkit", "mirror", "--config", str(run.config_path)]
    log = (run.folder / "mirror.log").open("wb")
    later.callback(log.close)
    child = subprocess.Popen([*command, "--link", "primary->dr"], stdout=log, stderr=log)
    later.callback(_end, child)
    return child


def _frozen_at_work(run: PreparedRun, child: subprocess.Popen[bytes]) -> None:
    mine = run.open()
    with contextlib.closing(mine.store), mine.estate() as estate:
        ways = (mine.link, mine.link.reversed())
        wait_until(
            lambda: child.poll() is not None or any(mirror_at_work(estate.store, way.id) for way in ways),
            180,  # 37 of them start at once
            what="a running mirror, or refused",
        )
    freeze_between_writes(child, run.store)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wake it up, and let it end."""
    child.send_signal(signal.SIGCONT)
    child.terminate()
    try:
        child.wait(60)
    finally:
        ended(child)


def _salvages(site: Site, condition: ComponentCondition, runs: Sequence[PreparedRun], later: ExitStack) -> None:
    if condition in {ComponentCondition.FULL, ComponentCondition.READ_ONLY}:
        _small_disk(site.salvages, condition, later)
        return
    for run in runs:
        if condition is ComponentCondition.DOWN:
            shutil.rmtree(run.salvage, ignore_errors=True)
        for file in (found for found in run.salvage.rglob("*") if found.is_file()):
            if condition is ComponentCondition.EMPTY:
                file.unlink()
            else:
                os.truncate(file, file.stat().st_size // 2)


def _small_disk(folder: Path, condition: ComponentCondition, later: ExitStack) -> None:
    """Replace the folder with a full or read-only disk with the same contents."""
    kept = folder.with_name("salvage.before")
    shutil.copytree(folder, kept)
    later.callback(shutil.rmtree, kept)
    _run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder))
    later.callback(_unmounted, folder)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    if condition is ComponentCondition.READ_ONLY:
        _run("mount", "-o", "remount,ro", str(folder))
        return
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def _unmounted(folder: Path) -> None:
    """Remove the disk, and keep its contents in the folder."""
    there = folder.with_name("salvage.after")
    shutil.copytree(folder, there, ignore=shutil.ignore_patterns("filler"))
    _run("umount", str(folder))
    shutil.copytree(there, folder, dirs_exist_ok=True)
    shutil.rmtree(there)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
