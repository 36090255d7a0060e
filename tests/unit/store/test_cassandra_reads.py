"""How many rows of a distributed store are held at once, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.cassandra.backend import CassandraStore
from drkit.store.cassandra.session import CONCURRENT_QUERIES, CassandraSession

LINK = LinkId("primary", "dr")
ROWS = 3


class Driver:
    """A driver's session on a table of rows of every partition; counts what was asked and what was fetched."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, list[int]]] = []
        self.read = 0
        self.rows = 0

    def execute_async(self, _: Any, values: tuple[str, str, int, list[int]]) -> Any:
        self.asked.append(values[1:])
        return SimpleNamespace(result=lambda: self._pages(values[3]))

    def _pages(self, numbers: list[int]) -> Iterator[tuple[int, int, int]]:
        self.read += 1
        for number in numbers:
            for offset in range(ROWS):
                self.rows += 1
                yield number, offset, offset + number


def store_on(driver: Driver) -> CassandraStore:
    session = object.__new__(CassandraSession)
    session._session = driver  # type: ignore[assignment]
    session.look_by(lambda: None)
    store = object.__new__(CassandraStore)
    store._session = session
    store._do = SimpleNamespace(mappings_of="")  # type: ignore[assignment]
    return store


def rows_of(tp: TopicPartition, epoch: int) -> list[OffsetMapping]:
    return [OffsetMapping(*tp, epoch, offset, offset + tp.partition) for offset in range(ROWS)]


def test_of_many_partitions_the_rows_of_a_few_are_held_and_a_few_queries_are_ahead() -> None:
    driver = Driver()
    places = [(TopicPartition("t", number), 1) for number in range(1_000)]
    found = store_on(driver).mappings_of(LINK, places)
    for number, place in enumerate(places):
        assert next(found) == rows_of(*place)
        assert driver.rows <= (number // 25 + 1) * 25 * ROWS
        assert len(driver.asked) < driver.read + CONCURRENT_QUERIES
    assert list(found) == []
    assert len(driver.asked) == 40


def test_partitions_of_several_topics_and_epochs_come_in_their_order() -> None:
    driver = Driver()
    places = [
        (TopicPartition(topic, number), epoch) for number in range(20) for topic in ("a", "b") for epoch in (2, 1)
    ]
    assert list(store_on(driver).mappings_of(LINK, places)) == [rows_of(*place) for place in places]
    assert len(driver.asked) == 16, "each portion's of a topic and epoch together"
