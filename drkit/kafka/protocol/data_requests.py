"""The two requests of the data path: Fetch and Produce.

aiokafka's own classes for them copy a record batch several times and build an object per field; these are put
together once, where they are sent (`drkit.kafka.client.connection`), and decode into views of the bytes received.

Two versions each. One that every supported broker knows (`drkit.kafka.protocol.broker_versions`): with Fetch 12 a
reader sends the leader epoch of the last batch that it has read; if the broker's log has another one there, it returns
the point of divergence instead of records (KIP-595); Produce 8 names the refused records (KIP-467). And, if a broker
knows them and all topic ids are given, Fetch 13 and Produce 13, which identify topics by id (KIP-516): drkit then reads
nothing from, and writes nothing to, a topic that was recreated under the same name.

Beside Fetch and Produce there are two rarer ones. ListOffsets, version 4: the log ends of partitions on their leader,
as replica -2, which sees a log to its end and not only to its high watermark: the offset that the next append gets
(`drkit.kafka.admin.logs.log_offsets` requests the same over the admin connection). A leader of another epoch than the
one named refuses to answer (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; KIP-320). WriteTxnMarkers, versions 0 and 1:
transaction markers, each an offset of a partition that no consumer sees.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from aiokafka.protocol.api import Request

from drkit.kafka.protocol import encoding as form
from drkit.kafka.protocol import record_batch

_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqix")  # the last byte: no tagged fields
_FETCHED_HEAD = struct.Struct(">ihi")
_FETCHED_PARTITION = struct.Struct(">ihqqq")
_EPOCH_END = struct.Struct(">iq")
_DIVERGING_EPOCH = 0  # its tag
_NO_TAGS = b"\0"
_EMPTY = 1
"""The first byte of a compact array without elements; 0 is that of null (KIP-482)."""
_PRODUCED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_NO_TRANSACTION = b"\0"
_ID_BYTES = 16

CONSUMER = -1
_NO_LOG_START = -1  # only followers have one to tell
FIRST_EPOCH, FINAL_EPOCH = 0, -1
"""Fetch session epochs (KIP-227): a request that opens a session, and one outside any session."""


SERVER_ERROR, OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, TOPIC_DENIED, INVALID_RECORD = -1, 1, 2, 29, 87
"""Error codes of Fetch and Produce answers that readers and writers tell apart; Kafka's names, but for
UNKNOWN_SERVER_ERROR and TOPIC_AUTHORIZATION_FAILED."""

UNKNOWN_EPOCH = record_batch.UNKNOWN_EPOCH
"""Also sent as the leader's own epoch: a broker refuses a reader with another one. The comparison of logs shows as
much, and drkit follows a leader that moved without a loss without a refusal."""


class FetchPlace(NamedTuple):
    """A partition in a Fetch request: the next offset, and the most bytes.

    `last_epoch`: the leader epoch of the batch below `offset`: if the broker's log has another one there, it returns
    no records but the point of divergence. `UNKNOWN_EPOCH`: the broker doesn't compare.
    """

    partition: int
    offset: int
    max_bytes: int
    last_epoch: int = UNKNOWN_EPOCH


class Fetched(NamedTuple):
    """The Fetch response of one partition.

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
    """The Produce response of one partition. `append_time`: the broker's stamp (ms) of the records, -1 where they keep
    their own (`message.timestamp.type`); of a batch that it had already, it is that batch's."""

    topic: str
    partition: int
    error: int
    base_offset: int
    append_time: int
    log_start: int
    message: str


def id_bytes(topic_id: str) -> bytes:
    """A topic's id in Kafka's text form (URL-safe base64 without padding) as its 16 bytes; b"" where there is none:
    of "", and of zeros, as clusters answer whose metadata are of an older version than their brokers."""
    found = base64.urlsafe_b64decode(topic_id + "==") if topic_id else b""
    return found if any(found) else b""


_Named = Callable[[memoryview, int], tuple[str, int]]


class TopicIds:
    """Kafka's ids of topics (16 bytes), for requests that identify topics by id. Used on one event loop."""

    __slots__ = ("_names", "by_name")

    def __init__(self, by_name: Mapping[str, bytes] | None = None) -> None:
        self.by_name = dict(by_name or {})
        self._names = {topic_id: name for name, topic_id in self.by_name.items()}

    def put(self, name: str, topic_id: bytes) -> None:
        """Set a topic's id; its former id stays known, for responses in flight."""
        self.by_name[name] = topic_id
        self._names[topic_id] = name

    def read(self, view: memoryview, at: int) -> tuple[str, int]:
        """The name of the topic whose id stands there, "": of none of these; and the place after it."""
        return self._names.get(bytes(view[at : at + _ID_BYTES]), ""), at + _ID_BYTES


class _DecodedById:
    """The decoder of a response that identifies topics by id."""

    def __init__(self, answer: Any, topic_ids: TopicIds) -> None:
        self._answer = answer
        self._topic_ids = topic_ids

    def decode(self, view: memoryview, at: int) -> Any:
        """The response, with names."""
        return self._answer.decode(view, at, self._topic_ids.read)


# -- Fetch -----------------------------------------------------------------------------------------


class FetchReply:
    """A decoded Fetch response: a top-level error, the session, and the outcome of each partition.

    `throttle_ms`: how long the broker mutes the connection because of this client's quota (KIP-219).
    """

    def __init__(self, error: int, session: int, partitions: list[Fetched], size: int, throttle_ms: int = 0) -> None:
        self.throttle_ms = throttle_ms
        self.error = error
        self.session = session
        self.partitions = partitions
        self.size = size

    @classmethod
    def decode(cls, view: memoryview, at: int, named: _Named = form.compact_string) -> Self:
        """Views into the bytes received; nothing is copied. `named` reads a topic, "": one that wasn't asked for."""
        throttle_ms, error, session = _FETCHED_HEAD.unpack_from(view, at)
        at += _FETCHED_HEAD.size
        partitions: list[Fetched] = []
        topics, at = form.compact_count(view, at)
        for _ in range(topics):
            topic, at = named(view, at)
            count, at = form.compact_count(view, at)
            for _ in range(count):
                found, at = _fetched(topic, view, at)
                if topic:
                    partitions.append(found)
            at = form.tags(view, at)
        return cls(error, session, partitions, len(view), throttle_ms)


def _fetched(topic: str, view: memoryview, at: int) -> tuple[Fetched, int]:
    """The outcome of one partition."""
    number, failed, high, stable, start = _FETCHED_PARTITION.unpack_from(view, at)
    at += _FETCHED_PARTITION.size
    aborted: list[tuple[int, int]] = []
    if view[at] <= _EMPTY:
        at += 1
    else:
        transactions, at = form.compact_count(view, at)
        for _ in range(transactions):
            aborted.append(_ABORTED.unpack_from(view, at))
            at = form.tags(view, at + _ABORTED.size)
    (replica,) = form.I32.unpack_from(view, at)
    size, at = form.compact_count(view, at + 4)
    size = max(0, size)
    records = view[at : at + size]
    at += size
    if not view[at]:
        return Fetched(topic, number, failed, high, stable, start, aborted, replica, records), at + 1
    tags, at = form.tagged(view, at)
    diverging = tags.get(_DIVERGING_EPOCH)
    parted = None if diverging is None else _EPOCH_END.unpack_from(diverging)
    return Fetched(topic, number, failed, high, stable, start, aborted, replica, records, parted), at


class _Fetch12(form.Encoded):
    API_KEY = 1
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FetchReply


class _Fetch13(_Fetch12):
    API_VERSION = 13


class Fetch(Request[_Fetch12 | _Fetch13]):  # type: ignore[misc]  # untyped base
    """Read from one broker.

    Args:
        places: by topic, what to read (in a session: what changed).
        forgotten: by topic, partitions that leave the session.
        session, epoch: of the fetch session.
        committed: leave out what open or aborted transactions hold back (read_committed).
        max_wait_ms, min_bytes, max_bytes: as the protocol's.
        rack: of the reader, for a replica near it.
        topic_ids: of all topics of the session, where they are known.
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
        topic_ids: TopicIds | None = None,
    ) -> None:
        self._topic_ids = topic_ids
        self._head = _FETCH_HEAD.pack(CONSUMER, max_wait_ms, min_bytes, max_bytes, int(committed), session, epoch)
        self._places = places
        self._forgotten = forgotten or {}
        self._rack = rack

    def build(self, request_struct_class: type[_Fetch12]) -> _Fetch12:
        """The request: by topic ids if the broker supports that, and all are given."""
        topic_ids = self._topic_ids
        if request_struct_class is not _Fetch13 or topic_ids is None or not self._are_known(topic_ids):
            return _Fetch12(*self._parts(form.compact_text))
        built = _Fetch13(*self._parts(topic_ids.by_name.__getitem__))
        built.RESPONSE_TYPE = _DecodedById(FetchReply, topic_ids)  # type: ignore[misc,assignment]  # of this one
        return built

    def _are_known(self, topic_ids: TopicIds) -> bool:
        return bool(topic_ids.by_name) and {*self._places, *self._forgotten} <= topic_ids.by_name.keys()

    def _parts(self, named: Callable[[str], bytes]) -> list[bytes]:
        parts = [self._head, form.compact_length(len(self._places))]
        for topic, partitions in self._places.items():
            parts.append(named(topic))
            parts.append(form.compact_length(len(partitions)))
            parts.extend(
                _FETCH_PARTITION.pack(p.partition, UNKNOWN_EPOCH, p.offset, p.last_epoch, _NO_LOG_START, p.max_bytes)
                for p in partitions
            )
            parts.append(_NO_TAGS)
        parts.append(form.compact_length(len(self._forgotten)))
        for topic, numbers in self._forgotten.items():
            parts.append(named(topic))
            parts.append(form.compact_length(len(numbers)))
            parts.append(struct.pack(f">{len(numbers)}ix", *numbers))
        parts += [form.compact_text(self._rack), _NO_TAGS]
        return parts


# -- Produce ---------------------------------------------------------------------------------------


class ProduceReply:
    """A decoded Produce response. `throttle_ms`: as `FetchReply`'s."""

    def __init__(self, partitions: list[Produced], throttle_ms: int = 0) -> None:
        self.throttle_ms = throttle_ms
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
                number, error, base, append_time, start = _PRODUCED.unpack_from(view, at)
                at += _PRODUCED.size
                message, at = cls._refusals(view, at)
                partitions.append(Produced(topic, number, error, base, append_time, start, message))
        return cls(partitions, form.I32.unpack_from(view, at)[0])

    @staticmethod
    def _refusals(view: memoryview, at: int) -> tuple[str, int]:
        """What the broker says of a refused batch and its records."""
        (count,) = form.I32.unpack_from(view, at)
        at += 4
        said = []
        for _ in range(count):
            (index,) = form.I32.unpack_from(view, at)
            why, at = form.string(view, at + 4)
            said.append((index, why))
        message, at = form.string(view, at)
        return _refusal(message, said), at


def _refusal(message: str, said: Sequence[tuple[int, str]]) -> str:
    """What a broker says of a refused batch, and of its first records."""
    records = [f"record {index}: {why}" if why else f"record {index}" for index, why in said[:3]]
    return "; ".join([*([message] if message else []), *records])


class _AnswerById(ProduceReply):
    """A response in which topics go by their ids."""

    @classmethod
    def decode(cls, view: memoryview, at: int, named: _Named = form.compact_string) -> Self:
        """One entry per partition."""
        partitions: list[Produced] = []
        topics, at = form.compact_count(view, at)
        for _ in range(topics):
            topic, at = named(view, at)
            count, at = form.compact_count(view, at)
            for _ in range(count):
                number, error, base, append_time, start = _PRODUCED.unpack_from(view, at)
                message, at = cls._said(view, at + _PRODUCED.size)
                partitions.append(Produced(topic, number, error, base, append_time, start, message))
                at = form.tags(view, at)
            at = form.tags(view, at)
        return cls(partitions, form.I32.unpack_from(view, at)[0])

    @classmethod
    def _said(cls, view: memoryview, at: int) -> tuple[str, int]:
        if view[at] <= _EMPTY and not view[at + 1]:  # nearly always: no records, no message
            return "", at + 2
        records, at = form.compact_count(view, at)
        said = []
        for _ in range(records):
            (index,) = form.I32.unpack_from(view, at)
            why, at = form.compact_string(view, at + form.I32.size)
            said.append((index, why))
            at = form.tags(view, at)
        message, at = form.compact_string(view, at)
        return _refusal(message, said), at


class _Produce8(form.Encoded):
    API_KEY = 0
    API_VERSION = 8
    RESPONSE_TYPE = ProduceReply


class _Produce13(form.Encoded):
    API_KEY = 0
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _AnswerById


Payload = tuple[bytes, bytes | memoryview]
"""A batch to be produced: its header and its records."""


class Produce(Request[_Produce8 | _Produce13]):  # type: ignore[misc]  # untyped base
    """Append one batch to each of some partitions, acknowledged by all in-sync replicas.

    Args:
        batches: by topic, (partition, header and records).
        timeout_ms: how long the leader waits for its followers.
        topic_ids: of the topics, where they are known.
    """

    API_KEY = 0

    def __init__(
        self,
        batches: dict[str, list[tuple[int, Payload]]],
        *,
        timeout_ms: int,
        topic_ids: TopicIds | None = None,
    ) -> None:
        self._batches = batches
        self._timeout_ms = timeout_ms
        self._topic_ids = topic_ids

    def build(self, request_struct_class: type[_Produce8 | _Produce13]) -> _Produce8 | _Produce13:
        """The request: by topic ids if the broker supports that, and all are given."""
        topic_ids = self._topic_ids
        known = topic_ids is not None and self._batches.keys() <= topic_ids.by_name.keys()
        if request_struct_class is not _Produce13 or topic_ids is None or not known:
            return _Produce8(*self._by_name())
        built = _Produce13(*self._by_id(topic_ids))
        built.RESPONSE_TYPE = _DecodedById(_AnswerById, topic_ids)  # type: ignore[misc,assignment]  # of this one
        return built

    def _by_name(self) -> list[bytes | memoryview]:
        parts: list[bytes | memoryview] = [struct.pack(">hhii", -1, -1, self._timeout_ms, len(self._batches))]
        for topic, partitions in self._batches.items():
            parts.append(form.text(topic))
            parts.append(form.I32.pack(len(partitions)))
            for number, (head, records) in partitions:
                parts.append(struct.pack(">ii", number, len(head) + len(records)))
                parts.append(head)
                parts.append(records)
        return parts

    def _by_id(self, topic_ids: TopicIds) -> list[bytes | memoryview]:
        parts: list[bytes | memoryview] = [
            _NO_TRANSACTION + struct.pack(">hi", -1, self._timeout_ms) + form.compact_length(len(self._batches))
        ]
        for topic, partitions in self._batches.items():
            parts.append(topic_ids.by_name[topic] + form.compact_length(len(partitions)))
            for number, (head, records) in partitions:
                parts.append(form.I32.pack(number) + form.compact_length(len(head) + len(records)))
                parts += [head, records, _NO_TAGS]
            parts.append(_NO_TAGS)
        parts.append(_NO_TAGS)
        return parts


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
