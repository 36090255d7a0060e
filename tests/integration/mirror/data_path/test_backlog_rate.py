"""A backlog on a target that others use: how fast it is copied follows how fast the target's broker answers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from drkit.lab import Lab
from drkit.mirror.engine.pacing.catch_up_rate import LOWEST
from drkit.mirror.runtime.events import ProgressEvent
from drkit.model.statistics import EngineStatistics
from tests.support.collection.sampling import some_of
from tests.support.commands.running import Running
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("rates of a backlog", 1)]

BOUND = 4 * LOWEST
_RECORD = 100_000


@contextmanager
def beating(beat: Callable[[], float]) -> Iterator[None]:
    """Something is done again and again beside the body, as long after each other as it says."""
    ending = threading.Event()

    def run() -> None:
        while not ending.wait(beat()):
            pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def a_user(world: Mirrored, topic: str) -> Iterator[None]:
    """Somebody produces to a topic of the target that isn't the link's."""
    world.target.create(topic)
    producer = world.target.producer()

    def produce() -> float:
        producer.produce(topic, value=b"theirs")
        producer.poll(0)
        return 0.05

    with beating(produce):
        yield
    assert producer.flush(30) == 0


@contextmanager
def stumbling(broker: psutil.Process) -> Iterator[None]:
    """A broker that stands still most of the time, for moments."""
    stopped = [False]

    def beat() -> float:
        broker.send_signal(signal.SIGCONT if stopped[0] else signal.SIGSTOP)
        stopped[0] = not stopped[0]
        return 0.8 if stopped[0] else 0.1

    try:
        with beating(beat):
            yield
    finally:
        broker.send_signal(signal.SIGCONT)


def newest(running: Running) -> EngineStatistics:
    """What the mirror told last."""
    assert running.error is None
    told = [event for event in running.events if isinstance(event, ProgressEvent)]
    return told[-1].statistics if told else EngineStatistics()


def backlog(world: Mirrored, topic: str, records: int) -> None:
    world.source.create(topic, 4)
    producer = world.source.producer(compression_type="none")
    for number in range(records):
        producer.produce(topic, value=bytes(_RECORD), partition=number % 4)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_a_backlog_is_copied_slower_while_the_targets_broker_answers_slowly(
    mirrored: Mirrored, lab: Lab, unique_name: str
) -> None:
    mirrored.configure(f"[links.catch_up]\nmax_bytes_per_second = {BOUND}\nmax_latency_ms = 300\nlatency_factor = 300")
    topic = mirrored.name("backlog")
    backlog(mirrored, topic, 3_000)
    broker = lab.running("dr-1")["dr-1"]
    with a_user(mirrored, f"users-{unique_name}"), mirrored.running() as running:

        def rate() -> float | None:
            return newest(running).catch_up_bytes_per_second

        def lower_while_it_stumbles() -> bool:
            """What the target is like without the mirror is learned every half minute, and may be in this stretch."""
            wait_until(lambda: rate() == BOUND, 60, "the link's own limit")
            with stumbling(broker):
                return wait_until(lambda: (rate() or BOUND) < BOUND / 2, 12, "a lower rate")

        wait_until(lambda: newest(running).target_latency_seconds is not None, 60, "the user to be seen")
        wait_until(lower_while_it_stumbles, 60, "a lower rate in a stretch in which nothing is learned")
        wait_until(lambda: rate() == BOUND, 60, "the limit again")
        assert newest(running).partitions_behind, "it was to be a backlog all the time"


def test_where_nobody_uses_the_target_a_backlog_has_no_limit_and_arrives_whole(mirrored: Mirrored) -> None:
    topic = mirrored.name("alone")
    backlog(mirrored, topic, 400)
    with mirrored.running() as running:
        for partition in range(4):
            mirrored.wait_through(topic, partition)
        told = [event for event in running.events if isinstance(event, ProgressEvent)]
    assert told
    assert {event.statistics.catch_up_bytes_per_second for event in told} == {None}
    for partition in range(4):
        mirrored.assert_same(topic, partition)


def test_while_a_backlog_is_copied_slowly_other_partitions_dont_wait_for_it(mirrored: Mirrored) -> None:
    """And all of it arrives once, in order, though partitions go from one reader to another."""
    mirrored.configure(f"[links.catch_up]\nmax_bytes_per_second = {LOWEST}")
    topic, live = mirrored.name("backlog"), mirrored.name("live")
    mirrored.source.create(live)
    producer = mirrored.source.producer()
    with mirrored.running():
        producer.produce(live, value=b"first")
        assert producer.flush(30) == 0
        mirrored.wait_through(live)
        backlog(mirrored, topic, 250)  # 24 s of it
        for number in range(4):
            producer.produce(live, value=b"%d" % number)
            assert producer.flush(30) == 0
            mirrored.wait_through(live)
        left = [mirrored.source.end(topic, each) - mirrored.through(topic, each) for each in range(4)]
        assert any(left), "it was to be a backlog all the time; partitions take turns, so one may be done"
        for partition in range(4):
            mirrored.wait_through(topic, partition)
    mirrored.assert_same(live)
    for partition in range(4):
        mirrored.assert_same(topic, partition)
