"""Reading of the batch engine: one fetcher per source broker, in a fetch session, one request ahead.

A fetch session (KIP-227) lets a request name only the partitions whose position changed, and the
answer only those that have something: ten thousand quiet partitions cost nothing. As soon as an
large answer's batch headers are read, the next request is sent; the batches are admitted while the broker
works on it. What small answers bring goes out first, and the next request waits a moment (`_PACE`).

An answer counts for a partition only where the request asked for that very partition, as it was started
last, from the offset that is due: one that was restarted meanwhile continues elsewhere, and what was
read for it before would leave a gap that looks like a hole of the source.

Partitions whose mapping rows are being kept are not read meanwhile; the others continue.

Where a backlog is copied slower than it could be (`drkit.mirror.engine.catch_up_rate`), a fetcher of its own reads the
partitions that are behind, so the others don't wait for their turn among them.

A broker compares leader epochs with each Fetch, and their numbers are the controllers'. A cluster that was set back as
a whole, to a copy of its disks, gives out the same numbers a second time, for other records. So where a broker was
away for so long that it may have been started anew, what was read from it is looked at on both sides before more is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from aiokafka.errors import for_code

from drkit.kafka.admin.admin_connection import describe, error_class
from drkit.kafka.client.connection import Connection
from drkit.kafka.client.data_client import StreamError
from drkit.kafka.protocol.coalescing import Found, scan
from drkit.kafka.protocol.fetch_produce import FIRST_EPOCH, Fetch, Fetched, FetchPlace, FetchReply, TopicIds
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.interface import ANOTHER_TOPIC, NOT_MOVING, TRIED_AGAIN, IncidentKind, Notice
from drkit.mirror.engine.partition_queue import BatchPartition
from drkit.model.topology import TopicPartition

log = logging.getLogger(__name__)

_LARGEST_FETCH = 48 * 1024 * 1024  # below what brokers give by default (fetch.max.bytes, 55 MiB)
_SMALLEST_PARTITION = 128 * 1024
_WAIT_MS = 500
_SHORT_WAIT_MS = 20
_PAUSE = 0.2
_SMALL_ANSWER = 32 * 1024
_PACE = 0.0065
_SMALL_SHARE = 0.17
"""While answers are small, requests are so far apart that they take this share of a core, but no more than `_PACE`
seconds. A steady stream would else be asked for record by record, each at the price of a request on both sides; the
first record after a rest is never held up. Where an answer went out in several requests (batches of one partition that
can't be joined), waiting for it saved none of them: it is asked for so many times as often."""
_AWAY_SECONDS = 1.0
"""A broker whose last answer is no older when a new connection to it is made was not started anew in between."""
_DAMAGED_READS = 3
_LAST_EPOCH = 2**31 - 1

_OUT_OF_RANGE = 1
_SESSION_LOST = frozenset({70, 71, 106})
_UNREADABLE = frozenset({29})
_CORRUPT = 2


class Read(NamedTuple):
    """Complete batches of one partition, and the aborted transactions that concern them.

    `begin`: the offset asked for.
    """

    partition: BatchPartition
    begin: int
    batches: list[Found]
    aborted: tuple[tuple[int, int], ...]


Admit = Callable[[list[Read]], None]


class Fetcher:
    """Reads from one source broker.

    Args:
        flow: what the engine shares.
        node: the broker.
        admit: takes what was read.
        rack: of this reader.
        backlog: it reads partitions that are behind, no faster than `flow.catch_up` lets it.
    """

    def __init__(self, flow: EngineState, node: int, admit: Admit, *, rack: str = "", backlog: bool = False) -> None:
        self.node = node
        self.backlog = backlog
        self._flow = flow
        self._admit = admit
        self._rack = rack
        self._places: dict[TopicPartition, BatchPartition] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._asked: dict[TopicPartition, tuple[BatchPartition, int]] = {}  # what the session asks for
        self._session = 0
        self._epoch = FIRST_EPOCH
        self._anew = False
        self._heard_at: float | None = None  # when it answered last, and when the connection was made
        self._connected_at = 0.0
        self._topic_ids = TopicIds()  # of all topics of the session
        self._worked = 0.0
        self._produced = 0
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def failure(self) -> BaseException | None:
        """A defect that ended it."""
        if self._task.done() and not self._task.cancelled():
            return self._task.exception()
        return None

    @property
    def reads(self) -> bool:
        """Whether there is a partition that it is to read now."""
        return any(partition.fetchable for partition in self._places.values())

    def add(self, partition: BatchPartition) -> None:
        """Read a partition that this broker leads."""
        self._places[partition.tp] = partition
        known = self._topic_ids.by_name.get(partition.tp.topic)
        if known not in {None, partition.source_topic_id}:
            self._anew = True  # the session still has the topic that had the name before
        if partition.source_topic_id:
            self._topic_ids.put(partition.tp.topic, partition.source_topic_id)
        self._look_again_where_away([partition])
        self.touch(partition)

    def remove(self, tp: TopicPartition) -> None:
        """Read it no longer."""
        partition = self._places.pop(tp, None)
        if partition is not None:
            self._note_heard([partition])
            self._changed[tp] = None
            self._wake.set()

    def touch(self, partition: BatchPartition) -> None:
        """Its position changed, or whether it is to be read."""
        self._changed[partition.tp] = None
        self._wake.set()

    def close(self) -> None:
        """Stop reading."""
        self._task.cancel()

    # -- asking ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._something_to_read()  # a broker that leads nothing (any more) isn't asked
            connection = await self._flow.source.connection(self.node, "backlog" if self.backlog else "fetch")
            if connection is None:
                self._back_to_leaders()
                self._flow.source.refresh()
                await asyncio.sleep(_PAUSE)
                continue
            self._connected_at = time.monotonic()
            self._look_again_where_away(list(self._places.values()))
            try:
                await self._read_from(connection)
            except StreamError as error:
                log.debug("source broker %d: %r", self.node, error)
                self._back_to_leaders()
                self._note_heard(self._places.values())
                self._flow.source.refresh()
                await asyncio.sleep(_PAUSE)
            self._forget_session()

    def _note_heard(self, partitions: Iterable[BatchPartition]) -> None:
        """These are read on by another connection, if at all."""
        if self._heard_at is None:
            return
        for partition in partitions:
            partition.heard(self._heard_at)

    def _look_again_where_away(self, partitions: Iterable[BatchPartition]) -> None:
        """Have both sides of these looked at again where the present connection was made long after they were read by
        another one.
        """
        for partition in partitions:
            heard_at = self._connected_at if partition.heard_at is None else partition.heard_at
            away = self._connected_at - heard_at
            if away > _AWAY_SECONDS and not partition.filling:  # of one that is being aligned nothing was read
                reason = f"the source's broker {self.node} was away for {away:.1f} s"
                self._flow.halt_partition(partition, IncidentKind.SOURCE_AWAY, reason)

    def _read_elsewhere(self, partition: BatchPartition, replica: int | None) -> None:
        """Read a partition from a replica near this worker; None: from its leader."""
        partition.prefer(replica)
        self._flow.moving.add(partition)

    def _back_to_leaders(self) -> None:
        """This broker can't be read from: what was read here as from a near replica is read from its leader."""
        for partition in self._places.values():
            if partition.preferred == self.node:
                self._read_elsewhere(partition, None)

    async def _read_from(self, connection: Connection) -> None:
        """Read for as long as the connection holds and the session is known."""
        asked: asyncio.Future[FetchReply] | None = None
        asked_at = 0.0
        try:
            while True:
                if asked is None:
                    await self._something_to_read()
                    asked, asked_at = self._ask(connection), time.monotonic()
                answer = await asked
                asked, pace = None, self._pace()
                self._heard_at = time.monotonic()
                self._flow.fetches += 1
                self._flow.fetched_bytes += answer.size
                if answer.error in _SESSION_LOST:
                    self._forget_session()
                    continue
                if answer.error:
                    raise for_code(answer.error)
                begun = time.monotonic()
                found = self._sort(answer.partitions)
                self._follow_session(answer)
                small = answer.size < _SMALL_ANSWER
                held_up = self._held_up(answer)
                try:
                    if not (small or held_up) and self._flow.room > 0 and self.reads:
                        asked, asked_at = self._ask(connection), time.monotonic()
                finally:  # also where the connection is gone: the positions have moved on
                    if found:
                        self._admit(found)
                    self._flow.busy_seconds += time.monotonic() - begun
                if held_up:
                    await asyncio.sleep(held_up)
                elif small:
                    await asyncio.sleep(max(0.0, asked_at + pace - time.monotonic()))
        finally:
            if asked is not None:
                asked.cancel()

    def _pace(self) -> float:
        """Seconds between two requests while answers are small, by what became of the last answer."""
        worked, produced = time.thread_time(), self._flow.produces
        cost, sent = worked - self._worked, produced - self._produced
        self._worked, self._produced = worked, produced
        return min(_PACE, cost / _SMALL_SHARE / max(1, sent))

    async def _something_to_read(self) -> None:
        while True:
            while self._flow.room <= 0:
                self._flow.room_made.clear()
                self._flow.make_room()
                await self._flow.room_made.wait()
            if self.reads:
                return
            self._wake.clear()
            await self._wake.wait()

    def _held_up(self, answer: FetchReply) -> float:
        """Seconds for which nothing more is to be asked for: by a quota of the broker's, or for the target's users."""
        quota = answer.throttle_ms / 1000
        self._flow.throttled_seconds += quota
        return max(quota, self._flow.catch_up.take(answer.size) if self.backlog else 0.0)

    def _ask(self, connection: Connection) -> asyncio.Future[FetchReply]:
        """Send a request for what is to be read now."""
        if self._anew:
            self._forget_session()
        fresh = self._epoch == FIRST_EPOCH
        # a quarter: one answer is being written while the next is read, each once as it comes and once as it stays
        most = max(_SMALLEST_PARTITION, min(_LARGEST_FETCH, self._flow.buffer_bytes // 4))
        if self.backlog and (limit := self._flow.catch_up.most_at_once) is not None:
            most = min(most, limit)
        share = max(_SMALLEST_PARTITION, min(most, self._flow.buffer_bytes // max(1, len(self._places))))
        places: dict[str, list[FetchPlace]] = {}
        forgotten: dict[str, list[int]] = {}
        asleep = False
        for tp in self._places if fresh else self._changed:
            partition = self._places.get(tp)
            if partition is not None and partition.fetchable:
                place = FetchPlace(tp.partition, partition.next_fetch, share, partition.source_epochs.newest)
                places.setdefault(tp.topic, []).append(place)
                self._asked[tp] = (partition, partition.next_fetch)
            else:
                asleep = asleep or (partition is not None and partition.asleep)
                if self._asked.pop(tp, None) is not None:
                    forgotten.setdefault(tp.topic, []).append(tp.partition)
        self._changed.clear()
        self._wake.clear()
        request = Fetch(
            places,
            forgotten={} if fresh else forgotten,
            session=self._session,
            epoch=self._epoch,
            committed=self._flow.committed,
            max_wait_ms=_SHORT_WAIT_MS if asleep else _WAIT_MS,
            max_bytes=most,
            rack=self._rack,
            topic_ids=self._topic_ids,
        )
        return connection.send(request)

    def _follow_session(self, answer: FetchReply) -> None:
        if answer.session == 0:  # the broker keeps none: each request says everything
            self._forget_session()
        else:
            self._session = answer.session
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def _forget_session(self) -> None:
        self._session, self._epoch = 0, FIRST_EPOCH
        self._anew = False
        self._asked.clear()

    # -- what came ---------------------------------------------------------------------------------

    def _sort(self, answers: Iterable[Fetched]) -> list[Read]:
        """Batches by partition; the positions move on."""
        found: list[Read] = []
        for each in answers:
            tp = TopicPartition(each.topic, each.partition)
            partition = self._places.get(tp)
            if partition is None or partition.incident is not None or partition.held:
                continue
            if self._asked.get(tp) != (partition, partition.next_fetch):
                continue  # answered to an older request
            if each.error or each.diverging is not None:
                self._failed(partition, each)
                continue
            end = each.stable_offset if self._flow.committed else each.high_watermark
            if each.preferred_replica not in {-1, self.node}:
                self._read_elsewhere(partition, each.preferred_replica)
            if not each.records:
                self._note_end(partition, end, 0.0)
                continue
            batches, damaged = scan(each.records)
            if not batches:
                if damaged is not None:
                    self._damaged(partition, damaged)
                continue
            last = batches[-1]
            begin, next_fetch = partition.next_fetch, last.last_offset + 1
            if next_fetch <= begin:
                continue  # nothing but what came before
            partition.fetched(batches, next_fetch)
            self._note_end(partition, end, len(each.records) / (next_fetch - begin))
            self._changed[tp] = None
            found.append(Read(partition, begin, batches, tuple(each.aborted)))
        return found

    def _note_end(self, partition: BatchPartition, end: int, record_bytes: float) -> None:
        """The source's log ends there: one that fell behind, or has caught up, is read by the other fetcher.

        `record_bytes`: about how large its records are.
        """
        changed, grown = partition.seen_end(end)
        if self.backlog:
            self._flow.catch_up.grew(grown * record_bytes)
        if changed and self._flow.catch_up.limits:
            self._flow.moving.add(partition)

    def _failed(self, partition: BatchPartition, each: Fetched) -> None:
        name = describe(error_class(each.error))
        if partition.preferred == self.node:
            self._read_elsewhere(partition, None)  # a follower may know less: its leader decides
        elif each.diverging is not None:
            self._diverged(partition, *each.diverging)
        elif each.error == _OUT_OF_RANGE:
            where = f"offset {partition.next_fetch} of {partition.tp}"
            reason = f"the source has no {where} (its log starts at {each.log_start})"
            self._flow.halt_partition(partition, IncidentKind.OUT_OF_RANGE, reason)
        elif each.error in ANOTHER_TOPIC:
            why = f"the source's broker {self.node} has no {partition.tp} that is the topic mirrored: it answers {name}"
            self._flow.source.refresh()
            self._flow.halt_partition(partition, IncidentKind.TOPIC_GONE, why)
        elif each.error in _UNREADABLE:
            remedy = f"Grant drkit's principal READ on {partition.tp.topic} on the source. {TRIED_AGAIN}"
            self._flow.halt_partition(partition, IncidentKind.UNREADABLE, f"the source can't be read: {name}", remedy)
        else:
            why = f"the source's broker {self.node} answers {name} to a read at source offset {partition.next_fetch}"
            self._flow.notice(Notice(partition.tp, NOT_MOVING, why, ""))
            if each.error == _CORRUPT and partition.damaged_read() >= _DAMAGED_READS:
                reason = f"the source can't be read from offset {partition.next_fetch} on: {name}"
                self._flow.halt_partition(partition, IncidentKind.UNREADABLE, reason)
            self._flow.source.refresh()
            self._rest(partition)

    def _diverged(self, partition: BatchPartition, epoch: int, end: int) -> None:
        """The broker's log isn't the one that was read: there, what it knows of the epoch read last ends at `end`."""
        reason = (
            f"{partition.tp} on {self._flow.source.alias} isn't the log that was read up to offset "
            f"{partition.next_fetch} in leader epoch {partition.source_epochs.newest}: its epoch {epoch} ends at {end}"
        )
        self._flow.halt_partition(partition, IncidentKind.DIVERGED, reason)

    def _rest(self, partition: BatchPartition) -> None:
        """Leave a partition alone for a moment; the others continue."""
        partition.rest(True)
        asyncio.get_running_loop().call_later(_PAUSE, partition.rest, False)

    def _damaged(self, partition: BatchPartition, offset: int) -> None:
        """A batch that doesn't match its checksum: fetched again, the network may have damaged it."""
        self._rest(partition)
        if partition.damaged_read() >= _DAMAGED_READS:
            reason = f"the batch at source offset {offset} of {partition.tp} does not match its checksum"
            self._flow.halt_partition(partition, IncidentKind.UNREADABLE, reason)
