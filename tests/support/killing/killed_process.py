"""Executes runs in a separate process, which kills itself at a boundary of the journal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from drkit.failover.context.state_machine import PATHS, Kind
from drkit.failover.journal.journal import INTENT, OUTCOME
from tests.support.links.estates import OwnLink
from tests.support.wait import wait_until

Boundary = tuple[str, str, str]
"""Stage, event, before or after."""

BOUNDARIES = ((INTENT, "after"), (OUTCOME, "before"), (OUTCOME, "after"))


def boundaries(kind: Kind) -> list[Boundary]:
    """Every boundary of a run's journal."""
    return [(step.stage, event, when) for step in PATHS[kind] for event, when in BOUNDARIES]


def killed(own: OwnLink, action: str, salvage: Path, boundary: Boundary) -> None:
    """Execute the action in a process that kills itself there."""
    command = _command(own, action, salvage, boundary)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@contextmanager
def frozen_at(own: OwnLink, action: str, place: Boundary, salvage: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The same in a process that is stopped there (SIGSTOP) while the body runs, and killed at its end."""
    log = salvage.with_name("frozen.log")
    with log.open("wb") as file:
        child = subprocess.Popen([*_command(own, action, salvage, place), "freeze"], stdout=file, stderr=file)
    there = psutil.Process(child.pid)
    try:
        wait_until(lambda: child.poll() is not None or there.status() == psutil.STATUS_STOPPED, 120, "a stopped run")
        assert child.poll() is None, log.read_text()
        yield child
    except BaseException as error:
        error.add_note(log.read_text())
        raise
    finally:
        child.kill()
        child.wait()


def _command(own: OwnLink, action: str, salvage: Path, place: Boundary) -> list[str]:
    module = [
        sys.executable,
        "-m",
        "tests.support.killing.killed_run",
        str(own.config_path),
        own.name,
        action,
        str(salvage),
    ]
    return [*module, *place]
