"""The two requests of the data path: Fetch and Produce.

They are aiokafka's requests in so far as it chooses the version that both sides know. Its own classes for them
copy a record batch several times and build an object per field; these are put together once, where they are sent
(`drkit.kafka.line`), and decode into views of the bytes received.

Versions: Fetch 10 and 11 (zstd needs 10; 11 brings the rack, KIP-392), Produce 7 and 8 (zstd needs
7; 8 names the records refused, KIP-467). So brokers from 2.1 on will do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Self

from aiokafka.protocol.api import Request

from drkit.kafka import encoding as form

_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_FETCHED_HEAD = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqqi")
_PRODUCED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")

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


# -- Fetch -----------------------------------------------------------------------------------------


class FetchAnswer:
    """A decoded Fetch response: a top-level error, the session, and what came of each partition."""

    def __init__(self, error: int, session: int, partitions: list[Fetched], size: int) -> None:
        self.error = error
        self.session = session
        self.partitions = partitions
        self.size = size

    _RACKS = False

    @classmethod
    def decode(cls, view: memoryview, at: int) -> Self:
        """Views into the bytes received; nothing is copied."""
        _throttle, error, session = _FETCHED_HEAD.unpack_from(view, at)
        at += _FETCHED_HEAD.size
        partitions: list[Fetched] = []
        (topics,) = form.I32.unpack_from(view, at)
        at += 4
        for _ in range(topics):
            topic, at = form.string(view, at)
            (count,) = form.I32.unpack_from(view, at)
            at += 4
            for _ in range(count):
                number, failed, high, stable, start, transactions = _FETCHED_PARTITION.unpack_from(view, at)
                at += _FETCHED_PARTITION.size
                aborted: list[tuple[int, int]] = []
                for _ in range(transactions):
                    aborted.append(_ABORTED.unpack_from(view, at))
                    at += _ABORTED.size
                replica = -1
                if cls._RACKS:
                    (replica,) = form.I32.unpack_from(view, at)
                    at += 4
                (size,) = form.I32.unpack_from(view, at)
                at += 4
                size = max(0, size)
                records = view[at : at + size]
                at += size
                partitions.append(Fetched(topic, number, failed, high, stable, start, aborted, replica, records))
        return cls(error, session, partitions, len(view))


class _FetchAnswer11(FetchAnswer):
    _RACKS = True


class _Fetch10(form.Encoded):
    API_KEY = 1
    API_VERSION = 10
    RESPONSE_TYPE = FetchAnswer


class _Fetch11(form.Encoded):
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
            form.I32.pack(len(places)),
        ]
        for topic, partitions in places.items():
            parts.append(form.text(topic))
            parts.append(form.I32.pack(len(partitions)))
            parts.extend(_FETCH_PARTITION.pack(p.partition, -1, p.offset, -1, p.max_bytes) for p in partitions)
        parts.append(form.I32.pack(len(forgotten or {})))
        for topic, numbers in (forgotten or {}).items():
            parts.append(form.text(topic))
            parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
        self._parts = parts

    def build(self, request_struct_class: type[_Fetch10 | _Fetch11]) -> _Fetch10 | _Fetch11:
        """The request in the version that both sides know."""
        if request_struct_class is _Fetch11:
            return _Fetch11(*self._parts, form.text(self._rack))
        return request_struct_class(*self._parts)


# -- Produce ---------------------------------------------------------------------------------------


class ProduceAnswer:
    """A decoded Produce response."""

    _NAMES_RECORDS = False

    def __init__(self, partitions: list[Produced]) -> None:
        self.partitions = partitions

    @classmethod
    def decode(cls, view: memoryview, at: int) -> Self:
        """One entry per partition."""
        partitions: list[Produced] = []
        (topics,) = form.I32.unpack_from(view, at)
        at += 4
        for _ in range(topics):
            topic, at = form.string(view, at)
            (count,) = form.I32.unpack_from(view, at)
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
        (count,) = form.I32.unpack_from(view, at)
        at += 4
        said = []
        for _ in range(count):
            (index,) = form.I32.unpack_from(view, at)
            why, at = form.string(view, at + 4)
            said.append(f"record {index}: {why}" if why else f"record {index}")
        message, at = form.string(view, at)
        return "; ".join([*([message] if message else []), *said[:3]]), at


class _ProduceAnswer8(ProduceAnswer):
    _NAMES_RECORDS = True


class _Produce7(form.Encoded):
    API_KEY = 0
    API_VERSION = 7
    RESPONSE_TYPE = ProduceAnswer


class _Produce8(form.Encoded):
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

    def __init__(self, batches: dict[str, list[tuple[int, Payload]]], *, timeout_ms: int) -> None:
        parts: list[bytes | memoryview] = [struct.pack(">hhii", -1, -1, timeout_ms, len(batches))]
        for topic, partitions in batches.items():
            parts.append(form.text(topic))
            parts.append(form.I32.pack(len(partitions)))
            for number, (head, records) in partitions:
                parts.append(struct.pack(">ii", number, len(head) + len(records)))
                parts.append(head)
                parts.append(records)
        self._parts = parts

    def build(self, request_struct_class: type[_Produce7 | _Produce8]) -> _Produce7 | _Produce8:
        """The request in the version that both sides know."""
        return request_struct_class(*self._parts)
