"""Fill a source topic with batches of an exact size, as fast as the broker takes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from bench.batches import Codec, batch_variants
from bench.wire import Connection, WireError

_IN_FLIGHT = 8
_REQUEST_BYTES = 4 << 20
_READY_SECONDS = 60.0
_POLL_SECONDS = 0.05
_VARIANT_RECORDS = 16_000  # different records, at most; more would only cost memory here


@dataclass(frozen=True, slots=True)
class Shape:
    """What a source topic holds: `records` of `record_bytes` each, `records_a_batch` in every batch."""

    records: int
    record_bytes: int
    codec: Codec
    records_a_batch: int
    partitions: int

    @property
    def batches(self) -> int:
        """How many batches hold at most `records` records; at least one for each partition."""
        return max(self.partitions, self.records // self.records_a_batch)

    @property
    def loaded_records(self) -> int:
        """How many records `load` really writes: whole batches only."""
        return self.batches * self.records_a_batch


def load(address: str, topic: str, shape: Shape, progress: Callable[[int], None]) -> int:
    """Write the batches round robin over the topic's partitions; returns the bytes of the batches written.

    Args:
        address: host:port of the one broker.
        topic: exists, with `shape.partitions` partitions.
        shape: what to write.
        progress: gets the number of records written since its last call.

    Raises:
        WireError: the broker refused a batch.
    """
    variants = batch_variants(
        record_bytes=shape.record_bytes,
        codec=shape.codec,
        records_a_batch=shape.records_a_batch,
        variants=max(1, min(shape.batches, _VARIANT_RECORDS // shape.records_a_batch)),
    )
    written = 0
    with Connection(address) as connection:
        await_leaders(connection, topic, shape.partitions)
        unanswered: list[int] = []
        for request in requests(variants, shape.batches, shape.partitions):
            if len(unanswered) >= _IN_FLIGHT:
                connection.receive_produce()
                progress(unanswered.pop(0))
            connection.send_produce(topic, request)
            unanswered.append(len(request) * shape.records_a_batch)
            written += sum(map(len, request.values()))
        for count in unanswered:
            connection.receive_produce()
            progress(count)
    return written


def requests(variants: Sequence[bytes], batches: int, partitions: int) -> Iterator[dict[int, bytes]]:
    """The batches as produce requests: one batch a partition in each (Kafka's limit), at most 4 MiB together."""
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


def await_leaders(connection: Connection, topic: str, partitions: int) -> None:
    """Metadata names a leader a moment before that broker knows of its office."""
    deadline = time.monotonic() + _READY_SECONDS
    while len(connection.ends(topic, range(partitions))) < partitions:
        if time.monotonic() > deadline:
            raise WireError(f"not every partition of {topic} has a leader after {_READY_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
