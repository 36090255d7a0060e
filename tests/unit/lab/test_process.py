"""Only processes that are proved to be the lab's own are ever signalled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drkit.lab import process
from drkit.lab.ports import answers, free_ports, holder, is_free
from drkit.lab.process import Interrupts, kill, stop
from tests.support.wait import wait_until

_SLEEPER = "import signal,sys; print('ready', flush=True); signal.pause()"
_STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\nwhile True: signal.pause()"


@pytest.fixture
def console(tmp_path: Path) -> Path:
    return tmp_path / "console.log"


@pytest.fixture
def spawned(console: Path) -> Iterator[psutil.Process]:
    child = process.spawn([sys.executable, "-c", _SLEEPER, "the-mark"], console)
    wait_until(lambda: "ready" in console.read_text(), what="the child's start")
    yield child
    kill([child])


def test_a_noted_process_is_found_again(spawned: psutil.Process, tmp_path: Path):
    process.note(tmp_path / "process.json", spawned)
    kept = process.noted(tmp_path / "process.json")
    found = process.proved(kept, "the-mark")
    assert found is not None
    assert found.pid == spawned.pid


def test_it_runs_in_a_session_of_its_own(spawned: psutil.Process):
    assert os.getsid(spawned.pid) == spawned.pid


def test_a_pid_of_another_start_is_not_ours(spawned: psutil.Process):
    assert process.proved(process.SpawnRecord(spawned.pid, spawned.create_time() - 60), "the-mark") is None


def test_a_process_without_the_mark_is_not_ours(spawned: psutil.Process):
    noted = process.SpawnRecord(spawned.pid, spawned.create_time())
    assert process.proved(noted, "the-mark") is not None
    assert process.proved(noted, "another-mark") is None


def test_a_note_that_is_damaged_or_absent_proves_nothing(tmp_path: Path):
    assert process.noted(tmp_path / "absent") is None
    (tmp_path / "half").write_text('{"pid": 1')
    assert process.noted(tmp_path / "half") is None
    assert process.proved(None, "the-mark") is None


def test_a_program_that_only_mentions_a_mark_is_not_a_node(tmp_path: Path, console: Path):
    child = process.spawn([sys.executable, "-c", _SLEEPER, process.mark(tmp_path, "primary-1")], console)
    try:
        wait_until(lambda: "ready" in console.read_text(), what="the child's start")
        assert process.marked(tmp_path) == {}
    finally:
        kill([child])


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
    ],
)
def test_how_a_process_ended_is_told(program: str, said: str, console: Path):
    child = process.spawn([sys.executable, "-c", program], console)
    assert wait_until(lambda: process.ending(child), what="its end") == said


def test_who_holds_a_lock_is_told_by_name_while_it_is_held(tmp_path: Path, console: Path):
    file = tmp_path / ".lock"
    assert process.lock_holder(file) is None, "there is no such file"
    file.touch()
    assert process.lock_holder(file) is None
    lock = "import fcntl, signal, sys; opened = open(sys.argv[1], 'r+'); fcntl.lockf(opened, fcntl.LOCK_EX)\n"
    child = process.spawn(
        [sys.executable, "-c", f"{lock}print('ready', flush=True); signal.pause()", str(file)], console
    )
    try:
        wait_until(lambda: "ready" in console.read_text(), what="the lock")
        held = f"pid {child.pid} ({child.name()})" if Path("/proc/locks").exists() else "another process"
        assert process.lock_holder(file) == held
    finally:
        kill([child])
    assert process.lock_holder(file) is None


def test_a_killed_process_is_gone_and_was_reaped(spawned: psutil.Process):
    kill([spawned])
    assert process.gone(spawned)
    assert not process.lives(spawned.pid)


def test_a_process_that_heeds_sigterm_is_not_killed(spawned: psutil.Process):
    assert stop([spawned], 20) == []
    assert not process.lives(spawned.pid)


def test_a_paused_process_is_woken_to_end(spawned: psutil.Process):
    process.send(spawned, signal.SIGSTOP)
    wait_until(lambda: process.is_paused(spawned), what="the pause")
    assert stop([spawned], 20) == []


def test_a_process_that_ignores_sigterm_is_killed(console: Path):
    child = process.spawn([sys.executable, "-c", _STUBBORN], console)
    wait_until(lambda: "ready" in console.read_text(), what="the child's start")
    assert stop([child], 0.2) == [child]
    assert not process.lives(child.pid)


def test_options_of_other_java_programs_do_not_reach_a_node(console: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dsurprise")
    code = "import os; print('JAVA_TOOL_OPTIONS' in os.environ, 'PATH' in os.environ, flush=True)"
    child = process.spawn([sys.executable, "-c", code], console)
    wait_until(lambda: console.read_text() == "False True\n", what="the child's answer")
    wait_until(lambda: process.gone(child), what="the child's end")


def test_free_ports_are_distinct_free_and_below_the_kernels_own():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) and port < 32_768 for port in ports)


def test_a_taken_port_is_seen_and_its_holder_named():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not is_free(port)
        assert answers(port)
        assert f"pid {os.getpid()}" in holder(port)
    assert is_free(port)
    assert not answers(port)


def test_a_signal_waits_for_the_next_check():
    reached = []

    def steps() -> None:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            reached.append("the step was finished")
            interrupts.check()
            reached.append("never")

    with pytest.raises(KeyboardInterrupt):
        steps()
    assert reached == ["the step was finished"]


def test_sigterm_ends_with_its_own_code_and_wakes_a_wait():
    def waiting() -> None:
        with Interrupts() as interrupts:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
            interrupts.wait(60)

    with pytest.raises(SystemExit) as caught:
        waiting()
    assert caught.value.code == 128 + signal.SIGTERM


def test_a_second_signal_does_not_disturb_the_clean_up():
    cleaned = []

    def interrupted_twice() -> None:
        with Interrupts() as interrupts:
            try:
                signal.raise_signal(signal.SIGINT)
                interrupts.check()
            except BaseException:
                interrupts.clean_up()
                signal.raise_signal(signal.SIGINT)
                interrupts.wait(0)
                cleaned.append(True)
                raise

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert cleaned == [True]


def test_handlers_are_put_back_and_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_guard_ends_when_its_pipe_closes():
    code = (
        "import os; from tests.support.clusters.guard import Guard\n"
        "g = Guard(); print(g._process.pid, flush=True); os._exit(9)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(child.stdout)
    wait_until(lambda: not process.lives(pid), what="the guard's end")
