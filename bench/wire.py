"""The two requests that the bench itself sends, as bytes on one connection: Produce and ListOffsets.

A client library would batch, compress and retry as it likes; the loader must decide how many records a
batch holds, and the watcher must cost next to nothing beside what it watches. Single-broker clusters on
loopback, no security: the one broker leads every partition.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_PRODUCE = (0, 7)  # the first version that takes zstd
_LIST_OFFSETS = (2, 2)
_LATEST = -1
_CONSUMER = -1
_UNKNOWN_TOPIC_OR_PARTITION = 3
_TIMEOUT_SECONDS = 30.0
_CLIENT = b"drkit-bench"


class WireError(Exception):
    """The broker refused a request; the message has Kafka's error code."""


class Connection:
    """A connection to a broker; requests may be pipelined (`send_produce` many, then `receive_produce`)."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb", buffering=1 << 16)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def send_produce(self, topic: str, batches: Mapping[int, bytes]) -> None:
        """Send one record batch for each partition named, acks=1; read the answer with `receive_produce`."""
        parts = [struct.pack(">hhi", -1, 1, int(_TIMEOUT_SECONDS * 1000)), _array_of_one(topic)]
        parts.append(struct.pack(">i", len(batches)))
        for partition, data in batches.items():
            parts += [struct.pack(">ii", partition, len(data)), data]
        self._send(_PRODUCE, parts)

    def receive_produce(self) -> dict[int, int]:
        """The base offset that each partition of the oldest unanswered request got.

        Raises:
            WireError: a partition was refused.
        """
        answer = _Reader(self._receive())
        offsets = {}
        for _ in range(answer.int32()):
            topic = answer.text()
            for _ in range(answer.int32()):
                partition, error = answer.int32(), answer.int16()
                offset = answer.int64()
                answer.skip(16)  # log append time, log start offset
                if error:
                    raise WireError(f"{topic}:{partition} refused a batch with Kafka's error {error}")
                offsets[partition] = offset
        return offsets

    def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """High watermark by partition; partitions that don't exist (yet) are left out.

        Raises:
            WireError: any other error.
        """
        parts = [struct.pack(">ib", _CONSUMER, 0), _array_of_one(topic), struct.pack(">i", len(partitions))]
        parts += [struct.pack(">iq", partition, _LATEST) for partition in partitions]
        self._send(_LIST_OFFSETS, parts)
        answer = _Reader(self._receive())
        answer.skip(4)  # throttle time
        found = {}
        for _ in range(answer.int32()):
            answer.text()
            for _ in range(answer.int32()):
                partition, error = answer.int32(), answer.int16()
                answer.skip(8)
                offset = answer.int64()
                if not error:
                    found[partition] = offset
                elif error not in _NOT_YET:
                    raise WireError(f"{topic}:{partition} has no end: Kafka's error {error}")
        return found

    def _send(self, api: tuple[int, int], parts: Sequence[bytes]) -> None:
        self._correlation += 1
        header = struct.pack(">hhih", *api, self._correlation, len(_CLIENT)) + _CLIENT
        body = b"".join([header, *parts])
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]  # without the correlation id: answers come in the order of requests

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        if len(data) < size:
            raise WireError("the broker closed the connection")
        return data


_NOT_YET = {_UNKNOWN_TOPIC_OR_PARTITION, 5, 6}  # created a moment ago: unknown, no leader, or not that leader yet


class _Reader:
    """Reads the fields of an answer one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _unpack(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(value)

    def int16(self) -> int:
        return self._unpack(">h", 2)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def int64(self) -> int:
        return self._unpack(">q", 8)

    def text(self) -> str:
        size = self.int16()
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def skip(self, size: int) -> None:
        self._at += size


def _array_of_one(topic: str) -> bytes:
    name = topic.encode()
    return struct.pack(">ih", 1, len(name)) + name
