"""Waiting for incidents ends in time, whatever signals the process handles meanwhile."""

from __future__ import annotations

import queue
import threading

from drkit.mirror.engine.interface import Incident, IncidentKind, gathered
from drkit.model.topology import TopicPartition
from tests.support.killing.slow_signals import slow_signals

LATE = Incident(TopicPartition("t", 0), IncidentKind.TOPIC_GONE, "put so that a wait without an end is seen")


def test_signals_that_take_longer_to_answer_than_it_waits_make_no_wait_endless() -> None:
    incidents: queue.Queue[Incident] = queue.Queue()
    late = threading.Timer(20, incidents.put, [LATE])
    late.start()
    with slow_signals(0.05):
        found = next(filter(None, (gathered(incidents, 0.02) for _ in range(20))), None)
    late.cancel()
    assert found is None
