"""The driver's end of the tasks' lines: only who knows the key is heard, and a line that ends is told."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator

import pytest

from drkit.model.errors import DrkitError, Unreachable
from drkit.seed import protocol
from drkit.seed.protocol import DriverConnection, DriverServer
from drkit.seed.protocol import tune as wire_tune

KEY = b"k" * 32


class Desk:
    """Answers with what was asked."""

    def __init__(self) -> None:
        self.heard: list[dict[str, object]] = []
        self.gone: queue.Queue[str] = queue.Queue()
        self.board = DriverServer("127.0.0.1", 0, KEY, self.handle, self.gone.put)

    def handle(self, said: dict[str, object]) -> dict[str, object]:
        self.heard.append(said)
        return {"heard": said["ask"], "over": said["task"] == "again"}


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.board.close()


def test_a_task_is_answered_and_its_end_is_told(desk: Desk) -> None:
    line = DriverConnection("127.0.0.1", desk.board.port, KEY)
    assert line.ask("work", task="seed-1") == {"heard": "work", "over": False}
    assert line.ask("heartbeat", task="seed-1", parts=[1])["heard"] == "heartbeat"
    line.close()
    assert desk.gone.get(timeout=10) == "seed-1"
    assert [each["ask"] for each in desk.heard] == ["work", "heartbeat"]


def test_another_attempt_that_is_sent_away_ends_nobody(desk: Desk) -> None:
    again, rows = (
        DriverConnection("127.0.0.1", desk.board.port, KEY),
        DriverConnection("127.0.0.1", desk.board.port, KEY),
    )
    assert again.ask("work", task="again")["over"]
    assert rows.ask("rows", task="seed-1")["heard"] == "rows"
    again.close()
    rows.close()
    desk.board.close()
    assert desk.gone.empty()


def test_who_does_not_know_the_key_is_not_heard(desk: Desk) -> None:
    with pytest.raises(Unreachable, match=r"can't reach drkit's driver at 127\.0\.0\.1"):
        DriverConnection("127.0.0.1", desk.board.port, b"x" * 32)
    with socket.create_connection(("127.0.0.1", desk.board.port)) as there:
        there.sendall(b"\x00\x00\x00\x10" + b"g" * 16)
    assert DriverConnection("127.0.0.1", desk.board.port, KEY).ask("heartbeat", task="seed-1")["heard"] == "heartbeat"
    assert len(desk.heard) == 1


def test_an_address_that_is_not_ours_is_said(desk: Desk) -> None:
    with pytest.raises(DrkitError, match="can't listen at"):
        DriverServer("127.0.0.1", desk.board.port, KEY, desk.handle, desk.gone.put)


def test_a_line_that_is_cut_without_a_word_is_noticed_by_both_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said on a line for rows for long: only the system's own probes tell that nobody is there any more."""
    tuned: list[socket.socket] = []
    monkeypatch.setattr(protocol, "tune", lambda line: (wire_tune(line), tuned.append(line.dup())))
    line = DriverConnection("127.0.0.1", desk.board.port, KEY)
    line.ask("rows", task="seed-1")
    assert len(tuned) == 2
    for each in tuned:
        assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        each.close()
    line.close()
