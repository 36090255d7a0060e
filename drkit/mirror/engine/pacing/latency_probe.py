"""Measures how long the target's brokers take to answer while a backlog is copied to them.

Every 10 ms each broker gets a Produce request without a batch, on a connection of its own. It waits in the broker for
the same resources as a producer's request and appends nothing. Its latency depends neither on the size of the mirror's
own requests nor on their queue.

An answer that arrived while this worker's own event loop was busy is ignored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from drkit.kafka.client.connection import Connection, Reply
from drkit.kafka.client.data_client import StreamError
from drkit.kafka.protocol.data_requests import Produce
from drkit.mirror.engine.engine_state import EngineState, ended_by
from drkit.model.errors import BrokerTooOld

_EVERY_SECONDS = 0.01
_IDLE_SECONDS = 0.1
_PATIENCE_SECONDS = 1.0
_BUSY_SECONDS = 0.0005
_TIMEOUT_MS = 10_000


class LatencyProbe:
    """See the module docstring. Used on the engine's event loop.

    Args:
        flow: state shared within the engine; `flow.catch_up` gets the answer times.
        nodes: the brokers to which a backlog is being copied now.
    """

    def __init__(self, flow: EngineState, nodes: Callable[[], Iterable[int]]) -> None:
        self._flow = flow
        self._nodes = nodes
        self._task = asyncio.create_task(self._run())

    @property
    def failure(self) -> BaseException | None:
        """The defect that ended it, or None. Cancelled by anything but `close`, it measures nothing any more."""
        return ended_by(self._task)

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
        """Seconds until a broker's answer, or until the timeout; None: unknown."""
        flow, at = self._flow, time.monotonic()
        try:
            connection = await flow.target.connection(node, "latency")
        except BrokerTooOld:
            return None  # producing on it reports the error
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
