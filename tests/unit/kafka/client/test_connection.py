"""Answers reach whoever asked, however the bytes come; a connection is given up when nothing moves on it."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError

from drkit.kafka.client import connection
from drkit.kafka.client.connection import Connection, Reply, ResponseReader


class Echo:
    """The answer to a request of these tests: the rest of its bytes."""

    @staticmethod
    def decode(view: memoryview, at: int) -> bytes:
        return bytes(view[at:])


class Encoded:
    """A request as it goes to a broker."""

    API_KEY, API_VERSION = 99, 3
    RESPONSE_TYPE = Echo

    def __init__(self, *, flexible: bool = False) -> None:
        self.FLEXIBLE_VERSION = flexible

    def prepare(self, _: object) -> Encoded:
        return self

    parts = (b"the ", memoryview(b"body"))


class Made:
    """What `ResponseReader` knows of aiokafka's connection."""

    host, port, _client_id = "broker", 9092, "us"

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader()
        self._requests: deque[Any] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self.unsent = 0
        self.written: list[bytes] = []
        self._writer: Any = SimpleNamespace(
            transport=SimpleNamespace(get_write_buffer_size=lambda: self.unsent), write=self.written.append
        )
        self.closed: list[Any] = []
        self._numbers = count(7)

    def _next_correlation_id(self) -> int:
        return next(self._numbers)

    def close(self, reason: Any = None, exc: Any = None) -> None:
        self._writer = None
        self.closed.append((reason, exc))
        for _, _, owed in self._requests:
            if not owed.done():
                owed.set_exception(KafkaConnectionError("closed"))
        self._requests = deque()


def answer(number: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


def run(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a scene by a clock of its own: `pass_(seconds)` lets timers fire that are due."""

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
        scene(made, Connection(ResponseReader(made, 16.0)), pass_)
        await asyncio.sleep(0)  # what is to be done soon

    asyncio.run(play())


def test_a_large_answer_on_a_slow_line_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, pass_: Any) -> None:
        connection.send(Encoded())
        for _ in range(20):
            pass_(10)
            made._reader.feed_data(b"\0\0\x7f\xff some of it")
        assert not made.closed
        pass_(19)
        ((_, error),) = made.closed
        assert "silent for 16 s" in str(error)

    run(scene, monkeypatch)


def test_a_large_request_on_a_slow_line_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, pass_: Any) -> None:
        connection.send(Encoded())
        for left in range(200, 0, -10):
            made.unsent = left
            pass_(5)
        assert not made.closed
        pass_(24)
        assert made.closed

    run(scene, monkeypatch)


def test_silence_is_no_fault_where_nothing_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, pass_: Any) -> None:
        connection.send(Encoded())
        made._reader.feed_data(answer(7, b""))
        pass_(1000)
        assert not made.closed
        connection.send(Encoded())
        pass_(15)
        assert not made.closed
        pass_(6)
        assert made.closed

    run(scene, monkeypatch)


@pytest.mark.parametrize("large", [1, 8, 1 << 20])
@pytest.mark.parametrize("size", range(1, 40))
def test_answers_are_told_in_their_order_however_they_are_cut(
    size: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LARGE", large)  # what isn't small is put together in memory of its own

    def scene(made: Made, connection: Connection, _: Any) -> None:
        told: list[bytes] = []
        for flexible in (False, True, False):
            connection.send_with_callback(Encoded(flexible=flexible), lambda reply: told.append(reply.result()))
        future = connection.send(Encoded())
        came = answer(7, b"one") + answer(8, b"\0two") + answer(9, b"") + answer(10, b"four")
        for at in range(0, len(came), size):
            made._reader.feed_data(came[at : at + size])
        assert told == [b"one", b"two", b""]
        assert future.result() == b"four"
        assert not made.closed
        assert not made._requests

    run(scene, monkeypatch)


def test_an_answer_stays_as_it_is_for_as_long_as_anybody_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Echo, "decode", staticmethod(lambda view, at: view[at:]))

    def scene(made: Made, connection: Connection, _: Any) -> None:
        told: list[memoryview] = []
        bodies = [bytes([number]) * 700_000 for number in range(5)]
        for body in bodies:
            connection.send_with_callback(Encoded(), lambda reply: told.append(reply.result()))
            came = answer(7 + body[0], body)
            for at in range(0, len(came), 200_000):
                made._reader.feed_data(came[at : at + 200_000])
        assert [bytes(view) for view in told] == bodies
        last = told[-1][:10]
        told.clear()
        connection.send_with_callback(Encoded(), lambda reply: told.append(reply.result()))
        came = answer(12, b"x" * 700_000)
        made._reader.feed_data(came[:600_000])
        made._reader.feed_data(came[600_000:])
        assert last == bodies[-1][:10]

    run(scene, monkeypatch)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_request_goes_out_with_its_header(flexible: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, _: Any) -> None:
        connection.send(Encoded(flexible=flexible))
        body = struct.pack(">hhih", 99, 3, 7, 2) + b"us" + b"\0" * flexible + b"the body"
        assert made.written == [struct.pack(">i", len(body)) + body]

    run(scene, monkeypatch)


@pytest.mark.parametrize(
    "came",
    [
        answer(8, b"of another request"),
        answer(7, b"")[:-1] + b"\0",
        struct.pack(">i", 2) + b"xy",
        struct.pack(">i", -1),
        struct.pack(">ii", -5, 7),
        struct.pack(">ii", -40, 7) * 9,
    ],
)
def test_what_is_no_answer_to_what_was_asked_closes_the_connection(
    came: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scene(made: Made, connection: Connection, _: Any) -> None:
        told: list[Reply] = []
        connection.send_with_callback(Encoded(), told.append)
        future = connection.send(Encoded())
        made._reader.feed_data(came + answer(8, b"is not looked at any more"))
        assert [reason for reason, _ in made.closed] == [CloseReason.OUT_OF_SYNC]
        assert told == [], "told later: the connection is still being closed"
        assert isinstance(future.exception(), KafkaConnectionError)
        asyncio.get_running_loop().call_soon(failed, told)

    def failed(told: list[Reply]) -> None:
        with pytest.raises(KafkaConnectionError):
            told[0].result()
        seen.append("told")

    seen: list[str] = []
    run(scene, monkeypatch)
    assert seen == ["told"]


def test_an_answer_nobody_asked_for_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, _: Connection, __: Any) -> None:
        made._reader.feed_data(answer(7, b"news"))
        assert [reason for reason, _ in made.closed] == [CloseReason.OUT_OF_SYNC]

    run(scene, monkeypatch)


def test_whoever_is_told_may_ask_again_or_close(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(made: Made, connection: Connection, _: Any) -> None:
        told: list[bytes] = []

        def ask_again(reply: Reply) -> None:
            told.append(reply.result())
            connection.send_with_callback(Encoded(), close)

        def close(reply: Reply) -> None:
            told.append(reply.result())
            made.close()

        connection.send_with_callback(Encoded(), ask_again)
        made._reader.feed_data(answer(7, b"one") + answer(8, b"two") + answer(9, b"after the end"))
        assert told == [b"one", b"two"]
        assert made.closed == [(None, None)]
        with pytest.raises(KafkaConnectionError, match="no connection to broker at broker:9092"):
            connection.send(Encoded())

    run(scene, monkeypatch)


def test_a_request_on_a_connection_that_was_lost_in_this_moment_closes_it() -> None:
    """uvloop raises RuntimeError for such a write, and aiokafka's reader isn't told before it runs again."""

    async def play() -> None:
        made = Made()

        def lost(_: bytes) -> None:
            raise RuntimeError("the handler is closed")

        connection = Connection(ResponseReader(made, 1.0))
        waiting = connection.send(Encoded())
        made._writer.write = lost
        with pytest.raises(KafkaConnectionError, match="was lost: the handler is closed"):
            connection.send(Encoded())
        assert [reason for reason, _ in made.closed] == [CloseReason.CONNECTION_BROKEN]
        with pytest.raises(KafkaConnectionError):
            await waiting

    asyncio.run(play())
