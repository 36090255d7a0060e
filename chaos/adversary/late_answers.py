"""The target's answers come later when told to, in their order, as from a cluster that is far away or slow.

The file holds the seconds; without it each answer counts as it comes. What a mirror has under way is much more then: it
reads on behind what isn't acknowledged.
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
    """Where the seconds are, given the file of the fault points."""
    return control.with_name("answers-late")


class LateAnswers:
    """The answers to this process's appends.

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
            waiting.append(answer)  # whichever timer ends first takes the oldest: they stay in order
            asyncio.get_running_loop().call_later(seconds, lambda: plain(sender, *waiting.popleft()))

        return call

    def _seconds(self) -> float:
        with suppress(OSError, ValueError):
            return float(self._told.read_text())
        return 0.0
