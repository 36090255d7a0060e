"""Reads a partition's log batch by batch, in order, from any offset: for tasks that read offset ranges concurrently.

Markers and emptied batches are left out, and batches of aborted transactions unless requested. The next request is in
flight while a response is processed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Collection, Generator
from itertools import chain
from typing import Any, Self

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.data_client import DataClient, StreamError
from drkit.kafka.protocol.committed_batches import CommittedFilter
from drkit.kafka.protocol.data_requests import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    OFFSET_OUT_OF_RANGE,
    SERVER_ERROR,
    TOPIC_DENIED,
    Fetch,
    Fetched,
    FetchPlace,
)
from drkit.kafka.protocol.record_batch import MAGIC, Batch, parse, unreadable
from drkit.kafka.protocol.records import Damaged, RawRecord, read, read_old
from drkit.model.errors import DrkitError, Refused, Unreachable

_FETCH_BYTES = 4 << 20
_LEAST_FETCH_BYTES = 64 << 10
_BYTES_AN_OFFSET = 1_000  # more than most records need: one fetch covers a short range, with little overhead
_WAIT_MS = 500
_PAUSE = 0.1
_GONE_SECONDS = 5.0
"""A broker that has just started may not know all topics yet."""
_STUMBLES = 5
"""Consecutive server errors after which the broker counts as unable to read its log there."""


class OffsetsGone(DrkitError):
    """Offsets no longer exist: retention or a deletion removed them."""


class TopicGone(Unreachable):
    """A topic or its partition no longer exists: its cluster has reported so for some seconds."""


class _CorruptLog(Exception):
    """The broker can't read its own log there: CORRUPT_MESSAGE, INVALID_RECORD, or repeated
    UNKNOWN_SERVER_ERROR if it finds no batch at all on its way to an offset."""


class LogReader:
    """Reads one cluster. Used by one thread; holds an event loop of its own.

    Args:
        alias: the cluster's name in messages.
        cluster: how to reach it.
        timeout_seconds: how long to retry without a response.
        committed: leave aborted records out (isolation level read_committed).
        dense: topics that aren't compacted: each offset of their logs has a batch, so a gap is unreadable.
    """

    def __init__(
        self,
        alias: str,
        cluster: ClusterConfig,
        *,
        timeout_seconds: float = 60.0,
        committed: bool = True,
        dense: Collection[str] = (),
    ) -> None:
        self._alias = alias
        self._dense = dense
        self._committed = committed
        self._timeout = timeout_seconds
        self._loop = asyncio.new_event_loop()
        self._stream = DataClient(alias, cluster, timeout_seconds=min(timeout_seconds, 30.0))
        self._connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        try:
            self._loop.run_until_complete(self._stream.close())
            self._loop.run_until_complete(asyncio.sleep(0))  # transports close in the loop's next iteration
        finally:
            self._loop.close()

    def read(self, topic: str, partition: int, first: int, until: int) -> Generator[list[Batch], None, None]:
        """The committed batches that hold offsets in [first, until), a list for each response of a broker.

        The first one may begin below `first`, the last one may end beyond `until`. Each list is a view into
        the bytes received. Close the iterator if you don't read to the end. Offsets whose batches fail their checksum
        or have a wrong base offset, and offsets without a batch (of a `dense` topic: even if the broker just answers
        with what is behind them), are returned as `drkit.kafka.protocol.record_batch.unreadable`.

        Raises:
            OffsetsGone: the log now begins above `first`, or above the next offset to read.
            TopicGone: the partition no longer exists.
            Unreachable: no answer in time, or the log ends below `until` as long as that: it lost its tail.
            Refused: the cluster denies access.
            DrkitError: the cluster answered with another error.
        """
        position = first
        asked: Awaitable[Any] | None = None
        moved = time.monotonic()
        while position < until:
            found, asked, after = self._loop.run_until_complete(self._next(asked, topic, partition, position, until))
            if after == position and time.monotonic() - moved > self._timeout:
                raise self._ends_below(topic, partition, position, until)
            if after != position:
                position, moved = after, time.monotonic()
            if found is not None:
                try:
                    yield found
                except GeneratorExit:  # closed by the caller
                    if asked is not None:
                        self._loop.run_until_complete(_release(asked))
                    raise
                moved = time.monotonic()  # what the caller did meanwhile isn't the broker's time
        if asked is not None:
            self._loop.run_until_complete(_release(asked))

    def records(self, topic: str, partition: int, first: int, until: int) -> Generator[RawRecord, None, None]:
        """The committed records with offsets in [first, until). Close the iterator if you don't read to the end.

        Raises:
            Damaged: a batch can't be read.
            DrkitError: as `read`.
        """
        batches = self.read(topic, partition, first, until)
        try:
            for batch in chain.from_iterable(batches):
                if not batch.readable:
                    raise Damaged(f"the batch at {batch.base_offset} is damaged")
                decoded = read_old(batch.whole) if batch.magic < MAGIC else read(batch)
                yield from (each for each in decoded if first <= each.offset < until)
        finally:
            batches.close()

    def end(self, topic: str, partition: int, known: int) -> int:
        """The current end of the log for this reader; `known` is an offset that it reached before.

        Raises:
            OffsetsGone: the log now ends below it.
            Unreachable: no answer in time.
            Refused: the cluster denies access.
        """
        answer = self._loop.run_until_complete(self._answer(None, topic, partition, known, known + 1, wait_ms=0))
        return answer.stable_offset if self._committed else answer.high_watermark

    def _ends_below(self, topic: str, partition: int, end: int, until: int) -> Unreachable:
        """The error for a log that doesn't go on to `until`, though it did when that was read."""
        return Unreachable(
            f"cluster {self._alias}: {topic}:{partition} has nothing at {end}, and was to be read up to {until}",
            meaning="It has lost its tail since then (an unclean leader election), or it was recreated",
            remedy="See what became of the topic, and run it again",
        )

    async def _next(
        self, asked: Awaitable[Any] | None, topic: str, partition: int, position: int, until: int
    ) -> tuple[list[Batch] | None, Awaitable[Any] | None, int]:
        """The batches of the next response, the request sent after it, and the offset that it reads."""
        try:
            answer = await self._answer(asked, topic, partition, position, until)
        except _CorruptLog:
            return await self._step_over(topic, partition, position, until)
        batches = list(parse(answer.records))
        if not batches:
            if len(answer.records):
                return await self._step_over(topic, partition, position, until)
            if (answer.stable_offset if self._committed else answer.high_watermark) >= until:
                return await self._step_over(topic, partition, position, until, empty=True)
            await asyncio.sleep(_PAUSE)  # a new leader may not yet know how far its log is committed
            return None, None, position
        held, after = await self._with_ends(batches, topic, partition, position, until)
        following = await self._ask(topic, partition, after, until) if after < until else None
        committed = CommittedFilter(answer.aborted if self._committed else ())
        found = [seen for each in held if _reaches(each, position, until) and (seen := _committed(committed, each))]
        return found, following, after

    async def _step_over(
        self, topic: str, partition: int, position: int, until: int, *, empty: bool = False
    ) -> tuple[list[Batch] | None, None, int]:
        """Continue after unreadable offsets. `empty`: the response was empty although the log continues, as compaction
        leaves it at a log's end; if there are records after it, or the topic isn't compacted, the broker failed on a
        batch with a damaged length."""
        if empty and await self._readable_at(topic, partition, position, until) is not None:
            return None, None, position  # a broker that looks up where its high watermark is also answers so
        end = await self._end_of_unreadable(topic, partition, position, until)
        compacted = empty and end == until and topic not in self._dense
        return (None if compacted else [unreadable(position, end)]), None, end

    async def _with_ends(
        self, batches: list[Batch], topic: str, partition: int, position: int, until: int
    ) -> tuple[list[Batch], int]:
        """Batches of a response, and the offset after them. The header of an unreadable or misplaced batch doesn't
        prove its end: the next batch does."""
        held: list[Batch] = []
        at = position
        for number, batch in enumerate(batches):
            following = batches[number + 1] if number + 1 < len(batches) else None
            if batch.readable and not _misplaced(batch, at, following, first=not number):
                if _behind_gap(batch, at) and number and (following is None or topic in self._dense):
                    return held, at  # a gap, or it is misplaced: the next batch decides
                if _behind_gap(batch, at) and topic in self._dense:
                    end = await self._end_of_unreadable(topic, partition, at, until)
                    return [unreadable(at, end)], end
                held.append(batch)
                at = max(at, _last(batch) + 1)
                continue
            behind = next((each for each in batches[number + 1 :] if each.readable and each.base_offset > at), None)
            if behind is None:
                if number == 0:
                    end = await self._end_of_unreadable(topic, partition, at, until)
                    return [unreadable(at, end)], end
                return held, at  # the next fetch begins there, with the batches after it
            if not held or held[-1].readable:  # consecutive ones are one range
                held.append(unreadable(at, behind.base_offset))
                at = behind.base_offset
        return held, at

    async def _end_of_unreadable(self, topic: str, partition: int, position: int, until: int) -> int:
        """The first readable offset after the unreadable `position`; `until` if there is none below. Takes some
        2 log2(n) fetches for n offsets."""
        low, step = position, 1
        while (at := min(position + step, until - 1)) > low:
            base = await self._readable_at(topic, partition, at, until)
            if base is not None:
                high = min(at, max(base, low + 1))
                break
            low, step = at, step * 2
        else:
            return until
        while high - low > 1:
            middle = (low + high) // 2
            base = await self._readable_at(topic, partition, middle, until)
            low, high = (middle, high) if base is None else (low, min(middle, max(base, low + 1)))
        return high

    async def _readable_at(self, topic: str, partition: int, offset: int, until: int) -> int | None:
        """The base offset of the first batch of a fetch from this offset; None if it can't be read, or the topic is
        `dense` and the batch is behind the offset: a broker skips to the next segment what it can't find."""
        try:
            answer = await self._answer(None, topic, partition, offset, until, wait_ms=0)
        except _CorruptLog:
            return None
        first = next(parse(answer.records), None)
        if first is None or not first.readable or (topic in self._dense and _behind_gap(first, offset)):
            return None
        return first.base_offset

    async def _answer(
        self,
        asked: Awaitable[Any] | None,
        topic: str,
        partition: int,
        position: int,
        until: int,
        *,
        wait_ms: int = _WAIT_MS,
    ) -> Fetched:
        deadline = time.monotonic() + self._timeout
        last = "no leader is known"
        since: float | None = None
        stumbles = 0
        while time.monotonic() < deadline:
            if asked is None:
                asked = await self._ask(topic, partition, position, until, wait_ms)
            if asked is not None:
                try:
                    answer = await asked
                except StreamError as error:
                    last = str(error) or type(error).__name__
                else:
                    # a response without the partition means that the broker throttles this client
                    for each in answer.partitions:
                        if each.error == 0:
                            found: Fetched = each
                            return found
                        stumbles = stumbles + 1 if each.error == SERVER_ERROR else 0
                        if stumbles >= _STUMBLES:
                            raise _CorruptLog
                        last = self._explain(each, topic, partition, position)
                asked = None
            since = self._missing_since(topic, partition, since)
            self._stream.refresh()
            await asyncio.sleep(_PAUSE)
        raise Unreachable(
            f"cluster {self._alias} returned no records of {topic}:{partition} within {self._timeout:g} s",
            meaning=f"The last error was: {last}",
            remedy="Check its brokers and run it again",
        )

    def _missing_since(self, topic: str, partition: int, since: float | None) -> float | None:
        """The time since which the cluster reports the partition as unknown; None if it doesn't."""
        if not self._stream.denies(topic, partition):
            return None
        if since is not None and time.monotonic() - since > _GONE_SECONDS:
            raise TopicGone(
                f"cluster {self._alias} no longer has {topic}:{partition}",
                meaning="The topic was deleted, or recreated with fewer partitions",
            )
        return time.monotonic() if since is None else since

    async def _ask(
        self, topic: str, partition: int, position: int, until: int, wait_ms: int = _WAIT_MS
    ) -> Awaitable[Any] | None:
        """Send a Fetch; None if there is no leader now."""
        try:
            if not self._connected:
                await asyncio.wait_for(self._stream.connect(), self._timeout)
                self._connected = True
            if (heard := self._stream.track([topic])) is not None:
                await heard
            leader = self._stream.leader(topic, partition)
            connection = None if leader is None else await self._stream.connection(leader, "read")
            if connection is None:
                return None
            size = max(_LEAST_FETCH_BYTES, min(_FETCH_BYTES, (until - position) * _BYTES_AN_OFFSET))
            place = FetchPlace(partition, position, size)
            return connection.send(
                Fetch({topic: [place]}, committed=self._committed, max_wait_ms=wait_ms, max_bytes=size)
            )
        except StreamError:
            return None

    def _explain(self, answer: Fetched, topic: str, partition: int, position: int) -> str:
        """Raise a permanent error; describe any other."""
        if answer.error == OFFSET_OUT_OF_RANGE:
            raise OffsetsGone(
                f"cluster {self._alias} no longer has offset {position} of {topic}:{partition} (OffsetOutOfRange)"
            )
        if answer.error in {CORRUPT_MESSAGE, INVALID_RECORD}:
            raise _CorruptLog
        if answer.error == TOPIC_DENIED:
            raise Refused(
                f"cluster {self._alias} denies READ on topic {topic}",
                remedy="Grant drkit's principal READ on the topics",
            )
        from drkit.kafka.admin.admin_connection import describe, error_class  # noqa: PLC0415 - not worth loading where all goes well

        kind = error_class(answer.error)
        if answer.error != SERVER_ERROR and not kind.retriable and not getattr(kind, "invalid_metadata", False):
            raise DrkitError(f"cluster {self._alias} answered {describe(kind)} for {topic}:{partition}")
        return describe(kind)


def _last(batch: Batch) -> int:
    """The last offset of a batch. In the old formats the offset itself is that of the last message."""
    return batch.base_offset if batch.magic < MAGIC else batch.last_offset


def _reaches(batch: Batch, position: int, until: int) -> bool:
    return _last(batch) >= position and (batch.magic < MAGIC or batch.base_offset < until)


def _behind_gap(batch: Batch, at: int) -> bool:
    """Whether offsets from `at` on have no batch before this one; of the old formats, its header doesn't tell."""
    return batch.magic >= MAGIC and batch.base_offset > at


def _misplaced(batch: Batch, at: int, behind: Batch | None, *, first: bool) -> bool:
    """Whether a batch's base offset is wrong: no checksum covers it, and consumers skip records that seem to be
    already read.

    Args:
        batch: a batch of a response.
        at: the next offset to read.
        behind: the batch after it.
        first: it is the response's first, which may begin below.
    """
    if batch.magic < MAGIC or batch.base_offset == at:
        return False
    if batch.base_offset < at:
        return not first
    return behind is not None and behind.readable and behind.base_offset <= batch.last_offset


def _committed(committed: CommittedFilter, batch: Batch) -> Batch | None:
    """The batch, if it has committed records. An undecodable marker doesn't show which transaction it ends."""
    try:
        return batch if batch.magic < MAGIC or committed.holds(batch) else None
    except Damaged:
        return unreadable(batch.base_offset, batch.last_offset + 1)


async def _release(asked: Awaitable[Any]) -> None:
    """Wait for a response that is no longer needed: the next read uses the same connection."""
    try:
        await asked
    except StreamError:
        return
