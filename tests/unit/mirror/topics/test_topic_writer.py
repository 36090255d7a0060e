"""Settings that follow the source, and those that don't while the source may have been set back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.topic_writer import TopicWriter
from drkit.model.link_state import PARTED, TopicState
from drkit.model.topology import Link, LinkId
from drkit.store import open_store

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
HERE = {"retention.ms": "3600000", "cleanup.policy": "compact", "max.message.bytes": "2000000"}
THERE = {"retention.ms": "604800000", "cleanup.policy": "delete", "max.message.bytes": "1000000"}


@pytest.fixture
def problems() -> Iterator[Problems]:
    with closing(open_store("sqlite:///:memory:")) as store:
        yield Problems(store, LINK.id, lambda _: None)


class Clusters:
    """A writer, what it puts on the target's topics, and the connections to the source's brokers."""

    def __init__(self, problems: Problems, why: str | None = None) -> None:
        self.put: dict[str, dict[str, str]] = {}
        self.connected = {1: 10, 2: 20}
        target: Any = SimpleNamespace(set_many_topic_configs=lambda wanted: self.put.update(wanted) or {})
        self.writer = TopicWriter(LINK, target, problems, lambda _: why, lambda: self.connected)

    def looks(self, here: dict[str, str], there: dict[str, str] = THERE) -> dict[str, dict[str, str]]:
        """What one look puts, by the settings of the source's topics and of the target's."""
        self.put.clear()
        self.writer.configure(look(here, there, self.connected))
        return dict(self.put)


def look(here: dict[str, str], there: dict[str, str], connected: dict[int, int]) -> Any:
    names = ("orders", "payments")
    return SimpleNamespace(
        ready={
            name: SimpleNamespace(state=TopicState(name, name, "s", "d", 1, 1, created_by_drkit=True)) for name in names
        },
        source_settings=dict.fromkeys(names, here),
        target_settings=dict.fromkeys(names, there),
        target={name: SimpleNamespace(replication_factor=1) for name in names},
        source_sessions=dict(connected),
        states=dict.fromkeys(names),
    )


def configured(problems: Problems, why: str | None = None) -> dict[str, dict[str, str]]:
    """What is put on the target's topics, of which the source has other settings. `why`: what a comparison of the
    source with what was mirrored says."""
    return Clusters(problems, why).looks(HERE)


def test_all_that_changed_follows(problems: Problems) -> None:
    put = configured(problems)
    assert put == dict.fromkeys(("orders", "payments"), HERE)


@pytest.mark.parametrize("kind", sorted(PARTED))
def test_a_source_that_may_have_been_set_back_removes_nothing_on_the_target(problems: Problems, kind: str) -> None:
    """Nor of topics that rested since then, of which nothing shows it."""
    problems.put(kind, "orders", 0, "why", "do", halted=True)
    only = {"max.message.bytes": "2000000"}
    assert configured(problems) == {"orders": only, "payments": only}
    problems.settle("orders", kinds=PARTED, everywhere=True)
    assert configured(problems) == dict.fromkeys(("orders", "payments"), HERE)


def test_nor_does_one_that_is_found_to_be_set_back_or_that_cannot_be_compared_by_a_mirror_that_starts(
    problems: Problems,
) -> None:
    only = {"max.message.bytes": "2000000"}
    assert configured(problems, "orders:0 can't be compared with primary now") == {"orders": only, "payments": only}


@pytest.mark.parametrize(
    "then", [{1: 11, 2: 21}, {1: 10, 2: 21}, {1: 10}, {}], ids=["all", "one", "one is away", "none answers"]
)
def test_what_removes_records_does_not_follow_a_source_whose_brokers_restarted_since_it_was_another(
    problems: Problems, then: dict[int, int]
) -> None:
    """Controllers that are restored from an older copy have older settings, and every topic's log is whole."""
    clusters = Clusters(problems)
    assert clusters.looks(THERE) == {}
    clusters.connected = then
    only = {"max.message.bytes": "2000000"}
    for _ in range(2):
        assert clusters.looks(HERE) == {"orders": only, "payments": only}
    assert clusters.looks(THERE) == {}
    clusters.connected = {1: 12, 2: 22}
    assert clusters.looks(THERE) == {}
    assert clusters.looks(HERE) == dict.fromkeys(("orders", "payments"), HERE), "nobody restarted meanwhile"


def test_what_keeps_more_follows_whoever_restarted(problems: Problems) -> None:
    """Brokers are rolled to a longer retention of their own: nothing may go on the target for that."""
    clusters = Clusters(problems)
    assert clusters.looks(THERE) == {}
    clusters.connected = {1: 11, 2: 21}
    longer = THERE | {"retention.ms": "-1"}
    only = {"retention.ms": "-1"}
    assert clusters.looks(longer) == {"orders": only, "payments": only}


def test_what_does_not_follow_is_known_to_whoever_leads_next_and_after_a_look_without_the_topic(
    problems: Problems,
) -> None:
    clusters = Clusters(problems)
    clusters.writer.watch(look(THERE, THERE, clusters.connected))  # another worker leads
    clusters.connected = {1: 11, 2: 21}
    clusters.writer.watch(look(HERE, THERE, clusters.connected))
    without = look(HERE, THERE, clusters.connected)
    without.source_settings = {}
    clusters.writer.watch(without)
    only = {"max.message.bytes": "2000000"}
    assert clusters.looks(HERE) == {"orders": only, "payments": only}
    by_hand = THERE | {"retention.ms": "3600000", "cleanup.policy": "compact"}
    assert clusters.looks(HERE, by_hand) == {"orders": only, "payments": only}, "nothing is held any more"
    assert clusters.looks(HERE) == dict.fromkeys(("orders", "payments"), HERE)
