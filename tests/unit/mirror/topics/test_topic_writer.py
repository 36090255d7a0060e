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


def look(here: dict[str, str], there: dict[str, str]) -> Any:
    names = ("orders", "payments")
    return SimpleNamespace(
        ready={
            name: SimpleNamespace(state=TopicState(name, name, "s", "d", 1, 1, created_by_drkit=True)) for name in names
        },
        source_settings=dict.fromkeys(names, here),
        target_settings=dict.fromkeys(names, there),
        target={name: SimpleNamespace(replication_factor=1) for name in names},
    )


def configured(
    problems: Problems, why: str | None = None, *, withheld: dict[str, frozenset[str]] | None = None
) -> dict[str, dict[str, str]]:
    """What is put on the target's topics, of which the source has other settings. `why`: what a comparison of the
    source with what was mirrored says; `withheld`: what nothing shows that somebody set (`RemovingChanges`)."""
    put: dict[str, dict[str, str]] = {}
    target: Any = SimpleNamespace(set_many_topic_configs=lambda wanted: put.update(wanted) or {})
    changes: Any = SimpleNamespace(withheld=lambda _look, _due: withheld or {})
    TopicWriter(LINK, target, problems, lambda _: why, changes).configure(look(HERE, THERE))
    return put


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


def test_what_nothing_shows_that_somebody_set_does_not_follow_and_all_else_does(problems: Problems) -> None:
    put = configured(problems, withheld={"orders": frozenset({"retention.ms", "cleanup.policy"})})
    assert put == {"orders": {"max.message.bytes": "2000000"}, "payments": HERE}
