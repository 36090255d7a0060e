"""Measures how long the target's brokers take to answer while a backlog is copied to them.

Every 10 ms each of them gets a Produce request without a batch in it, on a connection of its own: it waits in the
broker for what a producer's request waits for, and appends nothing. Its time doesn't depend on how large the mirror's
own requests are, nor does it wait behind them.

What this worker's own event loop was busy with meanwhile isn't the broker's time: such an answer tells nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from drkit.kafka.client.connection import Connection, Reply
from drkit.kafka.client.data_client import StreamError
from drkit.kafka.protocol.fetch_produce import Produce
from drkit.mirror.engine.engine_state import EngineState
from drkit.model.errors import BrokerTooOld

_EVERY_SECONDS = 0.01
_IDLE_SECONDS = 0.1
_PATIENCE_SECONDS = 1.0
_BUSY_SECONDS = 0.0005
_TIMEOUT_MS = 10_000


class LatencyProbe:
    """See the module docstring. Used on the engine's event loop.

    Args:
        flow: what the engine shares; `flow.catch_up` is told.
        nodes: the brokers to which a backlog is being copied now; none while there is no backlog.
    """

    def __init__(self, flow: EngineState, nodes: Callable[[], Iterable[int]]) -> None:
        self._flow = flow
        self._nodes = nodes
        self._task = asyncio.create_task(self._run())

    @property
    def failure(self) -> BaseException | None:
        """A defect that ended it."""
        if self._task.done() and not self._task.cancelled():
            return self._task.exception()
        return None

    def close(self) -> None:
        """Ask no more."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            nodes = list(self._nodes()) if self._flow.catch_up.adapts else []
            if not nodes:
                await asyncio.sleep(_IDLE_SECONDS)
                continue
            taken = await asyncio.gather(*map(self._ask, nodes))
            self._flow.catch_up.answered(None if None in taken else max(each for each in taken if each is not None))
            await asyncio.sleep(_EVERY_SECONDS)

    async def _ask(self, node: int) -> float | None:
        """Seconds until a broker's answer, or for which it was waited for in vain; None: that can't be told."""
        flow, at = self._flow, time.monotonic()
        try:
            connection = await flow.target.connection(node, "latency")
        except BrokerTooOld:
            return None  # whoever produces there says so
        if connection is None:
            return time.monotonic() - at
        busy = flow.busy_seconds
        seconds = await self._answer(connection)
        return seconds if flow.busy_seconds - busy < _BUSY_SECONDS else None

    async def _answer(self, connection: Connection) -> float:
        answered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        sent = time.monotonic()

        def note(_: Reply) -> None:
            if not answered.done():
                answered.set_result(time.monotonic() - sent)

        try:
            connection.send_with_callback(Produce({}, timeout_ms=_TIMEOUT_MS), note)
        except (*StreamError, NotImplementedError):
            await asyncio.sleep(_IDLE_SECONDS)
            return time.monotonic() - sent
        await asyncio.wait([answered], timeout=_PATIENCE_SECONDS)
        return answered.result() if answered.done() else time.monotonic() - sent
