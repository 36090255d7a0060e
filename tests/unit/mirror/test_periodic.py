from __future__ import annotations

import logging
import threading

import pytest

from drkit.mirror.runtime.periodic_task import Periodic
from drkit.model.errors import Unreachable
from tests.support.wait import wait_until


def test_an_outage_is_said_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    turns: list[int] = []

    def work() -> None:
        turns.append(1)
        if 3 <= len(turns) <= 6:
            raise Unreachable(f"away, turn {len(turns)}")

    periodic = Periodic("looker", 0.001, work, stop)
    with caplog.at_level(logging.INFO, logger="drkit.mirror.runtime.periodic_task"):
        periodic.start()
        wait_until(lambda: len(turns) > 10, what="ten turns")
        stop.set()
        assert periodic.join(5)
    assert [record.message for record in caplog.records] == ["looker: away, turn 3.", "looker: works again"]
    assert periodic.failure is None


def test_a_defect_ends_it_and_is_kept() -> None:
    stop = threading.Event()

    def work() -> None:
        raise ZeroDivisionError

    periodic = Periodic("defect", 0.001, work, stop)
    periodic.start()
    assert periodic.join(5)
    assert isinstance(periodic.failure, ZeroDivisionError)


def test_it_can_be_woken_before_its_time() -> None:
    stop = threading.Event()
    turns: list[int] = []
    periodic = Periodic("woken", 3600, lambda: turns.append(1), stop)
    periodic.start()
    wait_until(lambda: len(turns) == 1, what="the first turn")
    wait_until(lambda: periodic.wake() or len(turns) > 1, what="a turn before its time")
    stop.set()
    assert periodic.join(5)


@pytest.mark.parametrize(
    ("spent", "usual", "prompt"), [(0.0, 1.0, 1.0), (0.1, 0.9, 0.8), (0.4, 1.2, 0.2), (0.6, 1.8, 0.15)]
)
def test_what_is_to_be_seen_promptly_is_looked_at_sooner_the_longer_a_look_takes(
    spent: float, usual: float, prompt: float
) -> None:
    stop = threading.Event()
    assert Periodic("work", 1.0, lambda: None, stop)._pause(spent) == pytest.approx(usual)
    assert Periodic("look", 1.0, lambda: None, stop, promptly=True)._pause(spent) == pytest.approx(prompt)
