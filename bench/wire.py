"""The bench's own requests, as bytes on one connection: Produce, Fetch and ListOffsets.

A client library would batch, compress and retry by itself; the loader must control the number of records per batch, and
the watcher must cost almost nothing. Single-broker clusters on loopback, without security: the only broker leads every
partition.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

_PRODUCE = (0, 7)  # the first version with zstd
_FETCH = (1, 10)
_LIST_OFFSETS = (2, 2)
_FETCH_WAIT_MS = 500
_FETCH_BYTES = 4 << 20
_FIRST_EPOCH = 0
_LATEST = -1
_CONSUMER = -1
_NOT_YET = {3, 5, 6}  # just created: unknown, no leader, or not that leader yet
_TIMEOUT_SECONDS = 30.0
_CLIENT = "drkit-bench"


class WireError(Exception):
    """The broker refused a request; the message has Kafka's error code."""


@dataclass(slots=True)
class Session:
    """A fetch session (KIP-227) of one topic: each request names only the partitions read since the last one."""

    topic: str
    number: int = 0
    epoch: int = _FIRST_EPOCH


class Connection:
    """A connection to a broker; requests can be pipelined (many `send_produce`, then `receive_produce`)."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb", buffering=1 << 16)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def send_produce(self, topic: str, batches: Mapping[int, bytes]) -> None:
        """Send one record batch for each named partition, acks=1; read the response with `receive_produce`."""
        parts = [struct.pack(">hhii", -1, 1, int(_TIMEOUT_SECONDS * 1000), 1), _text(topic)]
        parts.append(struct.pack(">i", len(batches)))
        for partition, data in batches.items():
            parts += [struct.pack(">ii", partition, len(data)), data]
        self._send(_PRODUCE, parts)

    def receive_produce(self) -> dict[int, int]:
        """The base offset for each partition of the oldest pending request.

        Raises:
            WireError: a partition was refused.
        """
        answer = _Reader(self._receive())
        offsets = {}
        for topic in answer.topics():
            for _ in range(answer.count()):
                partition, error, offset, _time, _start = answer.take(">ihqqq")
                if error:
                    raise WireError(f"{topic}:{partition} refused a batch with Kafka's error {error}")
                offsets[partition] = offset
        return offsets

    def produce(self, topic: str, requests: Iterable[Mapping[int, bytes]], in_flight: int) -> None:
        """Send requests of one batch a partition, so many at once; returns when all are acknowledged.

        Raises:
            WireError: a partition was refused.
        """
        unanswered = 0
        for request in requests:
            if unanswered >= in_flight:
                self.receive_produce()
                unanswered -= 1
            self.send_produce(topic, request)
            unanswered += 1
        for _ in range(unanswered):
            self.receive_produce()

    def fetch(self, session: Session, positions: Mapping[int, int]) -> dict[int, memoryview]:
        """Wait half a second for records; returns the record batches by partition.

        Args:
            session: a new one, or that of the last call.
            positions: the next offsets of the partitions whose position changed (at first: of all).

        Raises:
            WireError: the broker refuses.
        """
        limits = (_CONSUMER, _FETCH_WAIT_MS, 1, _FETCH_BYTES, 1)
        parts = [struct.pack(">iiiibiii", *limits, session.number, session.epoch, 1), _text(session.topic)]
        parts.append(struct.pack(">i", len(positions)))
        parts += [struct.pack(">iiqqi", number, -1, at, -1, _FETCH_BYTES) for number, at in positions.items()]
        parts.append(struct.pack(">i", 0))  # no partition leaves the session
        self._send(_FETCH, parts)
        answer = _Reader(self._receive())
        _throttled, error, session.number = answer.take(">ihi")
        if error:
            raise WireError(f"the fetch session of {session.topic} failed with Kafka's error {error}")
        session.epoch += 1
        found = {}
        for _ in answer.topics():
            for _ in range(answer.count()):
                partition, error, _high, _stable, _start = answer.take(">ihqqq")
                answer.skip(16 * max(0, answer.count()))  # aborted transactions
                data = answer.data()
                if error:
                    raise WireError(f"{session.topic}:{partition} can't be read: Kafka's error {error}")
                if data:
                    found[partition] = data
        return found

    def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The high watermarks by partition, without partitions that don't exist (yet).

        Raises:
            WireError: any other error.
        """
        return self.ends_of({topic: partitions}).get(topic, {})

    def ends_of(self, wanted: Mapping[str, Sequence[int]]) -> dict[str, dict[int, int]]:
        """Like `ends`, for many topics with one request."""
        parts = [struct.pack(">ibi", _CONSUMER, 0, len(wanted))]
        for topic, partitions in wanted.items():
            parts += [_text(topic), struct.pack(">i", len(partitions))]
            parts += [struct.pack(">iq", partition, _LATEST) for partition in partitions]
        self._send(_LIST_OFFSETS, parts)
        answer = _Reader(self._receive())
        answer.skip(4)  # throttle time
        found: dict[str, dict[int, int]] = {}
        for topic in answer.topics():
            ends = found.setdefault(topic, {})
            for _ in range(answer.count()):
                partition, error, _time, offset = answer.take(">ihqq")
                if not error:
                    ends[partition] = offset
                elif error not in _NOT_YET:
                    raise WireError(f"{topic}:{partition} has no end: Kafka's error {error}")
        return found

    def _send(self, api: tuple[int, int], parts: Sequence[bytes]) -> None:
        self._correlation += 1
        body = b"".join([struct.pack(">hhi", *api, self._correlation), _text(_CLIENT), *parts])
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]  # without the correlation id: responses come in the order of requests

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        if len(data) < size:
            raise WireError("the broker closed the connection")
        return data


class _Reader:
    """Reads the fields of a response one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def count(self) -> int:
        return self.take(">i")[0]

    def topics(self) -> Iterable[str]:
        """Each topic's name; the caller reads its partitions before the next one."""
        for _ in range(self.count()):
            yield bytes(self._bytes(self.take(">h")[0])).decode()

    def data(self) -> memoryview:
        return self._bytes(max(0, self.count()))

    def skip(self, size: int) -> None:
        self._at += size

    def _bytes(self, size: int) -> memoryview:
        self._at += size
        return self._data[self._at - size : self._at]


def _text(text: str) -> bytes:
    name = text.encode()
    return struct.pack(">h", len(name)) + name
