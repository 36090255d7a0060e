"""The three requests of the data path, as aiokafka's client sends them: Fetch, Produce, WriteTxnMarkers.

aiokafka carries any request that can encode itself and whose response can be decoded; connection,
TLS, SASL and the choice of a version both sides know are its. Its own classes for Fetch and Produce
copy a record batch several times and build an object per field; these encode into one buffer and
decode into views of the bytes received.

Versions: Fetch 10 and 11 (zstd needs 10; 11 brings the rack, KIP-392), Produce 7 and 8 (zstd needs
7; 8 names the records refused, KIP-467), WriteTxnMarkers 0 and 1. So brokers from 2.1 on will do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from typing import ClassVar, NamedTuple

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Schema

_I16, _I32, _I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_FETCHED_HEAD = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqq")
_PRODUCED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_MARKER = struct.Struct(">qhb")

CONSUMER = -1
FIRST_EPOCH, FINAL_EPOCH = 0, -1
"""Fetch session epochs (KIP-227): a request that opens a session, and one outside any session."""


class FetchPlace(NamedTuple):
    """A partition in a Fetch request: where to read on, and how much at most."""

    partition: int
    offset: int
    max_bytes: int


class Fetched(NamedTuple):
    """What a Fetch answered for one partition. `aborted`: (producer id, first offset) of aborted transactions."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    stable_offset: int
    log_start: int
    aborted: Sequence[tuple[int, int]]
    preferred_replica: int
    records: memoryview


class Produced(NamedTuple):
    """What a Produce answered for one partition."""

    topic: str
    partition: int
    error: int
    base_offset: int
    log_start: int
    message: str


class _Decoded(Response):  # type: ignore[misc]  # untyped base
    """A response that decodes itself."""

    API_KEY = 0
    API_VERSION = 0
    SCHEMA = Schema()

    def __repr__(self) -> str:
        return type(self).__name__


class _Encoded(RequestStruct):  # type: ignore[misc]  # untyped base
    """A request that was encoded by its builder."""

    API_KEY = 0
    API_VERSION = 0
    RESPONSE_TYPE: ClassVar[type[Response]] = _Decoded
    SCHEMA = Schema()

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def encode(self) -> bytes:
        return self.body

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.body)} bytes)"


# -- Fetch -----------------------------------------------------------------------------------------


class FetchAnswer(_Decoded):
    """A decoded Fetch response: a top-level error, the session, and what came of each partition."""

    def __init__(self, error: int, session: int, partitions: list[Fetched], size: int) -> None:
        super().__init__()
        self.error = error
        self.session = session
        self.partitions = partitions
        self.size = size

    _RACKS = False

    @classmethod
    def decode(cls, data: BytesIO | bytes) -> FetchAnswer:
        """Views into the bytes received; nothing is copied."""
        view, at = _view(data)
        _throttle, error, session = _FETCHED_HEAD.unpack_from(view, at)
        at += _FETCHED_HEAD.size
        partitions: list[Fetched] = []
        (topics,) = _I32.unpack_from(view, at)
        at += 4
        for _ in range(topics):
            topic, at = _string(view, at)
            (count,) = _I32.unpack_from(view, at)
            at += 4
            for _ in range(count):
                number, failed, high, stable, start = _FETCHED_PARTITION.unpack_from(view, at)
                at += _FETCHED_PARTITION.size
                aborted: list[tuple[int, int]] = []
                (transactions,) = _I32.unpack_from(view, at)
                at += 4
                for _ in range(transactions):
                    aborted.append(_ABORTED.unpack_from(view, at))
                    at += _ABORTED.size
                replica = -1
                if cls._RACKS:
                    (replica,) = _I32.unpack_from(view, at)
                    at += 4
                (size,) = _I32.unpack_from(view, at)
                at += 4
                size = max(0, size)
                records = view[at : at + size]
                at += size
                partitions.append(Fetched(topic, number, failed, high, stable, start, aborted, replica, records))
        return cls(error, session, partitions, len(view))


class _FetchAnswer11(FetchAnswer):
    _RACKS = True


class _Fetch10(_Encoded):
    API_KEY = 1
    API_VERSION = 10
    RESPONSE_TYPE = FetchAnswer


class _Fetch11(_Encoded):
    API_KEY = 1
    API_VERSION = 11
    RESPONSE_TYPE = _FetchAnswer11


class Fetch(Request[_Fetch10 | _Fetch11]):  # type: ignore[misc]  # untyped base
    """Read from one broker.

    Args:
        places: by topic, what to read (in a session: what changed).
        forgotten: by topic, partitions that leave the session.
        session, epoch: of the fetch session.
        committed: leave out what open or aborted transactions hold back (read_committed).
        max_wait_ms, min_bytes, max_bytes: as the protocol's.
        rack: of the reader, for a replica near it.
    """

    API_KEY = 1

    def __init__(
        self,
        places: dict[str, list[FetchPlace]],
        *,
        forgotten: dict[str, list[int]] | None = None,
        session: int = 0,
        epoch: int = FINAL_EPOCH,
        committed: bool = True,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int,
        rack: str = "",
    ) -> None:
        self._rack = rack
        parts = [
            _FETCH_HEAD.pack(CONSUMER, max_wait_ms, min_bytes, max_bytes, int(committed), session, epoch),
            _I32.pack(len(places)),
        ]
        for topic, partitions in places.items():
            parts.append(_text(topic))
            parts.append(_I32.pack(len(partitions)))
            parts.extend(_FETCH_PARTITION.pack(p.partition, -1, p.offset, -1, p.max_bytes) for p in partitions)
        parts.append(_I32.pack(len(forgotten or {})))
        for topic, numbers in (forgotten or {}).items():
            parts.append(_text(topic))
            parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
        self._body = b"".join(parts)

    def build(self, request_struct_class: type[_Fetch10 | _Fetch11]) -> _Fetch10 | _Fetch11:
        """The request in the version that both sides know."""
        if request_struct_class is _Fetch11:
            return _Fetch11(self._body + _text(self._rack))
        return request_struct_class(self._body)


# -- Produce ---------------------------------------------------------------------------------------


class ProduceAnswer(_Decoded):
    """A decoded Produce response."""

    _NAMES_RECORDS = False

    def __init__(self, partitions: list[Produced]) -> None:
        super().__init__()
        self.partitions = partitions

    @classmethod
    def decode(cls, data: BytesIO | bytes) -> ProduceAnswer:
        """One entry per partition."""
        view, at = _view(data)
        partitions: list[Produced] = []
        (topics,) = _I32.unpack_from(view, at)
        at += 4
        for _ in range(topics):
            topic, at = _string(view, at)
            (count,) = _I32.unpack_from(view, at)
            at += 4
            for _ in range(count):
                number, error, base, _append_time, start = _PRODUCED.unpack_from(view, at)
                at += _PRODUCED.size
                message = ""
                if cls._NAMES_RECORDS:
                    message, at = cls._refusals(view, at)
                partitions.append(Produced(topic, number, error, base, start, message))
        return cls(partitions)

    @staticmethod
    def _refusals(view: memoryview, at: int) -> tuple[str, int]:
        """What the broker says of a refused batch and its records."""
        (count,) = _I32.unpack_from(view, at)
        at += 4
        said = []
        for _ in range(count):
            (index,) = _I32.unpack_from(view, at)
            why, at = _string(view, at + 4)
            said.append(f"record {index}: {why}" if why else f"record {index}")
        message, at = _string(view, at)
        return "; ".join([*([message] if message else []), *said[:3]]), at


class _ProduceAnswer8(ProduceAnswer):
    _NAMES_RECORDS = True


class _Produce7(_Encoded):
    API_KEY = 0
    API_VERSION = 7
    RESPONSE_TYPE = ProduceAnswer


class _Produce8(_Encoded):
    API_KEY = 0
    API_VERSION = 8
    RESPONSE_TYPE = _ProduceAnswer8


Payload = tuple[bytes, bytes | memoryview]
"""A batch to be produced: its header and its records."""


class Produce(Request[_Produce7 | _Produce8]):  # type: ignore[misc]  # untyped base
    """Append one batch to each of some partitions, acknowledged by all in-sync replicas.

    Args:
        batches: by topic, (partition, header and records).
        timeout_ms: how long the leader waits for its followers.
    """

    API_KEY = 0
    required_acks = -1  # aiokafka's client asks whether a response comes

    def __init__(self, batches: dict[str, list[tuple[int, Payload]]], *, timeout_ms: int) -> None:
        parts: list[bytes | memoryview] = [struct.pack(">hhii", -1, -1, timeout_ms, len(batches))]
        for topic, partitions in batches.items():
            parts.append(_text(topic))
            parts.append(_I32.pack(len(partitions)))
            for number, (head, records) in partitions:
                parts.append(struct.pack(">ii", number, len(head) + len(records)))
                parts.append(head)
                parts.append(records)
        self._body = b"".join(parts)

    def build(self, request_struct_class: type[_Produce7 | _Produce8]) -> _Produce7 | _Produce8:
        """The request in the version that both sides know."""
        return request_struct_class(self._body)


# -- WriteTxnMarkers -------------------------------------------------------------------------------


class MarkersAnswer(_Decoded):
    """A decoded WriteTxnMarkers response: (topic, partition) and error of each marker's partitions."""

    _COMPACT = False

    def __init__(self, errors: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.errors = errors

    @classmethod
    def decode(cls, data: BytesIO | bytes) -> MarkersAnswer:
        """One entry per marker and partition."""
        view, at = _view(data)
        count, string, tags = (_compact_count, _compact_string, _tags) if cls._COMPACT else (_count, _string, _no_tags)
        errors: list[tuple[str, int, int]] = []
        markers, at = count(view, at)
        for _ in range(markers):
            at += 8
            topics, at = count(view, at)
            for _ in range(topics):
                topic, at = string(view, at)
                partitions, at = count(view, at)
                for _ in range(partitions):
                    (number,) = _I32.unpack_from(view, at)
                    (error,) = _I16.unpack_from(view, at + 4)
                    at = tags(view, at + 6)
                    errors.append((topic, number, error))
                at = tags(view, at)
            at = tags(view, at)
        return cls(errors)


class _MarkersAnswer1(MarkersAnswer):
    _COMPACT = True


class _Markers0(_Encoded):
    API_KEY = 27
    API_VERSION = 0
    RESPONSE_TYPE = MarkersAnswer


class _Markers1(_Encoded):
    FLEXIBLE_VERSION = True
    API_KEY = 27
    API_VERSION = 1
    RESPONSE_TYPE = _MarkersAnswer1


class WriteTxnMarkers(Request[_Markers0 | _Markers1]):  # type: ignore[misc]  # untyped base
    """Append transaction markers to partitions of one leader: each takes one offset that no consumer sees.

    Kafka's own Admin uses this request to abort a hanging transaction (KIP-664); it needs ALTER (or
    CLUSTER_ACTION) on the cluster. Without an open transaction of the producer a marker ends nothing.

    Args:
        producer_id, producer_epoch: whose (empty) transaction is ended.
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
        epoch, number = _I32.pack(0), _I32.pack(self._partition)
        if request_struct_class is _Markers1:
            name = self._topic.encode()
            one = self._marker + b"\x02" + _unsigned(len(name) + 1) + name + b"\x02" + number + b"\0" + epoch + b"\0"
            return _Markers1(_unsigned(self._count + 1) + one * self._count + b"\0")
        one = self._marker + _I32.pack(1) + _text(self._topic) + _I32.pack(1) + number + epoch
        return request_struct_class(_I32.pack(self._count) + one * self._count)


# -- primitives ------------------------------------------------------------------------------------


def _view(data: BytesIO | bytes) -> tuple[memoryview, int]:
    """The bytes of a response without copying them, and where its body begins."""
    if isinstance(data, BytesIO):
        return data.getbuffer(), data.tell()
    return memoryview(data), 0


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _I16.pack(len(encoded)) + encoded


def _count(view: memoryview, at: int) -> tuple[int, int]:
    (count,) = _I32.unpack_from(view, at)
    return count, at + 4


def _string(view: memoryview, at: int) -> tuple[str, int]:
    (size,) = _I16.unpack_from(view, at)
    at += 2
    if size < 0:
        return "", at
    return str(view[at : at + size], "utf-8"), at + size


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_unsigned(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def _compact_count(view: memoryview, at: int) -> tuple[int, int]:
    value, at = _read_unsigned(view, at)
    return value - 1, at


def _compact_string(view: memoryview, at: int) -> tuple[str, int]:
    size, at = _compact_count(view, at)
    return str(view[at : at + size], "utf-8"), at + size


def _tags(view: memoryview, at: int) -> int:
    count, at = _read_unsigned(view, at)
    for _ in range(count):
        _, at = _read_unsigned(view, at)
        size, at = _read_unsigned(view, at)
        at += size
    return at


def _no_tags(_: memoryview, at: int) -> int:
    return at
