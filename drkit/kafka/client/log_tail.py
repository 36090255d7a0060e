"""Follows the ends of partitions: every batch as soon as the broker has it, including open transactions.

One long poll waits at each broker and returns when something is appended. For following logs, not for bulk reading:
positions change only on the tail's own thread, and `take` is called there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.connection import Connection
from drkit.kafka.client.data_client import DataClient, StreamError
from drkit.kafka.protocol.data_requests import Fetch, Fetched, FetchPlace
from drkit.kafka.protocol.record_batch import Batch, parse
from drkit.kafka.protocol.records import Damaged
from drkit.model.errors import DrkitError
from drkit.model.process import keeping_context
from drkit.model.topology import TopicPartition

log = logging.getLogger(__name__)

_WAIT_MS = 100  # the longest wait of a partition that is added
_PARTITION_BYTES = 1 << 20
_ANSWER_BYTES = 8 << 20
_PAUSE = 0.1
_IDLE = 0.02
_STALE = frozenset({3, 5, 6, 9, 74, 76})
"""Errors after which metadata is read again: unknown or moved partitions or leaders, other epochs."""

Take = Callable[[TopicPartition, list[Batch]], None]
Rest = Callable[[frozenset[TopicPartition], int], None]
Lost = Callable[[TopicPartition, str], None]


class LogTail:
    """Follows partitions of one cluster on a thread of its own.

    Args:
        alias: the cluster's name in messages.
        cluster: how to reach it.
        take: receives the batches appended to a partition, in order, whole batches from the position on.
        lost: called with a partition that can't be followed any longer, and the reason; it is dropped.
        rest: called after each processed response with the partitions whose end it reached, and the number of
            responses at the time of its request. All records of that time are known for these partitions.
    """

    def __init__(
        self, alias: str, cluster: ClusterConfig, take: Take, lost: Lost, rest: Rest = lambda _reached, _asked: None
    ) -> None:
        self._stream = DataClient(alias, cluster, timeout_seconds=10.0)
        self._take = take
        self._lost = lost
        self._rest = rest
        self._lock = threading.Lock()
        self._joining: dict[TopicPartition, int] = {}
        self._taken: dict[TopicPartition, int] = {}
        self._asked: dict[TopicPartition, int] = {}  # ahead of the taken batches while a response is processed
        self._stop = threading.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=keeping_context(self._run), name=f"drkit-tail-{alias}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self, seconds: float = 10.0) -> None:
        """End, and close the connections."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def follow(self, places: Mapping[TopicPartition, int]) -> None:
        """Also follow these partitions, each from an offset; partitions already followed keep their positions."""
        with self._lock:
            for tp, offset in places.items():
                self._joining.setdefault(tp, offset)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that wasn't taken yet."""
        with self._lock:
            return dict(self._taken)

    def _run(self) -> None:
        try:
            asyncio.run(self._follow_all())
        except Exception as error:  # noqa: BLE001 - whoever owns the tail looks at it
            self.failure = error

    async def _follow_all(self) -> None:
        try:
            connecting = asyncio.create_task(self._stream.connect())
            while not self._stop.is_set():
                if connecting.done():
                    connecting.result()
                    await self._lead()
                await asyncio.sleep(_IDLE)
            connecting.cancel()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await self._stream.close()
            await asyncio.sleep(0)  # transports close in the loop's next round

    async def _lead(self) -> None:
        """Add the new partitions, and run a task for each broker that leads any."""
        with self._lock:
            for tp, offset in self._joining.items():
                self._taken.setdefault(tp, offset)
                self._asked.setdefault(tp, offset)
            self._joining.clear()
            topics = {tp.topic for tp in self._taken}
        if (heard := self._stream.track(topics)) is not None:
            await heard
        for node in self._by_leader():
            task = self._tasks.get(node)
            if task is None or task.done():
                if task is not None:
                    task.result()
                self._tasks[node] = asyncio.create_task(self._follow(node))

    def _by_leader(self) -> dict[int, dict[TopicPartition, int]]:
        found: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, position in self._asked.items():
            leader = self._stream.leader(*tp)
            if leader is None:
                self._stream.refresh()
            else:
                found[leader][tp] = position
        return found

    async def _follow(self, node: int) -> None:
        """Follow the partitions that one broker leads; ends when it leads none."""
        asked: _Asked | None = None
        while asked is not None or node in self._by_leader():
            try:
                asked = asked or await self._ask(node)
                answer = None if asked is None else await asked.answer
            except StreamError as error:
                log.debug("tail of broker %d: %s", node, error)
                asked = answer = None
                self._asked = self.positions()
            if asked is None or answer is None:
                self._stream.refresh()
                await asyncio.sleep(_PAUSE)
                continue
            self._answers += 1
            read = [self._read(each) for each in answer.partitions]
            troubled = any(each.error for each in answer.partitions)
            # sent before the response is processed, so that new batches arrive even if processing fails
            following = None if troubled else self._send(node, asked.connection)
            self._work(read, asked.answers)
            if troubled:
                self._asked = self.positions()
                await asyncio.sleep(_PAUSE)
            asked = following

    async def _ask(self, node: int) -> _Asked | None:
        connection = await self._stream.connection(node, "tail")
        return None if connection is None else self._send(node, connection)

    def _send(self, node: int, connection: Connection) -> _Asked | None:
        """Send the next long poll."""
        places = self._by_leader().get(node)
        if not places:
            return None
        asked: dict[str, list[FetchPlace]] = defaultdict(list)
        for tp, position in places.items():
            asked[tp.topic].append(FetchPlace(tp.partition, position, _PARTITION_BYTES))
        request = Fetch(asked, committed=False, max_wait_ms=_WAIT_MS, max_bytes=_ANSWER_BYTES)
        try:
            return _Asked(connection, connection.send(request), self._answers)
        except StreamError:
            return None

    def _read(self, found: Fetched) -> tuple[Fetched, list[Batch]]:
        """The batches of one partition's response, from its position on."""
        tp = TopicPartition(found.topic, found.partition)
        position = self._asked.get(tp)
        if found.error or position is None:
            return found, []
        batches = [batch for batch in parse(found.records) if batch.last_offset >= position]
        if batches:
            self._asked[tp] = batches[-1].last_offset + 1
        return found, batches

    def _work(self, read: list[tuple[Fetched, list[Batch]]], answers: int) -> None:
        """Process a response."""
        reached = set()
        for found, batches in read:
            tp = TopicPartition(found.topic, found.partition)
            if found.error in _STALE:
                self._stream.refresh()
            elif found.error:
                self._drop(tp, f"error {found.error} of its leader")
            elif self._takes(tp, batches) and self._asked.get(tp, -1) >= found.high_watermark:
                reached.add(tp)
        self._rest(frozenset(reached), answers)

    def _takes(self, tp: TopicPartition, batches: list[Batch]) -> bool:
        if not batches:
            return True
        try:
            self._take(tp, batches)
        except (DrkitError, Damaged) as error:
            self._drop(tp, str(error))
            return False
        with self._lock:
            self._taken[tp] = batches[-1].last_offset + 1
        return True

    def _drop(self, tp: TopicPartition, why: str) -> None:
        with self._lock:
            self._taken.pop(tp, None)
        self._asked.pop(tp, None)
        self._lost(tp, why)


class _Asked(NamedTuple):
    """A long poll in flight. `answers`: how many responses had come when it was sent."""

    connection: Connection
    answer: asyncio.Future[Any]
    answers: int
