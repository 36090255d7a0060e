"""A worker changes its subscription only once it has joined: librdkafka ends the process where it does so during the
first join."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drkit.config.schema.config import ClusterConfig
from drkit.mirror.workers import membership
from drkit.mirror.workers.membership import Membership
from drkit.model.topology import LinkId
from tests.support.wait import wait_until


class Group:
    """A consumer, and what its group tells it: the callbacks are called by `poll`, as librdkafka's are."""

    def __init__(self) -> None:
        self.subscribed: list[list[str]] = []
        self.told: list[str] = []
        self.polls = 0
        self._callbacks: dict[str, Callable[..., None]] = {}
        self._lock = threading.Lock()

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.subscribed.append(topics)
        self._callbacks = callbacks

    def poll(self, _: float) -> None:
        with self._lock:
            told, self.told = self.told, []
        for callback in told:
            self._callbacks[callback](self, [])
        self.polls += 1

    def tell(self, callback: str) -> None:
        with self._lock:
            self.told.append(callback)

    def looked(self) -> None:
        """The worker's thread has looked once more whether to subscribe."""
        before = self.polls
        wait_until(lambda: self.polls > before + 2, what="two more rounds")

    def incremental_assign(self, _: list[Any]) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group()
    monkeypatch.setattr(membership, "Consumer", lambda *_, **__: made)
    return made


@pytest.fixture
def member(group: Group, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Membership]:
    monkeypatch.setattr(membership, "_JOIN_SECONDS", getattr(request, "param", 600.0))
    cluster = ClusterConfig.model_validate({"bootstrap_servers": "127.0.0.1:9"})
    made = Membership(
        cluster,
        LinkId("primary", "dr"),
        client_id=lambda: "a worker",
        changed=lambda: None,
        released=lambda: None,
        lost=lambda _: None,
    )
    made.subscribe(["a"])
    made.start()
    wait_until(lambda: group.subscribed == [["a"]], what="the first subscription")
    yield made
    made.close()


def test_a_subscription_changes_once_the_first_join_is_answered(group: Group, member: Membership) -> None:
    member.subscribe(["a", "b"])
    group.looked()
    assert group.subscribed == [["a"]]
    group.tell("on_assign")  # of no partition, where others have them all
    wait_until(lambda: group.subscribed == [["a"], ["a", "b"]], what="the second subscription")
    member.subscribe(["b"])
    wait_until(lambda: group.subscribed[2:] == [["b"]], what="the third one: it has joined")


def test_after_a_loss_it_joins_anew_first(group: Group, member: Membership) -> None:
    group.tell("on_assign")
    group.looked()
    group.tell("on_lost")
    group.looked()
    member.subscribe(["a", "b"])
    group.looked()
    assert group.subscribed == [["a"]]
    group.tell("on_assign")
    wait_until(lambda: group.subscribed == [["a"], ["a", "b"]], what="the second subscription")


@pytest.mark.parametrize("member", [0.3], indirect=True)
def test_one_whose_topics_are_gone_subscribes_to_others_all_the_same(group: Group, member: Membership) -> None:
    """It never joins for topics that nobody has: there is no assignment to wait for."""
    member.subscribe(["b"])
    wait_until(lambda: group.subscribed == [["a"], ["b"]], what="the second subscription")
