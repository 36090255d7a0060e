"""What a worker holds: claimed once, written with, released, taken again with a newer generation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from drkit.mirror.engine.interface import Incident, IncidentKind
from drkit.mirror.runtime.mapping_writer import MappingWriter
from drkit.mirror.topics.topic_snapshot import ReadyTopic
from drkit.mirror.workers.assignment import Assignment
from drkit.mirror.workers.partition_claims import ClaimedMappings, PartitionClaims
from drkit.model.errors import Fenced, Unreachable
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store.api import Claims, Store

LINK = LinkId("primary", "dr")
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def row(tp: TopicPartition, offset: int) -> OffsetMapping:
    return OffsetMapping(*tp, 1, offset, offset)


def test_what_is_held_is_written_with_its_generation_and_claimed_once(store: Store) -> None:
    holdings = PartitionClaims(LINK, store)
    mappings = ClaimedMappings(store, holdings)
    with pytest.raises(Fenced):
        mappings.append_mappings(LINK, [row(ONE, 0)])
    assert holdings.take([(ONE, 1)]).keys() == {ONE}
    before = holdings.claims()
    mappings.append_mappings(LINK, [row(ONE, 0)])
    assert holdings.take([(ONE, 1), (TWO, 1)]).keys() == {ONE, TWO}
    assert holdings.claims()[ONE] == before[ONE], "what is held already isn't claimed again"
    assert TWO not in before, "claims that were given out stay as they were"
    assert holdings.take([(ONE, 2)]).keys() == {ONE}
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


def test_each_start_has_a_claim_of_its_own_and_what_an_earlier_one_sends_late_is_refused(store: Store) -> None:
    """The store was away while a row was to be stored: the next start has read the mapping without it since."""
    holdings = PartitionClaims(LINK, store)
    before = holdings.take([(ONE, 1), (TWO, 1)])
    holdings.started([ONE])
    after = holdings.take([(ONE, 1), (TWO, 1)])
    assert after[ONE] > before[ONE]
    assert after[TWO] == before[TWO], "it was never started: it is only tried again"
    writer = MappingWriter(LINK, ClaimedMappings(store, holdings), lambda: True, lambda *_: None, threading.Event())
    with pytest.raises(Fenced):
        writer.keep([row(ONE, 24)], before)
    assert store.mappings(LINK, ONE, 1) == []
    writer.keep([row(ONE, 30)], after)
    assert store.mappings(LINK, ONE, 1) == [row(ONE, 30)]


def test_rows_keep_the_claims_of_their_start_however_long_the_store_is_away(store: Store) -> None:
    """The worker slept: its partitions were dropped, and taken again before the store answered."""
    holdings = PartitionClaims(LINK, store)
    before = holdings.take([(ONE, 1)])
    flaky = Flaky(store, lambda: (holdings.drop([ONE]), holdings.take([(ONE, 1)])))
    mappings = ClaimedMappings(cast("Store", flaky), holdings)
    refused: list[list[TopicPartition]] = []

    def fenced(error: Fenced, claims: Claims) -> None:
        refused.append(holdings.lost(error.partitions, claims))

    writer = MappingWriter(LINK, mappings, lambda: True, fenced, threading.Event())
    with pytest.raises(Fenced):
        writer.keep([row(ONE, 24)], before)
    assert store.mappings(LINK, ONE, 1) == []
    assert refused == [[]], "no other worker has it, and the new start goes on"


def test_only_what_another_worker_has_claimed_is_lost(store: Store) -> None:
    early, late = PartitionClaims(LINK, store), PartitionClaims(LINK, store)
    claims = early.take([(ONE, 1), (TWO, 1)])
    late.take([(ONE, 1), (TWO, 1)])
    early.drop([TWO])
    assert early.lost([ONE, TWO], claims) == early.lost([ONE, TWO], None) == [ONE]


def test_what_is_dropped_while_it_is_being_claimed_is_not_held(store: Store) -> None:
    """The group gave it to another worker meanwhile: when it comes back it is claimed again, a generation newer."""
    slow = Flaky(store)
    holdings = PartitionClaims(LINK, cast("Store", slow))
    slow.claimed = lambda: holdings.drop([ONE])
    assert holdings.take([(ONE, 1), (TWO, 1)]).keys() == {TWO}
    assert holdings.claims().keys() == {TWO}
    PartitionClaims(LINK, store).take([(ONE, 1)])
    slow.claimed = lambda: None
    assert holdings.take([(ONE, 1)]).keys() == {ONE}
    ClaimedMappings(store, holdings).append_mappings(LINK, [row(ONE, 0)])


def test_a_claim_of_which_nobody_knows_whether_it_was_made_is_not_held(store: Store) -> None:
    """Watermarks with the former one could be lost without a word."""
    slow = Flaky(store)
    holdings = PartitionClaims(LINK, cast("Store", slow))
    holdings.take([(ONE, 1), (TWO, 1)])
    holdings.started([ONE])

    def lost() -> None:
        raise Unreachable("the answer was lost")

    slow.claimed = lost
    with pytest.raises(Unreachable):
        holdings.take([(ONE, 1), (TWO, 1)])
    assert holdings.claims().keys() == {TWO}
    slow.claimed = lambda: None
    assert holdings.take([(ONE, 1), (TWO, 1)]).keys() == {ONE, TWO}


def test_no_watermark_is_written_with_a_claim_that_is_just_being_replaced(store: Store) -> None:
    slow = Flaky(store)
    holdings = PartitionClaims(LINK, cast("Store", slow))
    mappings = ClaimedMappings(store, holdings)
    holdings.take([(ONE, 1)])
    holdings.started([ONE])
    mark = Watermark(*ONE, 1, 5, 5, 0, 5, 0, datetime.now(UTC))
    writing = threading.Thread(target=mappings.put_watermarks, args=(LINK, [mark]))
    slow.claimed = writing.start
    holdings.take([(ONE, 1)])
    writing.join()
    assert store.watermarks(LINK)[ONE].source_through == 5


def test_what_was_dropped_is_not_claimed_anew_while_its_watermark_is_being_written(store: Store) -> None:
    """The worker woke up: the write would be refused, and another worker seem to have taken the partition."""
    slow = Flaky(store)
    holdings = PartitionClaims(LINK, cast("Store", slow))
    holdings.take([(ONE, 1)])
    tried = threading.Event()
    holdings.steady = cast("threading.Lock", Awaited(tried))
    slow.claimed = tried.set
    claiming = threading.Thread(target=holdings.take, args=([(ONE, 1)],))

    def woke() -> None:
        holdings.drop([ONE])
        claiming.start()
        assert tried.wait(30)

    slow.marking = woke
    mark = Watermark(*ONE, 1, 5, 5, 0, 5, 0, datetime.now(UTC))
    ClaimedMappings(cast("Store", slow), holdings).put_watermarks(LINK, [mark])
    claiming.join()
    assert store.watermarks(LINK)[ONE].source_through == 5
    assert holdings.claims().keys() == {ONE}


class Awaited:
    """A lock that tells when a thread waits for it."""

    def __init__(self, awaited: threading.Event) -> None:
        self._lock = threading.Lock()
        self._awaited = awaited

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._awaited.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Flaky:
    """A store of which the first rows aren't taken: `away` is what happens meanwhile. `claimed`: what happens right
    after a claim is made, before its answer is there; `marking`: before watermarks come to it."""

    def __init__(self, store: Store, away: Callable[[], object] | None = None) -> None:
        self._store = store
        self._away = away
        self.claimed: Callable[[], object] = lambda: None
        self.marking: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]], generation: int) -> None:
        self._store.claim(link, places, generation)
        self.claimed()

    def put_watermarks(self, link: LinkId, marks: Sequence[Watermark], claims: Claims) -> None:
        self.marking()
        self._store.put_watermarks(link, marks, claims)

    def append_mappings(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims) -> None:
        if self._away is not None:
            away, self._away = self._away, None
            away()
            raise Unreachable("the store is down")
        self._store.append_mappings(link, rows, claims)


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
