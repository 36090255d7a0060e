"""What is patched into a worker from outside: named points of a batch's path, and late responses.

At a point the worker can kill or stop itself. The control file holds `point number signal`: after so many passes of
the point, the process sends itself SIGKILL or SIGSTOP there.

The target's responses are delayed on request, in order, like those of a distant or slow cluster. A file beside the
control file holds the seconds; without it there is no delay. With it a mirror has much more in flight: it reads beyond
the unacknowledged records.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

_STOPS_WITHIN_SECONDS = 0.2  # a signal may reach another thread first, and this one would continue

PLACES = {
    "after_fetch": ("drkit.mirror.engine.admission:Admission.admit", "before"),
    "before_rows": ("drkit.store.sqlite.backend:SqliteStore.append_mappings", "before"),
    "after_rows": ("drkit.store.sqlite.backend:SqliteStore.append_mappings", "after"),
    "before_send": ("drkit.mirror.engine.sender:Produce", "after"),  # right after this call
    "after_send": ("drkit.mirror.engine.sender:Sender._hand_over", "after"),
    "after_answer": ("drkit.mirror.engine.sender:Sender._answered", "before"),
    "before_watermarks": ("drkit.store.sqlite.backend:SqliteStore.put_watermarks", "before"),
    "after_watermarks": ("drkit.store.sqlite.backend:SqliteStore.put_watermarks", "after"),
    "after_supersede": ("drkit.store.sqlite.backend:SqliteStore.supersede_mappings", "after"),
    "before_trim": ("drkit.kafka.admin.cluster_admin:ClusterAdmin.delete_records", "before"),
    "after_trim": ("drkit.kafka.admin.cluster_admin:ClusterAdmin.delete_records", "after"),
}
"""Point → the function, and whether before or after it."""


class FaultPoints:
    """The fault points of this process.

    Args:
        control: the control file; without it nothing happens.
    """

    def __init__(self, control: Path) -> None:
        self._control = control
        self._passed = 0

    def install(self) -> None:
        """Patch all points.

        Raises:
            AttributeError: drkit no longer has such a function: name its successor here.
        """
        for name, (place, side) in PLACES.items():
            patch(place, lambda plain, name=name, side=side: self._around(plain, name, side))

    def _around(self, plain: Callable[..., Any], name: str, side: str) -> Callable[..., Any]:
        @wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if side == "before":
                self._pass(name)
            result = plain(*args, **kwargs)
            if side == "after":
                self._pass(name)
            return result

        return call

    def _pass(self, name: str) -> None:
        with suppress(OSError, ValueError):
            point, number, word = self._control.read_text().split()
            if point != name:
                return
            if self._passed < int(number):
                self._passed += 1
                return
            self._control.unlink()
            self._passed = 0
            os.kill(os.getpid(), signal.Signals[word])
            time.sleep(_STOPS_WITHIN_SECONDS)


def patch(place: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Replace `module:Class.method` (or `module:function`) with the result of `make`; returns the function to undo it.

    Raises:
        AttributeError, ModuleNotFoundError: it doesn't exist.
    """
    module, _, path = place.partition(":")
    owner: Any = import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    plain = getattr(owner, name)
    setattr(owner, name, make(plain))
    return lambda: setattr(owner, name, plain)


def told_in(control: Path) -> Path:
    """The file with the seconds, beside the control file of the fault points."""
    return control.with_name("answers-late")


class LateAnswers:
    """The responses to this process's appends.

    Args:
        told: the file with the seconds.
    """

    def __init__(self, told: Path) -> None:
        self._told = told
        self._waiting: defaultdict[object, deque[tuple[Any, ...]]] = defaultdict(deque)

    def install(self) -> None:
        """Patch the senders.

        Raises:
            AttributeError: drkit no longer has such a function: name its successor here.
        """
        patch("drkit.mirror.engine.sender:Sender._answered", self._around)

    def _around(self, plain: Callable[..., None]) -> Callable[..., None]:
        @wraps(plain)
        def call(sender: object, *answer: Any) -> None:
            seconds, waiting = self._seconds(), self._waiting[sender]
            if not seconds and not waiting:
                plain(sender, *answer)
                return
            waiting.append(answer)  # each timer takes the oldest one: they stay in order
            asyncio.get_running_loop().call_later(seconds, lambda: plain(sender, *waiting.popleft()))

        return call

    def _seconds(self) -> float:
        with suppress(OSError, ValueError):
            return float(self._told.read_text())
        return 0.0
