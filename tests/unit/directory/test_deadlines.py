"""Whatever a directory waits for ends at one deadline: a server that continues slowly, a lock, a command's child."""

from __future__ import annotations

import fcntl
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drkit.config.schema.config import FenceConfig
from drkit.directory import Entry
from drkit.directory.command import run_bounded
from drkit.directory.file import FileDirectory
from drkit.directory.http import HttpServer
from drkit.directory.key_value import ConsulDirectory
from drkit.failover.fencing.cluster_fence import run_command
from drkit.model.clock import Deadline, bounded, now
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.runs import FenceMethod, FenceRecord, FenceState
from drkit.model.topology import LinkId

ENTRY = Entry("primary->dr", "dr", "h:9092", 2, "RUN1", datetime(2026, 11, 20, tzinfo=UTC))


@contextmanager
def dripping() -> Iterator[int]:
    """A server that answers for ever, a byte at a time: no wait for a byte is long."""
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        held, _ = listening.accept()
        with held:
            held.recv(10_000)
            try:
                held.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not over.wait(0.05):
                    held.sendall(b" ")
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        over.set()
        thread.join(10)
        listening.close()


def test_an_answer_that_never_ends_is_given_up_at_the_deadline() -> None:
    with dripping() as port:
        directory = ConsulDirectory(HttpServer("consul", "127.0.0.1", port, tls=False, timeout_seconds=0.5), "key")
        with pytest.raises(Unreachable, match=r"consul does not answer: not within 0\.5 s"):
            directory.publish(ENTRY)


def test_a_lock_that_somebody_holds_for_ever_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    directory = FileDirectory(tmp_path / "active.json", 0.2)
    assert directory.publish(ENTRY)
    with (tmp_path / ".active.json.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unreachable, match=r"locked by another process for more than 0\.2 s"):
            directory.publish(ENTRY)
    assert directory.publish(ENTRY) is False


def test_a_fence_command_whose_child_lives_on_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    held = tmp_path / "child"
    command = ("sh", "-c", 'setsid sh -c "$1" "$0" & wait', str(held), HOLDS)
    fence = FenceConfig(command=command, unfence=("true",), timeout_seconds=0.5)
    record = FenceRecord("primary", 1, "RUN1", FenceState.CLOSING, FenceMethod.COMMAND, now())
    with pytest.raises(DrkitError, match=r"the fence command of primary: sh did not end within 0\.5 s"):
        run_command(fence, "fence", record, LinkId("primary", "dr"), lambda _: None)
    ended = held.with_suffix(".ended").exists()
    held.with_suffix(".gate").touch()
    assert not ended, "it was waited for"


def test_what_is_called_within_a_bound_returns_raises_or_is_left() -> None:
    assert bounded(Deadline.after(10), lambda: 7, "t") == 7
    with pytest.raises(KeyError):
        bounded(Deadline.after(10), lambda: {}["absent"], "t")
    gate = threading.Event()
    with pytest.raises(TimeoutError):
        bounded(Deadline.after(0.05), lambda: gate.wait(20), "t")
    gate.set()


HOLDS = "touch $0.began; n=0; while [ ! -e $0.gate ] && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.1; done; touch $0.ended"
"""Holds what it inherited until the gate is there, 20 s at most."""


def test_what_was_put_into_another_session_is_not_waited_for(tmp_path: Path) -> None:
    held = tmp_path / "child"
    command = ("sh", "-c", 'setsid sh -c "$1" "$0" & wait', str(held), HOLDS)

    with pytest.raises(Unreachable, match="did not end within 1 s and was killed"):
        run_bounded(command, {}, "given" * 100_000, Deadline.after(1.0))

    ended = held.with_suffix(".ended").exists()
    held.with_suffix(".gate").touch()
    assert held.with_suffix(".began").exists()
    assert not ended, "it was waited for"


def test_what_a_command_says_and_is_given_goes_through() -> None:
    done = run_bounded(
        ("sh", "-c", "cat; echo $MORE; echo oh >&2; exit 3"), {"MORE": "told"}, "given\n", Deadline.after(60.0)
    )
    assert (done.code, done.out, done.said) == (3, "given\ntold\n", "oh")
