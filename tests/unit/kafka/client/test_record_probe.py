"""Many partitions are probed in a few requests, and a silent leader doesn't hold up the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors as kafka_errors

from drkit.kafka.client import record_probe
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord, probe_records
from drkit.model.topology import TopicPartition
from tests.support.links.batches import batch_bytes, control_bytes, retouched

PARTITIONS = 3_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Leader and number of partitions of each request. Partitions with odd numbers are led by broker 1, which is
    silent."""
    found: list[tuple[int, int]] = []
    batch = batch_bytes([(1, None, b"v", [])])

    async def leaders(_: object, tps: list[TopicPartition], *__: object, **___: object) -> dict[int, Any]:
        return {leader: [tp for tp in tps if tp.partition % 2 == leader] for leader in (1, 0)}

    async def fetch(_: object, leader: int, places: dict[TopicPartition, Any]) -> Any:
        found.append((leader, len(places)))
        assert sum(place.max_bytes for place in places.values()) <= 8 << 20
        if leader == 1:
            return kafka_errors.RequestTimedOutError("it is silent")
        return [(tp, SimpleNamespace(error_code=0, records=batch, high_watermark=1)) for tp in places]

    monkeypatch.setattr(record_probe, "find_leaders", leaders)
    monkeypatch.setattr(record_probe, "fetch", fetch)
    return found


def test_a_leader_that_does_not_answer_is_asked_once_a_round(asked: list[tuple[int, int]]) -> None:
    def call(_: str, step: Any, **__: object) -> None:
        with pytest.raises(record_probe.RetryLater):
            asyncio.run(step(None))

    connection: Any = SimpleNamespace(call=call)
    places = [LogPosition(TopicPartition("t", number), 0) for number in range(PARTITIONS)]
    seen = probe_records(connection, places, seconds=30.0)
    silent, answering = [size for leader, size in asked if leader == 1], [size for leader, size in asked if not leader]
    assert answering == [1_024, PARTITIONS // 2 - 1_024], "as many at once as one answer holds"
    assert silent == [1_024, 1_024], "a round that another broker moved, and one that nobody did"
    assert {each.late for place, each in seen.items() if place.tp.partition % 2} == {True}
    assert not any(each.late or each == ProbedRecord() for place, each in seen.items() if not place.tp.partition % 2)


def test_a_marker_has_its_time_and_its_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two markers at one offset, with one epoch, differ in these."""
    marker = retouched(control_bytes(3, 77, commit=True), max_timestamp=1_700)

    async def leaders(_: object, tps: list[TopicPartition], *__: object, **___: object) -> dict[int, Any]:
        return {0: list(tps)}

    async def fetch(_: object, __: int, places: dict[TopicPartition, Any]) -> Any:
        return [(tp, SimpleNamespace(error_code=0, records=marker, high_watermark=4)) for tp in places]

    monkeypatch.setattr(record_probe, "find_leaders", leaders)
    monkeypatch.setattr(record_probe, "fetch", fetch)
    connection: Any = SimpleNamespace(call=lambda _, step, **__: asyncio.run(step(None)))
    place = LogPosition(TopicPartition("t", 0), 3)
    seen = probe_records(connection, [place], seconds=30.0, control=True)
    assert seen == {place: ProbedRecord(3, 1_700, producer_id=77, marker_epoch=0)}
