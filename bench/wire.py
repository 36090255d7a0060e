"""Source topics of record batches of an exact size, and the bench's own requests: Produce, Fetch and ListOffsets.

A client library would batch, compress and retry by itself; the loader must control the number of records per batch, and
the watcher must cost almost nothing. Clusters of one broker on loopback, without security: it leads every partition.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bench.processes import wait_until

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


# --- filling a topic, as fast as the broker accepts ----------------------------------------------------------------

Codec = Literal["none", "lz4", "zstd"]
_CODES: dict[Codec, int] = {"none": 0, "lz4": 3, "zstd": 4}
_NOBODY = -1  # producer id, epoch and sequence of a producer that isn't idempotent
_MAGIC = 2
_NO_LIMIT = 1 << 30
_WORDS = (
    "parcel", "harbour", "invoice", "terminal", "refund", "delayed", "customs", "approved", "warehouse", "priority",
    "returned", "carrier", "pending", "northbound", "signature", "fragile", "express", "partial", "confirmed", "route",
)  # fmt: skip
_SEED = 20261121
IN_FLIGHT = 8
_REQUEST_BYTES = 4 << 20
_READY_SECONDS = 60.0
_VARIANT_RECORDS = 16_000  # the most different records; more would only cost memory


@dataclass(frozen=True, slots=True)
class Shape:
    """The content of a source topic: `records` of `record_bytes` each, `records_a_batch` per batch."""

    records: int
    record_bytes: int
    codec: Codec
    records_a_batch: int
    partitions: int

    @property
    def batches(self) -> int:
        """The number of batches with at most `records` records; at least one for each partition."""
        return max(self.partitions, self.records // self.records_a_batch)

    @property
    def loaded_records(self) -> int:
        """The number of records that `load` writes: only whole batches."""
        return self.batches * self.records_a_batch


def load(address: str, topic: str, shape: Shape) -> None:
    """Write the batches round robin over the partitions of an existing topic.

    Raises:
        WireError: the broker refused a batch.
    """
    variants = batch_variants(
        record_bytes=shape.record_bytes,
        codec=shape.codec,
        records_a_batch=shape.records_a_batch,
        variants=max(1, min(shape.batches, _VARIANT_RECORDS // shape.records_a_batch)),
    )
    with Connection(address) as connection:
        wait_for_leaders(connection, topic, shape.partitions)
        connection.produce(topic, requests(variants, shape.batches, shape.partitions), IN_FLIGHT)


def requests(variants: Sequence[bytes], batches: int, partitions: int) -> Iterator[dict[int, bytes]]:
    """The batches as produce requests: one batch per partition in each (Kafka's limit), at most 4 MiB together."""
    source = cycle(variants)
    request: dict[int, bytes] = {}
    size = 0
    for number in range(batches):
        partition, batch = number % partitions, next(source)
        if request and (partition in request or size + len(batch) > _REQUEST_BYTES):
            yield request
            request, size = {}, 0
        request[partition] = batch
        size += len(batch)
    if request:
        yield request


def wait_for_leaders(connection: Connection, topic: str, partitions: int) -> None:
    """Wait for the leaders: metadata names a leader a moment before that broker knows its role."""
    wait_until(
        lambda: len(connection.ends(topic, range(partitions))) == partitions,
        f"a leader of every partition of {topic}",
        _READY_SECONDS,
    )


# --- the batches -----------------------------------------------------------------------------------


def json_values(size: int, count: int) -> list[bytes]:
    """`count` different JSON objects of exactly `size` bytes, that compress about as well as business events do.

    Raises:
        ValueError: `size` is too small for the fixed fields.
    """
    rng = random.Random(_SEED)  # noqa: S311 - test data
    return [_json_value(size, number, rng) for number in range(count)]


def _json_value(size: int, number: int, rng: random.Random) -> bytes:
    event = {"id": number, "user": rng.randrange(10**6), "amount": round(rng.uniform(1, 500), 2), "note": ""}
    room = size - len(json.dumps(event, separators=(",", ":")))
    if room < 0:
        raise ValueError(f"a JSON value of {size} bytes has no room for its fields")
    note = ""
    while len(note) < room:
        note += f"{rng.choice(_WORDS)} {rng.randrange(16**6):06x} "
    event["note"] = note[:room]
    return json.dumps(event, separators=(",", ":")).encode()


def record_batch(values: Sequence[bytes], codec: Codec) -> bytes:
    """One batch of format v2 that holds exactly these values, without keys, base offset 0, no producer id."""
    stamp = int(time.time() * 1000)
    builder = DefaultRecordBatchBuilder(_MAGIC, _CODES[codec], False, _NOBODY, _NOBODY, _NOBODY, _NO_LIMIT)
    for offset, value in enumerate(values):
        builder.append(offset, stamp, None, value, [])
    return bytes(builder.build())


def batch_variants(*, record_bytes: int, codec: Codec, records_a_batch: int, variants: int) -> list[bytes]:
    """Different batches of one shape, to be sent in turn."""
    values = json_values(record_bytes, records_a_batch * variants)
    return [
        record_batch(values[start : start + records_a_batch], codec) for start in range(0, len(values), records_a_batch)
    ]
