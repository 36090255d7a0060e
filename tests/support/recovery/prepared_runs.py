"""Runs in every state, each on its own link, on one secured lab; and that lab's snapshots.

Killing one run takes seconds, restoring the lab's snapshot a few for all of them: so the runs are prepared once, and
each fault finds them in their states.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from drkit.failover.context.anchors import anchor_file
from drkit.failover.context.state_machine import PATHS, Kind, Mode, State
from drkit.failover.journal.journal import INTENT, OUTCOME
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failback, run_failover
from drkit.lab import Lab
from drkit.model.errors import DrkitError
from tests.support.clusters.lab import USERS
from tests.support.clusters.secured import allow, put, with_writer
from tests.support.links.estates import OwnLink, mirror, open_link, own_link, texts
from tests.support.recovery.failback_ports import reading_ports
from tests.support.recovery.recovery_cells import RunState
from tests.support.wait import wait_until

ALIASES = ("primary", "dr")
_ANCHORS = "journal.anchor"
_PREPARED = "prepared"
"""A file in a run's folder: the run is in its state."""
_AT_ONCE = 4
_TRIES = 3


@dataclass(frozen=True)
class PreparedRun:
    """A link with its run in a state; `frozen`: the run's process, which is stopped there."""

    at: RunState
    name: str
    folder: Path
    salvage: Path
    frozen: subprocess.Popen[bytes] | None = None

    @property
    def config_path(self) -> Path:
        return self.folder / "drkit.toml"

    @property
    def store(self) -> Path:
        return self.folder / "drkit.db"

    @property
    def earlier_store(self) -> Path:
        """A copy of the store before the run."""
        return self.folder / "earlier.db"

    @property
    def topic(self) -> str:
        return f"{self.name}.t"

    @property
    def group(self) -> str:
        return f"{self.name}.g"

    def open(self) -> OwnLink:
        return open_link(self.config_path, self.name)


class Site:
    """A lab, its links and their folders.

    Args:
        folder: for everything; a site that was kept there is used again.

    `seen`: the data before any fault, by runs: those of the snapshot never change.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.salvages = folder / "salvage"
        self.salvages.mkdir(parents=True, exist_ok=True)
        (folder / "links").mkdir(exist_ok=True)
        self.lab = Lab.up(folder / "lab", brokers=1, store="sqlite", users=USERS)
        self.seen: dict[tuple[str, ...], tuple[dict[str, dict[str, set[str]]], dict[str, set[int]]]] = {}
        self._frozen: list[subprocess.Popen[bytes]] = []
        self._snapshot = folder / "snapshot"
        self._damaged = self._snapshot.exists()

    def node(self, alias: str) -> str:
        return f"{alias}-1"

    def data(self, alias: str) -> Path:
        """The log directory of a cluster's broker."""
        return self.lab.dir / "nodes" / self.node(alias) / "data"

    def runs(self, states: Sequence[RunState], *, freeze: bool = False) -> list[PreparedRun]:
        """A run in each of these states: from the snapshot if there is one, else a new one."""
        if freeze or not self._snapshot.exists():
            self._kill_frozen()  # those of runs that nobody has woken
            self.restore()
            token = uuid.uuid4().hex[:6]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                return list(pool.map(lambda at: self._prepared(at, token, freeze=freeze), states))
        self.restore()
        return [self._kept(at) for at in states]

    def take_snapshot(self, states: Sequence[RunState]) -> None:
        """Prepare a run in each of these states and keep a snapshot, from which `runs` begins each time."""
        if self._snapshot.exists():
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            left = [at for at in states if not list(self._links.glob(f"c-kept*-{at}/{_PREPARED}"))]
            for _ in pool.map(lambda at: self._prepared(at, "kept", freeze=False), left):
                pass
        self.lab.down(keep_data=True)
        making = self.folder / "snapshot.making"
        for part in self._parts():
            _copy(part, making / part.relative_to(self.folder))
        shutil.copy(anchor_file(), making / _ANCHORS)
        making.rename(self._snapshot)
        self.lab = Lab.up(self.lab.dir)

    def restore(self) -> None:
        """Restore the lab and the links from the snapshot, if there is one and anything may have changed."""
        if not self._snapshot.exists():
            return
        if self._damaged:
            self.lab.kill(*ALIASES)
            for part in self._parts():
                shutil.rmtree(part, ignore_errors=True)
                _copy(self._snapshot / part.relative_to(self.folder), part)
            shutil.copy(self._snapshot / _ANCHORS, anchor_file())  # else the restored journals would seem to be cut
            self.lab.restart(*ALIASES)
        self._damaged = True

    def close(self, *, keep: bool) -> None:
        """Stop the lab; `keep`: leave its data."""
        self._kill_frozen()
        self.lab.down(keep_data=keep)

    def _kill_frozen(self) -> None:
        """SIGKILL the stopped processes; no effect on those that have ended."""
        while self._frozen:
            ended(self._frozen.pop())

    def _parts(self) -> list[Path]:
        return [self.data(alias) for alias in ALIASES] + [self.folder / "links", self.salvages]

    @property
    def _links(self) -> Path:
        return self.folder / "links"

    def _run(self, at: RunState, token: str) -> PreparedRun:
        name = f"c-{token}-{at}"
        return PreparedRun(at, name, self._links / name, self.salvages / name)

    def _kept(self, at: RunState) -> PreparedRun:
        """The run of the snapshot in this state."""
        (marker,) = self._links.glob(f"c-kept*-{at}/{_PREPARED}")
        return self._run(at, marker.parent.name.removeprefix("c-").removesuffix(f"-{at}"))

    def _prepared(self, at: RunState, token: str, *, freeze: bool) -> PreparedRun:
        """Bring a run to its state; a busy machine may need a second attempt."""
        for number in range(_TRIES):
            run = self._run(at, f"{token}{number}")
            if run.folder.exists():
                continue
            run.folder.mkdir()
            mine = with_writer(own_link(self.lab, run.folder, run.name), self.lab)
            try:
                made = _left(mine, run, self._frozen if freeze else None)
            except (AssertionError, DrkitError):
                if number == _TRIES - 1:
                    raise
            else:
                (run.folder / _PREPARED).touch()
                return made
            finally:
                mine.store.close()
        raise AssertionError(f"no run could be left in {at}")


def ended(child: subprocess.Popen[bytes]) -> None:
    """Kill a child process, unless it has ended, and wait for its end."""
    child.kill()
    child.wait()


def _left(mine: OwnLink, run: PreparedRun, frozen: list[subprocess.Popen[bytes]] | None) -> PreparedRun:
    """Bring a run to its state. `frozen`: stop its process there, and add it to this list."""
    for alias in ALIASES:
        put(mine, alias, *(allow(mine.name, kind, "all") for kind in ("topic", "group")))
    kind, mode, state = run.at
    topic = mine.create("primary", "t")
    mine.produce("primary", topic, texts("before", 5))
    mirror(mine)  # else both would be one batch on the target, and a cut would remove everything
    mine.produce("primary", topic, texts("later", 3))
    mine.commit("primary", "g", topic, {0: 3, 1: 5})
    mirror(mine)
    if kind in {Kind.FAILBACK, Kind.REPROTECT}:
        mine.produce("primary", topic, texts("only-here", 2))
        _failed_over(mine, Mode.UNPLANNED)
        mine.produce("dr", topic, texts("on-dr", 3))
    with (
        contextlib.closing(sqlite3.connect(run.store)) as now,
        contextlib.closing(sqlite3.connect(run.earlier_store)) as then,
    ):
        now.backup(then)
    if kind is None:
        return run
    if state is State.CLOSED:
        if kind is Kind.FAILOVER:
            _failed_over(mine, mode)
        else:
            _failed_back(mine, run, for_good=kind is Kind.REPROTECT)
        return run
    first = PATHS[kind][0].stage
    reached = next((step.stage for step in PATHS[kind] if step.reaches is state), None)
    place = (first, INTENT, "before") if reached is None else (reached, OUTCOME, "after")
    action = str(kind) if kind is not Kind.FAILOVER else {Mode.PLANNED: "planned"}.get(mode, "failover")
    return _stopped(mine, run, (action, str(run.salvage), *place), frozen)


def _stopped(
    mine: OwnLink, run: PreparedRun, words: tuple[str, ...], frozen: list[subprocess.Popen[bytes]] | None
) -> PreparedRun:
    """Execute an action in a process that kills itself, or stops, at a boundary of the journal."""
    command = [sys.executable, "-m", "tests.support.killing.killed_run", str(mine.config_path), mine.name, *words]
    log = run.folder / "killed.log"
    with log.open("wb") as file:
        child = subprocess.Popen([*command, "kill" if frozen is None else "freeze"], stdout=file, stderr=file)
    try:
        if frozen is None:
            assert child.wait(120) == -signal.SIGKILL, log.read_text()
            return run
        there = psutil.Process(child.pid)
        wait_until(
            lambda: child.poll() is not None or there.status() == psutil.STATUS_STOPPED,
            120,
            what="a stopped run",
        )
        assert child.poll() is None, log.read_text()
    except BaseException:
        ended(child)
        raise
    frozen.append(child)
    return replace(run, frozen=child)


def _failed_over(mine: OwnLink, mode: Mode) -> None:
    with mine.estate() as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr", mode=mode)), accept_unfenced=False)
    assert result.error is None, result.error


def _failed_back(mine: OwnLink, run: PreparedRun, *, for_good: bool) -> None:
    with mine.estate() as estate:
        plan = make_failback_plan(estate, "primary", for_good=for_good)
        confirmed = plan.target.cluster_id or ""
        result = run_failback(estate, plan, reading_ports(mine, run.salvage), cluster_id=confirmed)
    assert result.error is None, result.error


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True, capture_output=True)
