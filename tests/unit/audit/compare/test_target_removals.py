"""What was removed from a target without a retention that explains it: before a failover all of it, after one what was
removed before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drkit.audit.compare.offset_zones import zones
from drkit.audit.compare.scope import PartitionScope
from drkit.audit.compare.target_removals import Ranges, removed_records
from drkit.mapping.target_start import purge_problem
from drkit.mirror.control import acknowledge
from drkit.model.audit.audit_result import PlacementBasis
from drkit.model.clock import to_millis
from drkit.model.link_state import TARGET_PURGED, Direction, LinkControl, TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId
from drkit.store import open_store
from drkit.store.api import Store
from tests.support.links.retaining_cluster import RetainingCluster

AT = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
LINK = Link(LinkId("primary", "dr"), topics=("t",))
ROW = OffsetMapping("t", 0, 1, 0, 0)
MARK = Watermark(
    "t", 0, 1, source_through=100, target_end=100, source_start=0, source_end=100, target_start=0, observed_at=AT
)
DAY = timedelta(days=1)


class World:
    """Source offsets 0 to 99, all of them mirrored, one record a minute before `AT`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.source, self.target = RetainingCluster(), RetainingCluster()
        self.source.stamps = {offset: to_millis(AT - timedelta(minutes=100 - offset)) for offset in range(100)}
        store.append_mappings(LINK.id, [ROW])
        store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t", 1, 1, created_by_drkit=True)])

    def removed(
        self,
        target_start: int,
        *,
        moved: datetime | None = None,
        mark: Watermark | None = MARK,
        target_end: int = 100,
        direction: Direction = Direction.SEALED,
    ) -> Ranges:
        """`target_start`: where the target's log begins now; `moved`: when the link was failed over."""
        control = None if moved is None else LinkControl(LINK.id, direction, 1, moved)
        part = PartitionScope(
            number=0, topic="t", target_topic="t", partition=0, source_start=0, source_end=100,
            target_start=target_start, target_end=target_end, source_from=0, target_from=target_start,
            zones=zones([ROW]), basis=PlacementBasis.MAPPING, first_place=0,
            mirrored_through=mark and mark.source_through, sealed_at=None, earlier_until=None,
            source_compacted=False, target_compacted=False,
        )  # fmt: skip
        source, target = self.source, self.target
        states, marks = self.store.topic_states(LINK.id), {} if mark is None else {MARK.tp: mark}
        found = removed_records(LINK, self.store, control, states, marks, [part], source, target)  # type: ignore[arg-type]  # as they answer here
        assert found.keys() <= {0}
        return found.get(0, ())

    def told(self, begin: int, until: int) -> None:
        """The mirror, or a failover, has found this removed."""
        self.store.put_problem(LINK.id, purge_problem(LINK.id, MARK, "t", begin, until, AT))


@pytest.fixture
def world() -> Iterator[World]:
    store = open_store("sqlite:///:memory:")
    yield World(store)
    store.close()


def test_until_a_failover_all_that_is_gone_counts(world: World) -> None:
    assert world.removed(0) == ()
    assert world.removed(30) == ((0, 30),)


@pytest.mark.parametrize("direction", [Direction.SEALED, Direction.REVERSED])
def test_after_a_failover_what_was_removed_before_it_counts_and_nothing_else(
    world: World, direction: Direction
) -> None:
    seen = replace(MARK, target_start=30)  # as the failover settled it
    assert world.removed(30, moved=AT, mark=seen, direction=direction) == ((0, 30),)
    assert world.removed(80, moved=AT, mark=seen, direction=direction) == ((0, 30),), "its clients removed the rest"
    assert world.removed(80, moved=AT, direction=direction) == ()
    assert world.removed(10, moved=AT, mark=seen, direction=direction) == ((0, 10),), "a crash has undone the rest"


def test_what_was_recorded_counts_also_where_an_operator_accepted_it(world: World) -> None:
    world.told(0, 30)
    assert world.removed(80, moved=AT) == ((0, 30),)
    acknowledge(world.store, LINK, TARGET_PURGED, "t")
    assert world.store.problems(LINK.id) == []
    assert world.removed(80, moved=AT) == ((0, 30),)
    world.told(40, 50)
    assert world.removed(80, moved=AT) == ((0, 30), (40, 50))


def test_what_retention_explains_is_judged_as_of_the_failover(world: World) -> None:
    seen = replace(MARK, target_start=30)
    world.source.settings["retention.ms"] = str(60 * 60_000)
    assert world.removed(30, moved=AT, mark=seen) == (), "older than an hour"
    world.source.settings["retention.ms"] = str(24 * 60 * 60_000)
    assert world.removed(30, moved=AT, mark=seen) == ((0, 30),)
    assert world.removed(30, moved=AT + 2 * DAY, mark=seen) == ()


def test_what_a_log_s_size_explained_at_the_failover_is_not_known_later(world: World) -> None:
    world.source.settings["retention.bytes"] = "1000"
    world.target.size = 10
    seen = replace(MARK, target_start=30)
    assert world.removed(30) == ((0, 30),)
    assert world.removed(30, moved=AT, mark=seen) == ()
    emptied = replace(MARK, target_start=100)
    assert world.removed(100, moved=AT, mark=emptied, target_end=120) == ((0, 100),), "it keeps the newest"
    world.told(0, 30)
    assert world.removed(30, moved=AT, mark=seen) == ((0, 30),), "as the mirror found while it looked"


@pytest.mark.parametrize(
    "mark", [None, replace(MARK, source_through=0, target_end=0), replace(MARK, source_through=80, target_end=80)]
)
def test_what_a_mirror_that_was_killed_had_not_recorded_counts(world: World, mark: Watermark | None) -> None:
    assert world.removed(90, mark=mark) == ((0, 90),)
    assert world.removed(100, mark=mark) == ((0, 100),)
    world.source.settings["retention.bytes"] = "1000"
    world.target.size = 1000
    assert world.removed(90, mark=mark) == ()
    assert world.removed(100, mark=mark) == ((0, 100),), "no retention by size empties a log"


def test_after_a_failover_what_nothing_was_recorded_of_may_be_its_clients_work(world: World) -> None:
    assert world.removed(30, moved=AT, mark=None) == ()
    unsettled = replace(MARK, source_through=0, target_end=0, target_start=90)
    assert world.removed(95, moved=AT, mark=unsettled) == ((0, 90),), "as the failover saw it"
