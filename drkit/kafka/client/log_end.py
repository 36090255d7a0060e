"""ListOffsets, version 4: the log ends of partitions on their leader, over a connection of the data path.

Requested as replica -2, which sees a log to its end and not only to its high watermark: the offset that the next
append gets (`drkit.kafka.admin.logs.log_offsets` requests the same over the admin connection). A leader of another
epoch than the one named refuses to answer (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; KIP-320).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from aiokafka.protocol.api import Request

from drkit.kafka.protocol import encoding as form

_HEAD = struct.Struct(">ibi")  # replica, isolation, number of topics
_ASKED = struct.Struct(">iiq")  # partition, current leader epoch, timestamp
_FOUND = struct.Struct(">ihqqi")  # partition, error, timestamp, offset, leader epoch
_OBSERVER = -2
_READ_UNCOMMITTED = 0
_LATEST = -1


class LogEnd(NamedTuple):
    """The end offset of one partition (exclusive)."""

    topic: str
    partition: int
    error: int
    offset: int


class LogEndsResponse:
    """A decoded ListOffsets response."""

    def __init__(self, partitions: list[LogEnd]) -> None:
        self.partitions = partitions

    @classmethod
    def decode(cls, view: memoryview, at: int) -> Self:
        """One entry per partition."""
        partitions: list[LogEnd] = []
        topics, at = form.count(view, at + form.I32.size)  # behind the throttle time
        for _ in range(topics):
            topic, at = form.string(view, at)
            count, at = form.count(view, at)
            for _ in range(count):
                number, error, _stamp, offset, _epoch = _FOUND.unpack_from(view, at)
                at += _FOUND.size
                partitions.append(LogEnd(topic, number, error, offset))
        return cls(partitions)


class _ListOffsets4(form.Encoded):
    API_KEY = 2
    API_VERSION = 4
    RESPONSE_TYPE = LogEndsResponse


class LogEndsRequest(Request[_ListOffsets4]):  # type: ignore[misc]  # untyped base
    """Ask one leader for the log ends of partitions.

    Args:
        partitions: by topic, each with the epoch of the leader that is to answer (-1: whichever leads).
    """

    API_KEY = 2

    def __init__(self, partitions: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        parts: list[bytes] = [_HEAD.pack(_OBSERVER, _READ_UNCOMMITTED, len(partitions))]
        for topic, numbers in partitions.items():
            parts.append(form.text(topic))
            parts.append(form.I32.pack(len(numbers)))
            parts.extend(_ASKED.pack(number, epoch, _LATEST) for number, epoch in numbers)
        self._parts = parts

    def build(self, request_struct_class: type[_ListOffsets4]) -> _ListOffsets4:
        """The request in the version that both sides know."""
        return request_struct_class(*self._parts)
