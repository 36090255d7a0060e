"""The two requests of the data path: Fetch and Produce.

aiokafka's own classes for them copy a record batch several times and build an object per field; these are put
together once, where they are sent (`drkit.kafka.line`), and decode into views of the bytes received.

One version each, which every broker that drkit works with knows (`drkit.kafka.broker_versions`). With Fetch 12 a reader
says of which leader epoch the last batch is that it has read; where the broker's log has another one there, it answers
where the two part instead of giving records (KIP-595). From 13 on topics go by their ids. Produce 8 names the records
refused (KIP-467).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Self

from aiokafka.protocol.api import Request

from drkit.kafka import encoding as form

_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqix")  # the last byte: no tagged fields
_FETCHED_HEAD = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqq")
_EPOCH_END = struct.Struct(">iq")
_DIVERGING_EPOCH = 0  # its tag
_NO_TAGS = b"\0"
_PRODUCED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")

CONSUMER = -1
_NO_LOG_START = -1  # only followers have one to tell
FIRST_EPOCH, FINAL_EPOCH = 0, -1
"""Fetch session epochs (KIP-227): a request that opens a session, and one outside any session."""


UNKNOWN_EPOCH = -1
"""Also said of the leader's own epoch: a broker refuses a reader that knows another one. Here it compares the logs,
which tells as much, and a leader that moved without a loss is followed without a refusal."""


class FetchPlace(NamedTuple):
    """A partition in a Fetch request: where to read on, and how much at most.

    `last_epoch`: the leader epoch of the batch below `offset`: where the broker's log has another one there, it gives
    no records but says where the logs part. `UNKNOWN_EPOCH`: it isn't compared.
    """

    partition: int
    offset: int
    max_bytes: int
    last_epoch: int = UNKNOWN_EPOCH


class Fetched(NamedTuple):
    """What a Fetch answered for one partition.

    `aborted`: (producer id, first offset) of aborted transactions. `diverging`: the broker's log isn't the one that was
    read; the newest leader epoch that it knows at or below the one said, and where it ends there (exclusive).
    """

    topic: str
    partition: int
    error: int
    high_watermark: int
    stable_offset: int
    log_start: int
    aborted: Sequence[tuple[int, int]]
    preferred_replica: int
    records: memoryview
    diverging: tuple[int, int] | None = None


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

    @classmethod
    def decode(cls, view: memoryview, at: int) -> Self:
        """Views into the bytes received; nothing is copied."""
        _throttle, error, session = _FETCHED_HEAD.unpack_from(view, at)
        at += _FETCHED_HEAD.size
        partitions: list[Fetched] = []
        topics, at = form.compact_count(view, at)
        for _ in range(topics):
            topic, at = form.compact_string(view, at)
            count, at = form.compact_count(view, at)
            for _ in range(count):
                found, at = _fetched(topic, view, at)
                partitions.append(found)
            at = form.tags(view, at)
        return cls(error, session, partitions, len(view))


def _fetched(topic: str, view: memoryview, at: int) -> tuple[Fetched, int]:
    """What came of one partition."""
    number, failed, high, stable, start = _FETCHED_PARTITION.unpack_from(view, at)
    transactions, at = form.compact_count(view, at + _FETCHED_PARTITION.size)
    aborted: list[tuple[int, int]] = []
    for _ in range(transactions):
        aborted.append(_ABORTED.unpack_from(view, at))
        at = form.tags(view, at + _ABORTED.size)
    (replica,) = form.I32.unpack_from(view, at)
    size, at = form.compact_count(view, at + 4)
    size = max(0, size)
    records = view[at : at + size]
    tags, at = form.tagged(view, at + size)
    diverging = tags.get(_DIVERGING_EPOCH)
    parted = None if diverging is None else _EPOCH_END.unpack_from(diverging)
    return Fetched(topic, number, failed, high, stable, start, aborted, replica, records, parted), at


class _Fetch12(form.Encoded):
    API_KEY = 1
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FetchAnswer


class Fetch(Request[_Fetch12]):  # type: ignore[misc]  # untyped base
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
        parts = [
            _FETCH_HEAD.pack(CONSUMER, max_wait_ms, min_bytes, max_bytes, int(committed), session, epoch),
            form.compact_length(len(places)),
        ]
        for topic, partitions in places.items():
            parts.append(form.compact_text(topic))
            parts.append(form.compact_length(len(partitions)))
            parts.extend(
                _FETCH_PARTITION.pack(p.partition, UNKNOWN_EPOCH, p.offset, p.last_epoch, _NO_LOG_START, p.max_bytes)
                for p in partitions
            )
            parts.append(_NO_TAGS)
        parts.append(form.compact_length(len(forgotten or {})))
        for topic, numbers in (forgotten or {}).items():
            parts.append(form.compact_text(topic))
            parts.append(form.compact_length(len(numbers)))
            parts.append(struct.pack(f">{len(numbers)}ix", *numbers))
        parts += [form.compact_text(rack), _NO_TAGS]
        self._parts = parts

    def build(self, request_struct_class: type[_Fetch12]) -> _Fetch12:
        """The request in the one version that drkit speaks."""
        return request_struct_class(*self._parts)


# -- Produce ---------------------------------------------------------------------------------------


class ProduceAnswer:
    """A decoded Produce response."""

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


class _Produce8(form.Encoded):
    API_KEY = 0
    API_VERSION = 8
    RESPONSE_TYPE = ProduceAnswer


Payload = tuple[bytes, bytes | memoryview]
"""A batch to be produced: its header and its records."""


class Produce(Request[_Produce8]):  # type: ignore[misc]  # untyped base
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

    def build(self, request_struct_class: type[_Produce8]) -> _Produce8:
        """The request in the one version that drkit speaks."""
        return request_struct_class(*self._parts)
