"""A process is told from a later one with its pid, whatever the clock and whoever asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from drkit import processes
from drkit.failover.context.lease import Owner
from drkit.mirror.workers.leader_lease import known_dead, this_process
from drkit.processes import ProcessIdentity, this_machine


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def test_a_step_of_the_clock_makes_no_living_process_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the boot moves with the clock, and with it each time that is counted from it."""
    operator, worker = Owner.this_process("R"), this_process()
    boot = psutil.boot_time()
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda each: create_time(each) + 3_600)
    monkeypatch.setattr(psutil, "boot_time", lambda: boot + 3_600)
    assert not operator.known_dead()
    assert not known_dead(worker)
    assert (Owner.this_process("R"), this_process().rsplit(":", 1)[0]) == (operator, worker.rsplit(":", 1)[0])


def test_one_that_has_ended_is_dead_before_it_is_reaped_and_after(child: subprocess.Popen[bytes]) -> None:
    alive = ProcessIdentity.of(child.pid)
    assert not alive.known_dead()
    child.send_signal(signal.SIGSTOP)
    assert not alive.known_dead(), "it is stopped, not dead"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert alive.known_dead()
    child.wait()
    assert alive.known_dead()
    with pytest.raises(ProcessLookupError):
        ProcessIdentity.of(child.pid)


def test_one_that_is_hidden_or_elsewhere_is_not_known_to_be_dead(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, gone = ProcessIdentity.of(child.pid), replace(ProcessIdentity.of(), pid=2**22 + 1)
    assert gone.known_dead()
    assert replace(gone, pid=2**80).known_dead()
    assert not replace(gone, machine="another").known_dead()

    def hidden(_: int) -> tuple[str, int]:
        raise FileNotFoundError

    monkeypatch.setattr(processes, "_look", hidden)
    assert not alive.known_dead()
    assert gone.known_dead()


def test_without_a_proc_nobody_is_known_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(ProcessIdentity.of(), pid=2**22 + 1, machine="unknown")

    def none(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", none)
    this_machine.cache_clear()
    try:
        assert ProcessIdentity.of() == ProcessIdentity(os.getpid(), 0, "unknown")
        assert not gone.known_dead()
    finally:
        this_machine.cache_clear()
