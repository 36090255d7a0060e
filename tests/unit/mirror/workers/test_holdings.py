"""What a worker holds: claimed once, written with, released, taken again with a newer generation."""

from __future__ import annotations

import pytest

from drkit.mirror.engine.interface import Incident, IncidentKind
from drkit.mirror.topics.topic_snapshot import ReadyTopic
from drkit.mirror.workers.assignment import Assignment
from drkit.mirror.workers.partition_claims import ClaimedMappings, PartitionClaims
from drkit.model.errors import Fenced
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store.api import Store

LINK = LinkId("primary", "dr")
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def row(tp: TopicPartition, offset: int) -> OffsetMapping:
    return OffsetMapping(*tp, 1, offset, offset)


def test_what_is_held_is_written_with_its_generation_and_claimed_once(store: Store) -> None:
    holdings = PartitionClaims(LINK, store)
    mappings = ClaimedMappings(store, holdings)
    with pytest.raises(Fenced):
        mappings.append_mappings(LINK, [row(ONE, 0)])
    assert holdings.take([(ONE, 1)]) == {ONE}
    before = holdings.claims()
    mappings.append_mappings(LINK, [row(ONE, 0)])
    assert holdings.take([(ONE, 1), (TWO, 1)]) == {ONE, TWO}
    assert holdings.claims()[ONE] == before[ONE], "what is held already isn't claimed again"
    assert TWO not in before, "claims that were given out stay as they were"
    assert holdings.take([(ONE, 2)]) == {ONE}
    assert holdings.claims()[ONE] > before[ONE], "another epoch is another claim"


def test_what_was_let_go_of_is_not_written_and_taken_again_anew(store: Store) -> None:
    holdings = PartitionClaims(LINK, store)
    mappings = ClaimedMappings(store, holdings)
    holdings.take([(ONE, 1), (TWO, 1)])
    before = holdings.claims()
    holdings.drop([ONE])
    with pytest.raises(Fenced):
        mappings.append_mappings(LINK, [row(ONE, 0)])
    mappings.append_mappings(LINK, [row(TWO, 0)])
    holdings.take([(ONE, 1)])
    assert holdings.claims()[ONE] > before[ONE]
    mappings.append_mappings(LINK, [row(ONE, 0)])
    with pytest.raises(Fenced):
        store.append_mappings(LINK, [row(ONE, 1)], before)


def test_one_of_two_workers_is_fenced_by_the_other(store: Store) -> None:
    early, late = PartitionClaims(LINK, store), PartitionClaims(LINK, store)
    early.take([(ONE, 1), (TWO, 1)])
    late.take([(ONE, 1)])
    with pytest.raises(Fenced) as fenced:
        ClaimedMappings(store, early).append_mappings(LINK, [row(ONE, 0), row(TWO, 0)])
    assert fenced.value.partitions == (ONE,)
    ClaimedMappings(store, late).append_mappings(LINK, [row(ONE, 5)])
    assert store.mappings(LINK, ONE, 1) == [row(ONE, 5)]


def ready() -> dict[str, ReadyTopic]:
    state = TopicState("t", "t", "a", "b", 1, 2, True)
    return {"t": ReadyTopic(state, 2, 1_000_000, False)}


def test_only_what_is_held_is_wanted_and_what_was_dropped_is_not_started() -> None:
    held = {ONE}
    book = Assignment(lambda _: False, held.__contains__)
    assert book.update(ready()) == []
    taken, take = book.take(10)
    assert set(taken) == {ONE}
    held.add(TWO)
    book.again()
    assert set(book.engaged()) == {ONE, TWO}
    assert book.started(ONE, 1, take)
    assert book.running() == [ONE]
    more, later = book.take(10)
    assert set(more) == {TWO}
    book.dropped([TWO])
    assert not book.started(TWO, 1, later), "it was lost while it was being resumed"
    held.discard(ONE)
    assert book.release([ONE, TWO]) == [ONE]
    book.observe_again(Incident(ONE, IncidentKind.UNCERTAIN, "late"))
    assert book.engaged() == [], "what isn't held any more isn't wanted"


def test_at_most_so_many_are_taken_at_a_time() -> None:
    book = Assignment(lambda _: False, lambda _: True)
    book.update(ready())
    assert len(book.take(1)[0]) == 1
    assert len(book.take(1)[0]) == 1
    assert book.take(1)[0] == {}


def test_the_workers_own_group_is_no_business_group() -> None:
    link = Link(LINK, topics=(".*",))
    assert link.covers_group("billing")
    assert not link.covers_group("drkit.mirror.primary-dr")
