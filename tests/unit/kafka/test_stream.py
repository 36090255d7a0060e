"""A connection is given up when nothing moves on it, not because an answer is large and the line slow."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.stream import Connection, _Line


class Made:
    """What `_Line` knows of aiokafka's connection."""

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader()
        self._requests: deque[Any] = deque()
        self._request_timeout: float | None = 15.0
        self.unsent = 0
        self._writer: Any = SimpleNamespace(transport=SimpleNamespace(get_write_buffer_size=lambda: self.unsent))
        self.closed: list[Any] = []

    def send(self, request: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self._requests.append((len(self._requests), request, answer))
        return asyncio.wait_for(answer, self._request_timeout)

    def close(self, reason: Any = None, exc: Any = None) -> None:
        self._writer = None
        self.closed.append((reason, exc))


def run(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a scene by a clock of its own: `await pass_(seconds)` lets timers fire that are due."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        clock = [loop.time()]
        due: list[tuple[float, Any]] = []
        monkeypatch.setattr(loop, "time", lambda: clock[0])
        monkeypatch.setattr(loop, "call_later", lambda seconds, call: due.append((clock[0] + seconds, call)))

        def pass_(seconds: float) -> None:
            end = clock[0] + seconds
            while due and min(due)[0] <= end:
                at, call = due.pop(due.index(min(due, key=lambda each: each[0])))
                clock[0] = at
                call()
            clock[0] = end

        made = Made()
        scene(made, Connection(_Line(made, 16.0)), pass_)

    asyncio.run(play())


def test_a_large_answer_on_a_slow_line_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, pass_: Any) -> None:
        assert made._request_timeout is None
        connection.send("fetch")
        for _ in range(20):
            pass_(10)
            made._reader.feed_data(b"some of it")
        assert not made.closed
        assert made._reader._buffer == b"some of it" * 20
        pass_(19)
        ((_, error),) = made.closed
        assert "silent for 16 s" in str(error)

    run(scene, monkeypatch)


def test_a_large_request_on_a_slow_line_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, pass_: Any) -> None:
        connection.send("produce")
        for left in range(200, 0, -10):
            made.unsent = left
            pass_(5)
        assert not made.closed
        pass_(24)
        assert made.closed

    run(scene, monkeypatch)


def test_silence_is_no_fault_where_nothing_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, pass_: Any) -> None:
        connection.send("fetch")
        made._reader.feed_data(b"the answer")
        made._requests.clear()
        pass_(1000)
        assert not made.closed
        connection.send("fetch")
        pass_(15)
        assert not made.closed
        pass_(6)
        assert made.closed

    run(scene, monkeypatch)
