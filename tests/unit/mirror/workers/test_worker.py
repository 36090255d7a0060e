"""One worker among others: who mirrors everything, who waits, who leads, and a process that was stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest

from drkit.mirror.workers import worker as module
from drkit.mirror.workers.leader_lease import TTL_SECONDS, LeaderLease
from drkit.mirror.workers.worker import SLEEP_SECONDS, Worker
from drkit.model.clock import now
from drkit.model.topology import LinkId
from drkit.store.api import Store
from drkit.store.workers import (
    WorkerNote,
    forget_lost_workers,
    lease_name,
    live_workers,
    lost_workers,
    put_worker,
    read_workers,
)
from tests.support.wait import wait_until

LINK = LinkId("primary", "dr")


class Made:
    """A worker with a membership that the test decides."""

    def __init__(self, store: Store) -> None:
        self.joined = False
        self.slept = 0
        self.lease = LeaderLease(store, LINK)
        self.worker = Worker(store, LINK, self.lease, joined=lambda: self.joined, mirrored=lambda: 3, slept=self._sleep)

    def _sleep(self) -> None:
        self.slept += 1


@pytest.fixture
def make(store: Store) -> Iterator[Callable[[], Made]]:
    made: list[Made] = []

    def begin() -> Made:
        made.append(Made(store))
        made[-1].worker.begin()
        return made[-1]

    yield begin
    for each in made:
        each.worker.end(settled=True)


def dead_owner(store: Store) -> str:
    host, _, _, machine, token = LeaderLease(store, LINK).owner.rsplit(":", 4)
    return f"{host}:999999999:1:{machine}:{token}"


class StoreClock:
    """The clock of a store that another host has, ten minutes behind this machine's; it can be set further."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.behind = timedelta(minutes=10)
        monkeypatch.setattr(type(store), "time", lambda _: now() - self.behind)


def note(owner: str, *, everything: bool = False, seconds: float = 60.0) -> WorkerNote:
    return WorkerNote(
        owner,
        leads=False,
        everything=everything,
        partitions=1,
        seen_at=now(),
        expires_at=now() + timedelta(seconds=seconds),
    )


def test_a_killed_workers_note_expires_by_the_stores_clock(
    store: Store, make: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own host's clock is ten minutes ahead."""
    clock = StoreClock(store, monkeypatch)
    killed = make().worker
    (kept,) = live_workers(store, LINK, store.time())
    assert kept.expires_at - store.time() <= timedelta(seconds=TTL_SECONDS)
    put_worker(store, LINK, note("elsewhere:1:1:ab", everything=True, seconds=5 - 600))
    assert not killed.heartbeat()
    assert killed.workers == 2
    clock.behind -= timedelta(seconds=TTL_SECONDS + 1)
    assert live_workers(store, LINK, store.time()) == []
    assert lost_workers(store, LINK, store.time()) == ["elsewhere:1:1:ab", killed.owner]
    killed.heartbeat()
    assert killed.alone


def test_a_lone_worker_leads_and_mirrors_everything_at_once(store: Store, make: Callable[[], Made]) -> None:
    lone = make().worker
    assert lone.valid()
    assert lone.leads()
    assert lone.everything
    assert lone.alone
    (kept,) = live_workers(store, LINK, now())
    assert (kept.owner, kept.leads, kept.everything, kept.partitions) == (lone.owner, True, True, 3)
    lone.end(settled=True)
    assert not lone.valid()
    assert read_workers(store, LINK) == []


def test_a_second_waits_until_the_first_has_let_go(make: Callable[[], Made]) -> None:
    first = make()
    second = make().worker
    assert second.valid()
    assert not second.leads()
    assert not second.everything
    assert second.waits_for == first.worker.owner
    assert not first.worker.heartbeat(), "it hasn't joined the group: it can't know its share"
    assert first.worker.everything
    first.joined = True
    assert first.worker.heartbeat()
    assert not first.worker.everything, "it releases what isn't its share"
    second.heartbeat()
    assert second.waits_for == first.worker.owner, "not before it has let go"
    first.worker.settled()
    assert second.heartbeat()
    assert second.waits_for is None
    assert first.worker.leads()


def test_the_one_that_is_left_leads_and_mirrors_everything(store: Store, make: Callable[[], Made]) -> None:
    first = make()
    second = make().worker
    first.worker.end(settled=True)
    first.lease.release()
    assert second.heartbeat()
    assert second.leads()
    assert second.everything
    assert [each.owner for each in read_workers(store, LINK)] == [second.owner]


def test_a_dead_leader_is_replaced_at_once(store: Store, make: Callable[[], Made]) -> None:
    owner = dead_owner(store)
    store.acquire_lease(lease_name(LINK), owner, 3600, now())
    put_worker(store, LINK, note(owner, everything=True))
    worker = make().worker
    assert worker.leads()
    assert worker.everything
    assert [each.owner for each in read_workers(store, LINK)] == [worker.owner]
    assert lost_workers(store, LINK, now()) == [owner], "what it sent may still be on its way"
    assert lost_workers(store, LINK, now() + timedelta(days=2)) == [worker.owner], "its own note has expired"


@pytest.mark.parametrize("settled", [True, False])
def test_a_worker_that_leaves_with_requests_unanswered_stays_on_record(
    store: Store, make: Callable[[], Made], settled: bool
) -> None:
    worker = make().worker
    worker.end(settled=settled)
    assert lost_workers(store, LINK, now()) == ([] if settled else [worker.owner])
    forget_lost_workers(store, LINK, [worker.owner])
    assert not lost_workers(store, LINK, now())


def test_a_leader_does_not_mirror_everything_beside_a_worker_that_lives(store: Store, make: Callable[[], Made]) -> None:
    put_worker(store, LINK, note("elsewhere:1:1:ab"))
    worker = make().worker
    assert worker.leads()
    assert not worker.everything
    put_worker(store, LINK, note("elsewhere:1:1:ab", seconds=-1))
    assert worker.heartbeat()
    assert worker.everything, "its note has expired"


def test_a_holder_of_the_lease_without_a_note_may_mirror_everything(store: Store, make: Callable[[], Made]) -> None:
    store.acquire_lease(lease_name(LINK), "elsewhere:1:1:ab", 60, now())
    assert make().worker.waits_for == "elsewhere:1:1:ab"


def test_a_leader_that_lost_the_lease_keeps_to_its_share(store: Store, make: Callable[[], Made]) -> None:
    worker = make().worker
    store.acquire_lease(lease_name(LINK), "elsewhere:1:1:ab", 60, now() + timedelta(seconds=60))
    put_worker(store, LINK, note("elsewhere:1:1:ab", everything=True, seconds=600))
    assert worker.heartbeat()
    assert not worker.leads()
    assert not worker.everything
    worker.settled()
    worker.heartbeat()
    assert worker.waits_for == "elsewhere:1:1:ab"


def test_a_process_that_was_stopped_may_not_produce_until_it_has_looked_again(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Made]
) -> None:
    clock = SimpleNamespace(at=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.at))
    made = make()
    assert made.worker.valid()
    clock.at += SLEEP_SECONDS - 0.1
    assert made.worker.valid()
    wait_until(lambda: made.worker._ticked == clock.at, what="a tick")
    clock.at += SLEEP_SECONDS + 0.1
    assert not made.worker.valid(), "also before the tick has noticed"
    wait_until(lambda: made.slept == 1, what="the tick that notices")
    assert not made.worker.valid()
    wait_until(lambda: made.worker._ticked == clock.at, what="a tick")
    made.worker.heartbeat()
    assert made.worker.valid()
