"""Delays the target's responses on request, in order, like those of a distant or slow cluster.

The file holds the seconds; without it there is no delay. With it a mirror has much more in flight: it reads beyond the
unacknowledged records.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from chaos.adversary.fault_points import patch


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
