"""Raw Produce requests to a broker, which no ordinary client would send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.data_client import Connection, DataClient
from drkit.kafka.protocol import records
from drkit.kafka.protocol.data_requests import Fetch, FetchPlace, Produce, Produced, WriteTxnMarkers
from drkit.kafka.protocol.record_batch import header, parse

_ZSTD = 4


_NOT_YET = frozenset({3, 6})
"""UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER: a new topic that its leader doesn't know yet."""


@asynccontextmanager
async def _leader(bootstrap: str, topic: str, partition: int) -> AsyncIterator[Connection]:
    """A connection to the broker that leads a partition."""
    stream = DataClient("test", ClusterConfig(bootstrap_servers=bootstrap), timeout_seconds=20)
    await stream.connect()
    try:
        if (asked := stream.track([topic])) is not None:
            await asked
        while (leader := stream.leader(topic, partition)) is None:
            stream.refresh()
            await asyncio.sleep(0.05)
        connection = await stream.connection(leader, "test")
        assert connection is not None
        yield connection
    finally:
        await stream.close()


def produce(bootstrap: str, topic: str, partition: int, *batches: tuple[bytes, bytes | memoryview]) -> list[int]:
    """Append batches (header, records) unchanged, one request each; returns their base offsets."""
    answers = answers_to(bootstrap, topic, partition, *batches)
    assert not any(answer.error for answer in answers), answers
    return [answer.base_offset for answer in answers]


def answers_to(
    bootstrap: str, topic: str, partition: int, *batches: tuple[bytes, bytes | memoryview]
) -> list[Produced]:
    """Send batches (header, records) unchanged, one request each; returns what the leader answered, errors too."""

    async def work() -> list[Produced]:
        async with _leader(bootstrap, topic, partition) as connection:
            answers = []
            for batch in batches:
                request = Produce({topic: [(partition, batch)]}, timeout_ms=20_000)
                (result,) = (await connection.send(request)).partitions
                while result.error in _NOT_YET:
                    await asyncio.sleep(0.05)
                    (result,) = (await connection.send(request)).partitions
                answers.append(result)
            return answers

    return asyncio.run(work())


def advance(bootstrap: str, topic: str, partition: int, count: int) -> None:
    """Append so many empty records."""
    batches = []
    stamp = int(time.time() * 1000)
    payloads: dict[int, bytes] = {}
    while count:
        size = min(count, 500_000)
        payload = payloads.setdefault(size, records.compress(_ZSTD, records.filler(size)))
        head = header(
            attributes=_ZSTD,
            count=size,
            base_timestamp=stamp,
            max_timestamp=stamp,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            records=payload,
        )
        batches.append((head, payload))
        count -= size
    produce(bootstrap, topic, partition, *batches)


def fetch(bootstrap: str, topic: str, partition: int, offset: int = 0) -> bytes:
    """All batches of a partition's log from an offset on."""

    async def work() -> bytes:
        async with _leader(bootstrap, topic, partition) as connection:
            found, at = bytearray(), offset
            while True:
                place = FetchPlace(partition, at, 8_000_000)
                request = Fetch({topic: [place]}, committed=False, max_wait_ms=1, max_bytes=8_000_000)
                (answer,) = (await connection.send(request)).partitions
                assert answer.error == 0, answer
                batches = list(parse(answer.records))
                for batch in batches:
                    found += batch.whole
                    at = batch.last_offset + 1
                if not batches:
                    return bytes(found)

    return asyncio.run(work())


def mark(bootstrap: str, topic: str, partition: int, producer_id: int) -> None:
    """Append a transaction marker, like a mirror for an offset without a record on the source."""

    async def work() -> None:
        async with _leader(bootstrap, topic, partition) as connection:
            answer = await connection.send(WriteTxnMarkers(producer_id, 0, topic, partition, 1))
            assert {error for _, _, error in answer.errors} == {0}, answer.errors

    asyncio.run(work())
