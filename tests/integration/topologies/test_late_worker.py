"""A worker that is frozen in the middle of its work and continues once another has taken over (SIGSTOP, SIGCONT).

On links that alter records: with provenance, filtered and transformed, and active-active under one name.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from drkit.model.clock import now
from drkit.model.topology import LinkId
from drkit.store.workers import live_workers
from tests.support.clusters.topologies import Net
from tests.support.killing.frozen_worker import freeze_between_writes
from tests.support.links.log_reader import read_log
from tests.support.links.mirroring import Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

RECORDS = 60_000
MIDST = 2_000
RULES = "tests.support.links.callables"


def link(source: str, target: str, topic: str, *lines: str) -> str:
    more = "\n".join(lines)
    return f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["{topic}"]\n{more}\n'


def fill(side: Side, topic: str, name: str) -> list[str]:
    """Records `<name> 0`, `<name> 1` …; returns their values."""
    values = [f"{name} {number}" for number in range(RECORDS)]
    producer = side.producer(compression_type="lz4", linger_ms=20, batch_num_messages=500)
    for value in values:
        producer.produce(topic, value=value.encode(), key=b"k", partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    return values


def worker_pids(world: Net, name: str) -> set[int]:
    return {int(worker.owner.split(":")[1]) for worker in live_workers(world.store, LinkId.parse(name), now())}


def taken_over_and_woken(world: Net, amid: Callable[[], bool], topics: dict[str, str]) -> None:
    """Freeze a worker of these links in the midst, have another mirror everything, wake it, end both."""
    late = world.process()
    wait_until(amid, 180, "some records on a target")
    freeze_between_writes(late, world.path.with_name("drkit.db"))
    try:
        other = world.process()
        for name, topic in topics.items():
            wait_until(lambda n=name: other.pid in worker_pids(world, n), 60, f"the other worker of {name}")
            world.wait_through(name, topic)
    finally:
        late.send_signal(signal.SIGCONT)
    for name in topics:
        wait_until(lambda n=name: {late.pid, other.pid} <= worker_pids(world, n), 60, f"both workers of {name}")
    for process in (late, other):
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, (output, errors)


def test_what_a_late_worker_still_sends_is_refused(net: Callable[..., Net], unique_name: str) -> None:
    shared, marked, altered = (f"{unique_name}-{kind}" for kind in ("shared", "marked", "altered"))
    rules = f'filter = "{RULES}:keeps_most"', f'transform = "{RULES}:redacts"'
    world = net(
        link("a", "b", shared, "provenance = true")
        + link("b", "a", shared, "provenance = true")
        + link("a", "c", marked, "provenance = true")
        + link("b", "c", altered, *rules)
    )
    a, b, c = (world.sides[alias] for alias in "abc")
    for side, topics in ((a, (shared, marked)), (b, (shared, altered))):
        for topic in topics:
            side.create(topic)
    of_a, of_b = fill(a, shared, "a"), fill(b, shared, "b")
    of_marked, of_altered = fill(a, marked, "marked"), fill(b, altered, "altered")
    kept = [value.upper() for number, value in enumerate(of_altered) if number % 1_000 != 7]
    names = ("a->b", "b->a", "a->c", "b->c")

    def amid() -> bool:
        seen = [(a, shared, RECORDS), (b, shared, RECORDS), (c, marked, 0), (c, altered, 0)]
        return any(side.partitions(topic) and side.end(topic) > before + MIDST for side, topic, before in seen)

    taken_over_and_woken(world, amid, dict(zip(names, (shared, shared, marked, altered), strict=True)))
    for side, topic, expected in ((c, marked, of_marked), (c, altered, kept)):
        found = [record.value for record in read_log(side.bootstrap, topic, committed=False)]
        assert len(found) == len(expected), topic
        assert found == expected, topic
    for side in (a, b):
        found = [record.value or "" for record in read_log(side.bootstrap, shared, committed=False)]
        assert len(found) == len(of_a) + len(of_b), side.bootstrap
        for values in (of_a, of_b):
            assert [value for value in found if value[0] == values[0][0]] == values, "each side's in its order"
    for name in names:
        assert not world.problems(name), (name, world.problems(name))
