"""Problems are gone only once the store has forgotten them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import TARGET_PURGED, Problem
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store

LINK = LinkId("primary", "dr")
TP = TopicPartition("t", 0)
KINDS = frozenset({TARGET_PURGED})
PURGED = Problem(TARGET_PURGED, "t", 0, "purged", "", halted=False, since=now())


@pytest.mark.parametrize(
    ("settle", "request_"),
    [
        (lambda problems: problems.settle("t", kinds=KINDS, partition=0), "clear_problem"),
        (lambda problems: problems.forget("t"), "clear_problems"),
        (lambda problems: problems.keep_only([]), "clear_problems"),
    ],
    ids=["settled", "the topic is gone", "a topic of before"],
)
def test_what_the_store_could_not_forget_is_settled_by_the_next_look(
    store: Store, monkeypatch: pytest.MonkeyPatch, settle: Callable[[Problems], None], request_: str
) -> None:
    problems = Problems(store, LINK, lambda _: None)
    problems.report(PURGED)

    def silent(*_: object) -> None:
        raise Unreachable("no answer")

    with monkeypatch.context() as outage:
        outage.setattr(store, request_, silent)
        with pytest.raises(Unreachable):
            settle(problems)
    assert problems.has(TARGET_PURGED, TP)
    settle(problems)
    assert list(store.problems(LINK)) == []
    assert not problems.has(TARGET_PURGED, TP)


def test_one_that_is_told_while_the_former_is_settled_stays_known(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = Problems(store, LINK, lambda _: None)
    problems.report(PURGED)
    clear = store.clear_problem

    def cleared(link: LinkId, problem: Problem) -> None:
        clear(link, problem)
        problems.report(replace(PURGED, reason="purged again"))

    monkeypatch.setattr(store, "clear_problem", cleared)
    problems.settle("t", kinds=KINDS, partition=0)
    assert problems.has(TARGET_PURGED, TP)
    assert [each.reason for each in store.problems(LINK)] == ["purged again"]
