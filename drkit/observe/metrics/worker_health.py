"""Liveness and readiness of a mirror process, for a supervisor's probes.

It is not **live** if one of its links has reported nothing for `SILENT_SECONDS` although it waits for nothing: a
restart may help. It is not **ready** until each of its links has reported within `FRESH_SECONDS` and doesn't wait for
the store, a cluster, or another worker. An outage makes it unready and leaves it live: a restart would not help.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

SILENT_SECONDS = 60.0
FRESH_SECONDS = 10.0
STARTING, WAITING, ENDED = "starting", "waiting", "ended"


@dataclass(frozen=True, slots=True)
class _LinkState:
    state: str
    reason: str | None
    at: float


class WorkerHealth:
    """The last reports of a process's links. Shared by threads.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[str, _LinkState] = {}

    def begin(self, links: Iterable[str]) -> None:
        """Set the links that the process mirrors."""
        with self._lock:
            self._links = {link: _LinkState(STARTING, None, self._clock()) for link in links}

    def tell(self, link: str, state: str, reason: str | None = None) -> None:
        """Take a report of a link's runtime: a worker's state, or `WAITING` or `ENDED` instead of it."""
        with self._lock:
            self._links[link] = _LinkState(state, reason, self._clock())

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Whether it is live, and the document with the reasons."""
        links = self._told()
        silent = [link for link, told, age in links if age > SILENT_SECONDS and told.state not in {WAITING, ENDED}]
        return not silent, {"live": not silent, "silent": silent, "links": _rows(links)}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether it is ready, and the document with the reasons."""
        links = self._told()
        away = {STARTING, WAITING, ENDED}
        missing = [link for link, told, age in links if age > FRESH_SECONDS or told.state in away]
        ready = bool(links) and not missing
        return ready, {"ready": ready, "not_ready": missing, "links": _rows(links)}

    def _told(self) -> list[tuple[str, _LinkState, float]]:
        with self._lock:
            at = self._clock()
            return [(link, told, at - told.at) for link, told in sorted(self._links.items())]


def _rows(links: list[tuple[str, _LinkState, float]]) -> list[dict[str, Any]]:
    return [
        {"link": link, "state": told.state, "reason": told.reason, "age_seconds": round(age, 1)}
        for link, told, age in links
    ]
