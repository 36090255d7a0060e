"""The faults of a soak, chosen at random from a seed.

Each fault is a function of the world and a random generator; it returns what it did, in words. It leaves everything
running or starting; the next fault may strike before the recovery from this one. At most one broker of a cluster is
down at a time: with at least two of three in sync, no acknowledged record may be lost.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError
from kafka.structs import TopicPartition

from chaos.soak.clusters import Side, SoakError
from drkit.drill.environment.waiting import wait_for
from drkit.drill.faults.nodes.disconnect import reset_connections

if TYPE_CHECKING:
    from chaos.soak.world import World

Fault = Callable[["World", random.Random], str]

_LEASE_SECONDS = 10.0
_HEALTHY_SECONDS = 180.0


def mirror_killed(world: World, chance: random.Random) -> str:
    """SIGKILL of a worker, started again at once."""
    worker = chance.choice(world.mirrors.workers)
    world.mirrors.kill(worker)
    return f"worker {worker.number} SIGKILLed and started again"


def mirrors_killed(world: World, chance: random.Random) -> str:  # noqa: ARG001 - as every fault
    """SIGKILL of all workers, started again at once."""
    for worker in world.mirrors.workers:
        world.mirrors.kill(worker)
    return "all workers SIGKILLed and started again"


def mirror_paused_below_lease(world: World, chance: random.Random) -> str:
    """SIGSTOP of a worker for less than its lease."""
    return _pause_worker(world, chance, chance.uniform(0.5, 0.6 * _LEASE_SECONDS))


def mirror_paused_beyond_lease(world: World, chance: random.Random) -> str:
    """SIGSTOP of a worker for longer than its lease and its group's session."""
    return _pause_worker(world, chance, chance.uniform(1.2 * _LEASE_SECONDS, 1.8 * _LEASE_SECONDS))


def _pause_worker(world: World, chance: random.Random, seconds: float) -> str:
    worker = chance.choice(world.mirrors.workers)
    worker.send(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        worker.send(signal.SIGCONT)
    return f"worker {worker.number} stopped for {seconds:.1f} s"


def source_leader_killed(world: World, chance: random.Random) -> str:
    """SIGKILL of a source broker that leads a partition; restarted after a while."""
    return _kill_leader(world, world.source, chance)


def target_leader_killed(world: World, chance: random.Random) -> str:
    """SIGKILL of a target broker that leads a partition; restarted after a while."""
    return _kill_leader(world, world.target, chance)


def target_leader_and_mirror_killed(world: World, chance: random.Random) -> str:
    """SIGKILL of a target leader, and of a worker before it has recovered."""
    return _kill_leader(world, world.target, chance, and_worker=True)


def _kill_leader(world: World, side: Side, chance: random.Random, *, and_worker: bool = False) -> str:
    name = _leader(world, side, chance)
    world.lab.kill(name)
    said = f"{name} SIGKILLed"
    if and_worker:
        time.sleep(chance.uniform(0.0, 2.0))
        worker = chance.choice(world.mirrors.workers)
        world.mirrors.kill(worker)
        said += f", worker {worker.number} too"
    down = chance.uniform(0.0, 8.0)
    time.sleep(down)
    world.restart(name)
    return f"{said}, started again after {down:.1f} s"


def source_broker_paused(world: World, chance: random.Random) -> str:
    """SIGSTOP of a source broker: below or beyond its session with the controller."""
    return _pause_broker(world, world.source, chance)


def target_broker_paused(world: World, chance: random.Random) -> str:
    """SIGSTOP of a target broker: below or beyond its session with the controller and the request timeout."""
    return _pause_broker(world, world.target, chance)


def _pause_broker(world: World, side: Side, chance: random.Random) -> str:
    name = _leader(world, side, chance)
    seconds = chance.choice([chance.uniform(0.5, 3.0), chance.uniform(5.0, 10.0), chance.uniform(16.0, 22.0)])
    world.lab.pause(name)
    try:
        time.sleep(seconds)
    finally:
        world.lab.resume(name)
    return f"{name} stopped for {seconds:.1f} s"


def connections_reset(world: World, chance: random.Random) -> str:
    """Tear down every connection of the workers to the clusters (in the kernel), a few times."""
    wait_for("a connected mirror", _HEALTHY_SECONDS, world.mirrors.connected)
    times = chance.randint(1, 4)
    torn = 0
    for _ in range(times):
        torn += reset_connections(world.mirrors.pids())
        time.sleep(chance.uniform(0.05, 1.0))
    if not torn:
        raise SoakError("the mirror had no connection that could be torn down")
    return f"{torn} connections of the mirror torn down, {times} times in all"


def source_leaders_moved(world: World, chance: random.Random) -> str:
    """Move leaders of the source's partitions."""
    return _move(world, world.source, chance)


def target_leaders_moved(world: World, chance: random.Random) -> str:
    """Move leaders of the target's partitions."""
    return _move(world, world.target, chance)


def _move(world: World, side: Side, chance: random.Random) -> str:
    """Shuffle the replicas of some topics' partitions, then elect the first of each."""
    world.wait_started()
    wait_for(f"{side.alias} in sync", _HEALTHY_SECONDS, side.healthy)
    topics = chance.sample(world.topics, k=min(3, len(world.topics)))
    orders = {}
    for topic in topics:
        for number, replicas in side.replicas(topic).items():
            orders[topic, number] = chance.sample(replicas, k=len(replicas))
    lead(side, orders)
    return f"new leaders for {len(orders)} partitions of {', '.join(topics)} on {side.alias}"


def lead(side: Side, orders: dict[tuple[str, int], list[int]]) -> None:
    """Set the replicas of partitions (the same ones, in another order), and make the first of each the leader."""
    _reorder(side, orders)
    wait_for(f"leaders moved on {side.alias}", _HEALTHY_SECONDS, lambda: _elected(side))


@contextmanager
def _admin(side: Side) -> Iterator[KafkaAdminClient]:
    """The admin client of kafka-python: confluent-kafka's can neither reassign nor elect."""
    client = KafkaAdminClient(bootstrap_servers=side.bootstrap.split(","), request_timeout_ms=20_000)
    try:
        yield client
    finally:
        client.close()


def _reorder(side: Side, orders: dict[tuple[str, int], list[int]]) -> None:
    """Set the replicas of partitions (the same ones, in another order)."""

    def done() -> bool:
        with suppress(KafkaPythonError), _admin(side) as admin:
            admin.alter_partition_reassignments({TopicPartition(*place): order for place, order in orders.items()})
            return True
        return False

    wait_for(f"a reassignment on {side.alias}", _HEALTHY_SECONDS, done)


def _elected(side: Side) -> bool:
    """Elect the first replica of each partition; returns whether all lead."""
    places: dict[str, list[int]] = {}
    for topic, number in side.not_preferred():
        places.setdefault(topic, []).append(number)
    if places:
        with suppress(KafkaPythonError), _admin(side) as admin:
            admin.elect_leaders(0, places, raise_errors=False)
    return not side.not_preferred()


def store_outage(world: World, chance: random.Random) -> str:
    """The store doesn't answer for seconds: another process locks SQLite's file, or Cassandra is stopped."""
    seconds = chance.choice([chance.uniform(1.0, 5.0), chance.uniform(9.0, 15.0)])
    if world.cassandra:
        world.lab.pause("cassandra-1")
        try:
            time.sleep(seconds)
        finally:
            world.lab.resume("cassandra-1")
        return f"Cassandra stopped for {seconds:.1f} s"
    lock = sqlite3.connect(world.store_file, timeout=60, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)
        lock.execute("ROLLBACK")
    finally:
        lock.close()
    return f"SQLite locked for {seconds:.1f} s"


def store_outage_and_mirror_killed(world: World, chance: random.Random) -> str:
    """A worker dies shortly before the store comes back."""
    said = store_outage(world, chance)
    return f"{said}; {mirror_killed(world, chance)}"


def both_leaders_killed(world: World, chance: random.Random) -> str:
    """A leader of each side dies."""
    ours, theirs = _leader(world, world.source, chance), _leader(world, world.target, chance)
    world.lab.kill(ours)
    time.sleep(chance.uniform(0.0, 2.0))
    world.lab.kill(theirs)
    down = chance.uniform(0.0, 5.0)
    time.sleep(down)
    world.restart(ours, theirs)
    return f"{ours} and {theirs} SIGKILLed, started again after {down:.1f} s"


def _leader(world: World, side: Side, chance: random.Random) -> str:
    """The name of a broker that leads a mirrored partition, once all are in sync."""
    world.wait_started()
    wait_for(f"{side.alias} in sync", _HEALTHY_SECONDS, side.healthy)
    leaders = side.leaders(world.topics)
    return f"{side.alias}-{leaders[chance.choice(sorted(leaders))]}"


WEIGHTS: dict[Fault, int] = {
    mirror_killed: 14,
    mirrors_killed: 6,
    mirror_paused_below_lease: 6,
    mirror_paused_beyond_lease: 8,
    source_leader_killed: 8,
    target_leader_killed: 10,
    target_leader_and_mirror_killed: 8,
    both_leaders_killed: 3,
    source_broker_paused: 6,
    target_broker_paused: 9,
    connections_reset: 14,
    source_leaders_moved: 5,
    target_leaders_moved: 8,
    store_outage: 6,
    store_outage_and_mirror_killed: 3,
}


def schedule(seed: int, count: int) -> list[Fault]:
    """`count` faults in random order; each kind at least once, if `count` allows it."""
    chance = random.Random(f"schedule {seed}")  # noqa: S311 - repeatable, not secret
    kinds = list(WEIGHTS)
    chosen = chance.sample(kinds, k=min(count, len(kinds)))
    chosen += chance.choices(kinds, weights=list(WEIGHTS.values()), k=count - len(chosen))
    chance.shuffle(chosen)
    return chosen
