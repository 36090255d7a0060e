"""Plans made while producers write: what was only read later is nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from tests.support.links.estates import OwnLink, mirroring
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

PLANS = 12
_AT_ONCE = 20
"""Records that are written and acknowledged together."""


@contextmanager
def writing(own: OwnLink, topic: str) -> Iterator[None]:
    """A producer at work on every partition."""
    stop = threading.Event()
    producer = Producer({**own.client("primary"), "linger.ms": 1, "acks": "all"})

    def work() -> None:
        number = 0
        while not stop.is_set():
            for _ in range(_AT_ONCE):
                producer.produce(topic, b"%d" % number, partition=number % 4)
                number += 1
            producer.flush(30)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        producer.flush(30)


def test_plans_on_live_traffic_blame_no_other_writer(own: OwnLink) -> None:
    topic = own.create("primary", "orders", partitions=4)
    own.commit("primary", "g", topic, dict.fromkeys(range(4), 0))
    with writing(own, topic), mirroring(own):
        wait_until(lambda: any(mark.source_through for mark in own.store.watermarks(own.link.id).values()), what="flow")
        for _ in range(PLANS):
            with own.estate() as estate:
                plan = make_plan(estate, PlanRequest("dr"))
            said = [*plan.warnings, *(position.reason or "" for position in plan.positions)]
            assert not [text for text in said if "another writer" in text or "beyond the source" in text]
