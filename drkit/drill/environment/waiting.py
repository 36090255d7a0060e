"""Waits for a condition on a cluster of the lab; a cluster that doesn't answer doesn't meet it yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from drkit.model.errors import DrkitError

T = TypeVar("T")

_POLL_SECONDS = 0.2


class NotInTime(DrkitError):
    """What was waited for did not come about: this says nothing about what is rehearsed."""


def wait_for(what: str, seconds: float, ask: Callable[[], T]) -> T:
    """Ask until the answer is true; returns it.

    Raises:
        NotInTime: that took longer.
    """
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = ask()
        except KafkaException as error:
            last = error
        else:
            if answer:
                return answer
            last = answer
        time.sleep(_POLL_SECONDS)
    raise NotInTime(f"{what} did not come about within {seconds:g} s; last seen: {last!r}")
