"""Runs that are carried out in a process of their own, which kills itself at a boundary of the journal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from drkit.failover.run.journal.journal import INTENT, OUTCOME
from drkit.failover.run.state_machine import PATHS, Kind
from tests.support.estates import OwnLink

Boundary = tuple[str, str, str]
"""Stage, event, before or after."""

BOUNDARIES = ((INTENT, "after"), (OUTCOME, "before"), (OUTCOME, "after"))


def boundaries(kind: Kind) -> list[Boundary]:
    """Every boundary of a run's journal."""
    return [(step.stage, event, when) for step in PATHS[kind] for event, when in BOUNDARIES]


def killed(own: OwnLink, action: str, salvage: Path, boundary: Boundary) -> None:
    """Carry the action out in a process that kills itself there."""
    place = [sys.executable, "-m", "tests.support.killed_run", str(own.config_path), own.name, action, str(salvage)]
    ended = subprocess.run([*place, *boundary], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
