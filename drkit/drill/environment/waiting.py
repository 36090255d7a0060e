"""Waits for a condition on a cluster of the lab; it isn't met while the cluster doesn't answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from drkit.drill.environment.cancellation import rest
from drkit.model.errors import DrkitError

T = TypeVar("T")

_POLL_SECONDS = 0.2


class NotInTime(DrkitError):
    """The awaited condition did not occur: this proves nothing about the rehearsed procedure."""


def wait_for(what: str, seconds: float, ask: Callable[[], T]) -> T:
    """Ask until the result is true; returns it.

    Raises:
        NotInTime: it took longer.
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
        rest(_POLL_SECONDS)
    raise NotInTime(f"{what} did not happen within {seconds:g} s; last seen: {last!r}")
