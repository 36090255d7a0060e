"""A stuck runtime ends the process: in order where it can, without it where it can't."""

from __future__ import annotations

import threading

import pytest

from drkit.cli.process.worker_processes import SERVICE_SECONDS, wait_for, watchdog_seconds
from drkit.model.errors import DrkitError
from drkit.model.topology import Link, LinkId


class Runtime(threading.Thread):
    """A runtime that is stuck, and obeys (or not) when told to stop."""

    def __init__(self, stop: threading.Event, *, stuck: bool, obeys: bool) -> None:
        super().__init__(daemon=True)
        self.link = Link(LinkId("a", "b"), (".*",))
        self.stuck = DrkitError("flights:3 is stuck") if stuck else None
        self._told = stop if obeys else threading.Event()

    def run(self) -> None:
        self._told.wait(60)


class Said(list[str]):
    def __call__(self, link: LinkId, error: DrkitError) -> None:
        self.append(f"{link}: {error.what}")


def test_the_others_are_told_to_end_and_that_is_all() -> None:
    stop, said, left = threading.Event(), Said(), list[int]()
    runtimes = [Runtime(stop, stuck=stuck, obeys=True) for stuck in (False, True)]
    for runtime in runtimes:
        runtime.start()
    wait_for(runtimes, stop, said, leave=left.append)
    assert stop.is_set()
    assert (left, said) == ([], [])


def test_one_that_does_not_end_is_left_behind_with_the_process() -> None:
    stop, said, left = threading.Event(), Said(), list[int]()
    runtimes = [Runtime(stop, stuck=False, obeys=True), Runtime(stop, stuck=True, obeys=False)]
    for runtime in runtimes:
        runtime.start()
    wait_for(runtimes, stop, said, grace_seconds=0.5, leave=left.append)
    assert (left, said) == ([1], ["a->b: flights:3 is stuck"])


@pytest.mark.parametrize(
    ("given", "catching_up", "expected"),
    [(None, False, SERVICE_SECONDS), (None, True, None), (0, False, None), (30, False, 30), (30, True, 30)],
)
def test_a_service_is_watched_by_default(given: float | None, catching_up: bool, expected: float | None) -> None:
    assert watchdog_seconds(given, until_caught_up=catching_up) == expected
