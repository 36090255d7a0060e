"""Where an epoch ends on a cluster whose metadata knows only lower ones: too old, or set back to an older copy. And
the batch at an offset, with the transactions that were aborted behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors as kafka_errors
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest

from drkit.kafka.admin.admin_connection import RetryLater
from drkit.kafka.admin.logs.leader_epochs import EpochEnd, LogBatch, batches_at, epoch_ends
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition
from tests.support.links.batches import batch_bytes

TP = TopicPartition("t", 0)
LEADER, OTHER = 1, 2


class Connection:
    """A cluster of two brokers; `known`: the leader epoch that each knows, None where it doesn't answer."""

    timeout_seconds = 5.0

    def __init__(self, known: Mapping[int, int | None]) -> None:
        self.known = known
        self.asked: list[tuple[int, int]] = []

    def call(self, what: str, step: Callable[[Any], Coroutine[Any, Any, None]], **_: float) -> None:
        try:
            asyncio.run(step(self))
        except RetryLater as error:
            raise Unreachable(f"{what}: {error}", remedy="") from error

    async def send(self, request: Any, node: int | None = None) -> Any:
        node = LEADER if node is None else node
        epoch = self.known[node]
        if epoch is None:
            raise kafka_errors.KafkaConnectionError(f"broker {node} does not answer")
        if isinstance(request, MetadataRequest):
            led = SimpleNamespace(partition_index=0, leader_id=LEADER, leader_epoch=epoch)
            topic = SimpleNamespace(error_code=0, name="t", partitions=[led])
            brokers = [SimpleNamespace(node_id=each) for each in self.known]
            return SimpleNamespace(brokers=brokers, topics=[topic] if request.topics else [])
        (asked,) = request.topics[0].partitions
        self.asked.append((asked.current_leader_epoch, asked.leader_epoch))
        answer = SimpleNamespace(partition=0, error_code=0, leader_epoch=asked.leader_epoch, end_offset=150)
        return SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=[answer])])


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ({LEADER: 3, OTHER: 3}, {TP: EpochEnd(3, 150)}),
        ({LEADER: 3, OTHER: 5}, {}),
        ({LEADER: 3, OTHER: 4}, {}),
        ({LEADER: 3, OTHER: None}, {}),
    ],
    ids=["nobody ever had it", "another broker has it", "the metadata changes", "a broker is silent"],
)
def test_an_epoch_above_all_that_a_leader_knows(
    known: dict[int, int | None], found: dict[TopicPartition, EpochEnd]
) -> None:
    connection = Connection(known)
    assert epoch_ends(connection, {TP: 5}) == found  # type: ignore[arg-type]  # all it asks
    assert connection.asked == ([(3, 3)] if found else [])


class Leader(Connection):
    """A leader with one batch of ten records at offset 100, and transactions that were aborted behind it."""

    def __init__(self, *aborted: int) -> None:
        super().__init__({LEADER: 3})
        self.aborted = [SimpleNamespace(producer_id=7, first_offset=first) for first in aborted]
        self.asked_for: list[tuple[int, int]] = []

    async def send(self, request: Any, node: int | None = None) -> Any:
        if not isinstance(request, FetchRequest):
            return await super().send(request, node)
        (asked,) = request.topics[0].partitions
        self.asked_for.append((asked.fetch_offset, request.isolation_level))
        found = SimpleNamespace(
            partition_index=0,
            error_code=0,
            high_watermark=200,
            records=batch_bytes([(1, None, b"v", [])] * 10, base_offset=100),
            aborted_transactions=self.aborted if request.isolation_level else None,
        )
        return SimpleNamespace(responses=[SimpleNamespace(topic="t", partitions=[found])])


@pytest.mark.parametrize(
    ("aborted", "committed", "aborted_from"),
    [
        ((), True, None),
        ((105,), True, 105),
        ((109, 90, 102), True, 90),
        ((110, 150), True, None),
        ((90,), False, None),
    ],
    ids=["none", "one within", "several", "begun behind the batch", "not asked for"],
)
def test_a_batch_tells_from_where_on_transactions_were_aborted_behind_it(
    aborted: tuple[int, ...], committed: bool, aborted_from: int | None
) -> None:
    leader = Leader(*aborted)
    (found,) = batches_at(leader, {TP: 109}, committed=committed).values()  # type: ignore[arg-type]  # all it asks
    assert found is not None
    assert (found.base_offset, found.last_offset, found.aborted_from) == (100, 109, aborted_from)
    assert isinstance(found, LogBatch)
    assert leader.asked_for == [(109, int(committed))]
