from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

from drkit.mirror.workers.leader_lease import LeaderLease, known_dead, this_process
from drkit.model.clock import now
from drkit.model.topology import LinkId
from drkit.processes import ProcessIdentity
from drkit.store.api import Store
from drkit.store.workers import lease_name

LINK = LinkId("primary", "dr")


def test_this_process_is_not_dead_and_runtimes_differ() -> None:
    assert not known_dead(this_process())
    assert this_process() != this_process()


def test_a_process_that_ended_is_dead_and_so_is_one_of_another_start_time() -> None:
    host, pid, started, machine, token = this_process().rsplit(":", 4)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = f"{host}:{child.pid}:{ProcessIdentity.of(child.pid).started}:{machine}:{token}"
    assert not known_dead(owner)
    child.communicate()
    assert known_dead(owner)
    assert known_dead(f"{host}:{pid}:{int(started) - 1}:{machine}:{token}")
    assert not known_dead(f"{host}:999999999:1:another:{token}"), "a container beside this one, of the same host name"


@pytest.mark.parametrize(
    "owner", ["elsewhere:1:1:another:ab", "elsewhere:1:1:ab", "nonsense", "a:b:c:d:e", "a::1:b:c", ""]
)
def test_an_owner_that_can_not_be_judged_counts_as_alive(owner: str) -> None:
    assert not known_dead(owner)


def test_a_lease_is_taken_renewed_and_given_up(store: Store) -> None:
    lease = LeaderLease(store, LINK)
    assert not lease.valid()
    assert lease.take()
    assert lease.valid()
    assert lease.renew()
    assert lease.lost_to is None
    lease.release()
    assert not lease.valid()
    assert not lease.held
    assert store.lease(lease_name(LINK)) is None


def test_a_lease_that_another_worker_took_is_lost(store: Store) -> None:
    lease = LeaderLease(store, LINK)
    assert lease.take()
    store.acquire_lease(lease_name(LINK), "somebody else", 10, now() + timedelta(seconds=60))
    assert not lease.renew()
    assert lease.lost_to == "somebody else"
    assert not lease.valid()
    assert not lease.held


def test_a_lease_that_another_worker_took_and_gave_back_is_lost_too(store: Store) -> None:
    lease = LeaderLease(store, LINK)
    assert lease.take()
    store.acquire_lease(lease_name(LINK), "somebody else", 10, now() + timedelta(seconds=60))
    store.release_lease(lease_name(LINK), "somebody else")
    assert not lease.renew()
    assert not lease.valid()
    assert lease.take(), "it may be taken again"


def test_a_dead_workers_lease_is_broken_at_once(store: Store) -> None:
    host, _, _, machine, token = this_process().rsplit(":", 4)
    store.acquire_lease(lease_name(LINK), f"{host}:999999999:1:{machine}:{token}", 3600, now())
    lease = LeaderLease(store, LINK)
    assert lease.take()


def test_a_living_workers_lease_is_respected(store: Store) -> None:
    store.acquire_lease(lease_name(LINK), "elsewhere:1:1:ab", 3600, now())
    lease = LeaderLease(store, LINK, ttl_seconds=0.1)
    assert not lease.take()
    assert lease.holder == "elsewhere:1:1:ab"
    assert not lease.valid()
