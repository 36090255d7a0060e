"""Fills a topic with record batches of an exact size, as fast as the broker accepts them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bench.processes import wait_until
from bench.wire import Connection

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


def record_batch(values: Sequence[bytes], codec: Codec, *, timestamp_ms: int | None = None) -> bytes:
    """One batch of format v2 that holds exactly these values, without keys, base offset 0, no producer id."""
    stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
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
