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


@pytest.mark.parametrize("outage", [False, True], ids=["stopped", "silent"])
def test_after_a_turn_in_which_the_process_was_stopped_or_a_cluster_silent_the_next_is_not_put_off(
    monkeypatch: pytest.MonkeyPatch, outage: bool
) -> None:
    clock, stop, turns = [1000.0], threading.Event(), [0]
    pauses: list[float] = []

    def work() -> None:
        turns[0] += 1
        clock[0] += {3: 78.0}.get(turns[0], 0.1)
        if outage and turns[0] == 3:
            raise Unreachable("away")

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if turns[0] == 4:
            stop.set()

    periodic = Periodic("look", 1.0, work, stop)
    monkeypatch.setattr("drkit.mirror.runtime.periodic_task.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(periodic, "_wait", wait)
    periodic._run()
    assert pauses == pytest.approx([1.0, 0.9, 1.0 if outage else 0.9, 0.9])


def test_work_that_takes_long_twice_is_done_the_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stop, pauses = [1000.0], threading.Event(), []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            stop.set()

    periodic = Periodic("look", 1.0, lambda: clock.__setitem__(0, clock[0] + 4.0), stop)
    monkeypatch.setattr("drkit.mirror.runtime.periodic_task.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(periodic, "_wait", wait)
    periodic._run()
    assert pauses == pytest.approx([1.0, 12.0, 12.0])
