"""WriteTxnMarkers, versions 0 and 1: transaction markers, each an offset of a partition that no consumer sees."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import ClassVar, Self

from aiokafka.protocol.api import Request

from drkit.kafka.protocol import encoding as form

_MARKER = struct.Struct(">qhb")

_Count = Callable[[memoryview, int], tuple[int, int]]
_String = Callable[[memoryview, int], tuple[str, int]]
_Tags = Callable[[memoryview, int], int]


class MarkersResponse:
    """A decoded WriteTxnMarkers response: (topic, partition) and error of each marker's partitions."""

    _FORM: ClassVar[tuple[_Count, _String, _Tags]] = (form.count, form.string, form.no_tags)

    def __init__(self, errors: list[tuple[str, int, int]]) -> None:
        self.errors = errors

    @classmethod
    def decode(cls, view: memoryview, at: int) -> Self:
        """One entry per marker and partition."""
        count, string, tags = cls._FORM
        errors: list[tuple[str, int, int]] = []
        markers, at = count(view, at)
        for _ in range(markers):
            at += 8
            topics, at = count(view, at)
            for _ in range(topics):
                topic, at = string(view, at)
                partitions, at = count(view, at)
                for _ in range(partitions):
                    (number,) = form.I32.unpack_from(view, at)
                    (error,) = form.I16.unpack_from(view, at + 4)
                    at = tags(view, at + 6)
                    errors.append((topic, number, error))
                at = tags(view, at)
            at = tags(view, at)
        return cls(errors)


class _MarkersAnswer1(MarkersResponse):
    _FORM = (form.compact_count, form.compact_string, form.tags)


class _Markers0(form.Encoded):
    API_KEY = 27
    API_VERSION = 0
    RESPONSE_TYPE = MarkersResponse


class _Markers1(form.Encoded):
    FLEXIBLE_VERSION = True
    API_KEY = 27
    API_VERSION = 1
    RESPONSE_TYPE = _MarkersAnswer1


class WriteTxnMarkers(Request[_Markers0 | _Markers1]):  # type: ignore[misc]  # untyped base
    """Append transaction markers to partitions of one leader: each takes one offset that no consumer sees.

    Kafka's own Admin uses this request to abort a hanging transaction (KIP-664); it needs ALTER (or
    CLUSTER_ACTION) on the cluster. Without an open transaction of the producer a marker ends nothing.

    Args:
        producer_id, producer_epoch: the producer whose (empty) transaction ends.
        topic, partition: where.
        count: how many markers.
    """

    API_KEY = 27

    def __init__(self, producer_id: int, producer_epoch: int, topic: str, partition: int, count: int) -> None:
        self._marker = _MARKER.pack(producer_id, producer_epoch, 0)
        self._topic = topic
        self._partition = partition
        self._count = count

    def build(self, request_struct_class: type[_Markers0 | _Markers1]) -> _Markers0 | _Markers1:
        """The request in the version that both sides know."""
        epoch, number = form.I32.pack(0), form.I32.pack(self._partition)
        if request_struct_class is _Markers1:
            name = self._topic.encode()
            one = (
                self._marker + b"\x02" + form.unsigned(len(name) + 1) + name + b"\x02" + number + b"\0" + epoch + b"\0"
            )
            return _Markers1(form.unsigned(self._count + 1) + one * self._count + b"\0")
        one = self._marker + form.I32.pack(1) + form.text(self._topic) + form.I32.pack(1) + number + epoch
        return request_struct_class(form.I32.pack(self._count) + one * self._count)
