"""Reads for the batch engine: one fetcher per source broker, in a fetch session, one request ahead.

A fetch session (KIP-227) lets a request name only the partitions whose position changed, and the
answer only those that have something: ten thousand quiet partitions cost nothing. The next request is sent as soon as
the batch headers of a large answer are read; its batches are admitted while the broker works. The records of small
answers are sent first, and the next request waits a moment (`_PACE`): at the broker, which answers once as much has
come as the stream brings in that moment.

An answer counts for a partition only if the request asked for the partition's current start, and from its next
offset: a restarted partition continues elsewhere, and the older answer would leave a gap that looks like a hole of the
source.

Partitions whose mapping rows are being stored are not read meanwhile; the others continue.

A broker compares leader epochs with each Fetch, but the controllers number them. A cluster that was restored as a whole
to a copy of its disks gives out the same numbers again, for other records. So where a broker was away for so long that
it may have been restarted, both sides are compared before more is read from it.

Where a backlog is copied below full speed (`drkit.mirror.engine.pacing.catch_up_rate`), a second fetcher reads the
partitions that are behind, so that the others don't wait for them. It has a connection of its own, so a partition moves
from one to the other once that is made and the first one's broker has answered since: between the last answer there and
the first one here it can't have been restarted, however long this worker had no room to ask.

In a session a broker lets partitions take turns. Where many are behind, each has its turn after all the others, however
long these take. One before which others come again and again doesn't wait for its turn, nor does one of which an answer
brings nothing though it has room: that stands still.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from aiokafka.errors import for_code

from drkit.kafka.admin.admin_connection import describe, error_class
from drkit.kafka.client.connection import Connection
from drkit.kafka.client.data_client import StreamError
from drkit.kafka.protocol.coalescing import CoalescedRun, Found, scan
from drkit.kafka.protocol.data_requests import (
    CORRUPT_MESSAGE,
    FIRST_EPOCH,
    OFFSET_OUT_OF_RANGE,
    TOPIC_DENIED,
    Fetch,
    Fetched,
    FetchPlace,
    FetchReply,
    TopicIds,
)
from drkit.mirror.engine.engine_state import EngineState, ended_by
from drkit.mirror.engine.interface import (
    ANOTHER_TOPIC,
    NOT_MOVING,
    TRIED_AGAIN,
    TURN_BYTES,
    TURN_SECONDS,
    IncidentKind,
    Notice,
)
from drkit.mirror.engine.partition_state import BatchPartition
from drkit.model.topology import TopicPartition

log = logging.getLogger(__name__)

_LARGEST_FETCH = 48 * 1024 * 1024  # below what brokers give by default (fetch.max.bytes, 55 MiB)
_WAIT_MS = 500
_SHORT_WAIT_MS = 20
_PAUSE = 0.2
_SMALL_ANSWER = 32 * 1024
_PACE = 0.005
_SMALL_SHARE = 0.17
"""While answers are small, requests are so far apart that they take this share of a core, but at most `_PACE` seconds.
Otherwise a steady stream would be requested record by record, each at the price of a request on both sides. The first
record after a rest is never delayed. Where an answer was sent in several requests (batches of one partition that can't
be coalesced), waiting saved none of them, so the pace is divided by their number."""
_BROKER_LOOKS = 1_000
"""With each append a broker looks at all partitions of a waiting request (Kafka's `DelayedFetch`). Where that would be
more looks for an answer than so many, the request is sent after the moment instead."""
_RATE_SECONDS = 0.02
"""The bytes a second of a stream are a mean that forgets in this time."""
_AWAY_SECONDS = 1.0
"""A broker whose last answer is at most this old when it is connected again was not restarted in between."""
_NEVER_HEARD_SECONDS = 5.0
"""The same since both sides were compared, where nothing was read yet: many are compared before the first is read. A
broker that is given another disk is away for longer."""
_DAMAGED_READS = 3
_PASSED_OVER = 2
"""So often may all the others have their turn before one: without a session, a topic's partitions come together."""
_FULL_ANSWER = 512 * 1024
"""A smaller answer, of less than half of what was asked for, holds something of each partition that has records. Not
where it holds records of one alone that has more: before Kafka 4.2 a broker reads one partition of its remote storage a
request (KAFKA-14915)."""
_LAST_EPOCH = 2**31 - 1

_SESSION_LOST = frozenset({70, 71, 106})


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
        flow: state shared within the engine.
        node: the broker.
        admit: takes the read batches.
        rack: this reader's rack.
        backlog: read the partitions that are behind, as fast as `flow.catch_up` allows.
    """

    def __init__(self, flow: EngineState, node: int, admit: Admit, *, rack: str = "", backlog: bool = False) -> None:
        self.node = node
        self.backlog = backlog
        self._flow = flow
        self._admit = admit
        self._rack = rack
        self._places: dict[TopicPartition, BatchPartition] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._asked: dict[TopicPartition, tuple[BatchPartition, int]] = {}  # the session's partitions
        self._session = 0
        self._epoch = FIRST_EPOCH
        self._anew = False
        self._heard_at: float | None = None  # the last answer
        self._connected_at: float | None = None  # when its connection was made; None: it has none
        self._expects = False
        self._topic_ids = TopicIds()  # of all topics of the session
        self._worked = 0.0
        self._produced = 0
        self._rate = 0.0  # bytes a second of the records that come
        self._round, self._most = 0, 0  # how often each could have had its turn; bytes asked for
        self._delivered: set[TopicPartition] = set()  # in this round and session
        self._delivered_at = 0.0  # the last records, or the end of a wait for a limit
        self._waits_for_room = False
        self._least, self._longest_ms = 1, _WAIT_MS  # of the next request: bytes of its answer, wait for them
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def failure(self) -> BaseException | None:
        """The defect that ended it, or None. One that was cancelled by anything but `close` reads nothing any more."""
        return ended_by(self._task)

    @property
    def reads(self) -> bool:
        """Whether there is a partition to read now."""
        return any(partition.fetchable for partition in self._places.values())

    def takes_turns(self, partition: BatchPartition) -> bool:
        """See `Reader.takes_turns`. May be called from any thread. While nothing is read for want of room, none is
        known to have fallen behind."""
        behind = partition.behind or self._waits_for_room
        if not (behind and partition.fetchable) or self._round - partition.served_in > _PASSED_OVER:
            return False
        moves_at = self._flow.wrote_at if self._waits_for_room else self._delivered_at
        return time.monotonic() - moves_at < TURN_SECONDS

    def can_take_over_from(self, other: Fetcher) -> bool:
        """Whether a partition may move here from another fetcher of the same broker now; this one connects if it
        hasn't yet. Not while the other one's connection is the only witness that the broker wasn't restarted.
        """
        if other.node != self.node or other._connected_at is None:
            return True
        if self._connected_at is None:
            self._expects = True
            self._wake.set()
            return False
        return (other._heard_at or 0.0) >= self._connected_at - _AWAY_SECONDS

    def add(self, partition: BatchPartition) -> None:
        """Start to read a partition that this broker leads."""
        self._expects = False
        self._places[partition.tp] = partition
        known = self._topic_ids.by_name.get(partition.tp.topic)
        if known not in {None, partition.source_topic_id}:
            self._anew = True  # the session still has the topic that had this name before
        if partition.source_topic_id:
            self._topic_ids.put(partition.tp.topic, partition.source_topic_id)
        self._look_again_where_away([partition])
        partition.served(self._round - 1)
        self.touch(partition)

    def remove(self, tp: TopicPartition) -> None:
        """Stop reading it."""
        partition = self._places.pop(tp, None)
        if partition is not None:
            self._note_heard([partition])
            self._changed[tp] = None
            self._wake.set()

    def touch(self, partition: BatchPartition) -> None:
        """Note that its position changed, or whether it should be read."""
        self._changed[partition.tp] = None
        self._wake.set()

    def queue_anew(self, partition: BatchPartition) -> None:
        """See `Reader.queue_anew`."""
        partition.served(max(partition.served_in, self._round - 1))
        self.touch(partition)

    def close(self) -> None:
        """Stop reading."""
        self._task.cancel()

    # -- asking ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._needed()
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
                self._connected_at = None
                log.debug("source broker %d: %r", self.node, error)
                self._back_to_leaders()
                self._note_heard(self._places.values())
                self._flow.source.refresh()
                await asyncio.sleep(_PAUSE)
            self._forget_session()

    def _note_heard(self, partitions: Iterable[BatchPartition]) -> None:
        """Remember when this broker last answered: another connection will read these."""
        if self._heard_at is None:
            return
        for partition in partitions:
            partition.heard(self._heard_at)

    def _look_again_where_away(self, partitions: Iterable[BatchPartition]) -> None:
        """Have both sides of these compared, where the last read was long before the current connection was made."""
        if self._connected_at is None:
            return  # they are looked at once it is
        for partition in partitions:
            heard_at, most = partition.heard_at, _AWAY_SECONDS
            if heard_at is None:  # held since it was started, say
                heard_at, most = partition.looked_at or self._connected_at, _NEVER_HEARD_SECONDS
            away = self._connected_at - heard_at
            if away > most and not partition.filling:  # nothing was read of one that is being aligned
                reason = f"the source's broker {self.node} was away for {away:.1f} s"
                self._flow.halt_partition(partition, IncidentKind.SOURCE_AWAY, reason)

    def _read_elsewhere(self, partition: BatchPartition, replica: int | None) -> None:
        """Read a partition from a replica near this worker; None: from its leader."""
        partition.prefer(replica)
        self._flow.moving.add(partition)

    def _back_to_leaders(self) -> None:
        """Read from their leaders the partitions for which this unreachable broker was the near replica."""
        for partition in self._places.values():
            if partition.preferred == self.node:
                self._read_elsewhere(partition, None)

    async def _read_from(self, connection: Connection) -> None:
        """Read while the connection is up and the broker knows the session."""
        asked: asyncio.Future[FetchReply] | None = None
        asked_at = 0.0
        try:
            while True:
                if asked is None:
                    await self._something_to_read()
                    asked, asked_at = self._ask(connection), time.monotonic()
                answer = await asked
                asked, pace = None, self._pace()
                waited, self._heard_at = time.monotonic() - (self._heard_at or 0.0), time.monotonic()
                self._flow.fetches += 1
                self._flow.fetched_bytes += answer.size
                if answer.error in _SESSION_LOST:
                    self._forget_session()
                    continue
                if answer.error:
                    raise for_code(answer.error)
                begun = time.monotonic()
                found = self._sort(answer.partitions)
                self._end_round_unless_full(answer, found)
                self._follow_session(answer)
                small = answer.size < _SMALL_ANSWER
                held_up = self._held_up(answer)
                try:
                    if not (small or held_up) and self._flow.room > 0 and self.reads:
                        asked, asked_at = self._ask(connection), time.monotonic()
                finally:  # also without the connection: the positions have advanced
                    if found:
                        self._admit(found)
                    self._flow.busy_seconds += time.monotonic() - begun
                if held_up:
                    self._delivered_at = time.monotonic() + held_up
                    await asyncio.sleep(held_up)
                elif small and not self._gathers_there(found, answer, waited, pace):
                    await asyncio.sleep(max(0.0, asked_at + pace - time.monotonic()))
        finally:
            if asked is not None:
                asked.cancel()

    def _pace(self) -> float:
        """Seconds between two requests while answers are small, by how many requests the last answer took."""
        worked, produced = time.thread_time(), self._flow.produces
        cost, sent = worked - self._worked, produced - self._produced
        self._worked, self._produced = worked, produced
        return min(_PACE, cost / _SMALL_SHARE / max(1, sent))

    def _gathers_there(self, found: list[Read], answer: FetchReply, waited: float, pace: float) -> bool:
        """Whether the broker is to wait with the next answer until it has what comes within `pace` seconds; sets the
        next request's wait. `waited`: seconds between the last two answers.
        """
        came = sum([len(each.records) for each in answer.partitions])
        self._rate += (came - self._rate * waited) / max(waited, _RATE_SECONDS)
        if not found:
            return waited >= pace  # it came to rest: the next record is answered at once
        appends = sum([batch.batches if isinstance(batch, CoalescedRun) else 1 for r in found for batch in r.batches])
        if appends * len(self._asked) > _BROKER_LOOKS:
            return False
        self._least, self._longest_ms = max(1, int(self._rate * pace)), max(1, round(pace * 1000))
        return True

    async def _needed(self) -> None:
        """Wait for a partition to read: a broker that leads none isn't connected to."""
        while not (self.reads or self._expects):
            self._wake.clear()
            await self._wake.wait()

    async def _something_to_read(self) -> None:
        while True:
            while self._flow.room <= 0:
                self._flow.room_made.clear()
                self._flow.make_room()
                self._waits_for_room = True
                await self._flow.room_made.wait()
            self._waits_for_room = False
            if self.reads:
                return
            self._wake.clear()
            await self._wake.wait()

    def _held_up(self, answer: FetchReply) -> float:
        """Seconds to wait before the next request, for a broker's quota or for the target's users."""
        quota = answer.throttle_ms / 1000
        self._flow.throttled_seconds += quota
        return max(quota, self._flow.catch_up.take(answer.size) if self.backlog else 0.0)

    def _ask(self, connection: Connection) -> asyncio.Future[FetchReply]:
        """Send a request for the partitions to be read now."""
        if self._anew:
            self._forget_session()
        fresh = self._epoch == FIRST_EPOCH
        # a quarter: one answer is written while the next is read, each once while arriving and once as kept
        most = max(TURN_BYTES, min(_LARGEST_FETCH, self._flow.buffer_bytes // 4))
        if self.backlog and (limit := self._flow.catch_up.most_at_once) is not None:
            most = min(most, limit)
        self._most = most
        share = max(TURN_BYTES, min(most, self._flow.buffer_bytes // max(1, len(self._places))))
        places: dict[str, list[FetchPlace]] = {}
        forgotten: dict[str, list[int]] = {}
        asleep = False
        for tp in self._places if fresh else self._changed:
            partition = self._places.get(tp)
            if partition is not None and partition.fetchable:
                place = FetchPlace(tp.partition, partition.fetch_from, share, partition.source_batches.newest_epoch)
                places.setdefault(tp.topic, []).append(place)
                self._asked[tp] = (partition, partition.fetch_from)
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
            max_wait_ms=min(_SHORT_WAIT_MS, self._longest_ms) if asleep else self._longest_ms,
            min_bytes=self._least,
            max_bytes=most,
            rack=self._rack,
            topic_ids=self._topic_ids,
        )
        self._least, self._longest_ms = 1, _WAIT_MS
        return connection.send(request)

    def _follow_session(self, answer: FetchReply) -> None:
        if answer.session == 0:  # the broker keeps no session: each request is complete
            self._forget_session()
            self._ask_last_for(TopicPartition(each.topic, each.partition) for each in answer.partitions if each.records)
        else:
            self._session = answer.session
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def _ask_last_for(self, delivered: Iterable[TopicPartition]) -> None:
        """Ask for these, and for their topics (a request names each topic once), behind the others: a broker fills its
        answer in the order of the request, and only in a session it lets partitions take turns."""
        last = set(delivered)
        if last:
            topics = {tp.topic for tp in last}
            order = sorted(self._places, key=lambda tp: (tp.topic in topics, tp in last))
            self._places = {tp: self._places[tp] for tp in order}

    def _forget_session(self) -> None:
        if self._session:  # the next one may begin with what was delivered in this one, which passes over nobody
            self._delivered.clear()
        self._session, self._epoch = 0, FIRST_EPOCH
        self._anew = False
        self._asked.clear()

    # -- what came ---------------------------------------------------------------------------------

    def _sort(self, answers: Iterable[Fetched]) -> list[Read]:
        """Sort batches by partition and advance the positions."""
        found: list[Read] = []
        for each in answers:
            tp = TopicPartition(each.topic, each.partition)
            partition = self._places.get(tp)
            if partition is None or partition.incident is not None or partition.held:
                continue
            if self._asked.get(tp) != (partition, partition.fetch_from):
                continue  # an answer to an older request
            if each.error or each.diverging is not None:
                self._failed(partition, each)
                continue
            end = each.stable_offset if self._flow.committed else each.high_watermark
            if self._flow.committed:
                partition.seen_stable(end, each.high_watermark)
            if each.preferred_replica not in {-1, self.node}:
                self._read_elsewhere(partition, each.preferred_replica)
            if not each.records:
                self._note_end(partition, end, 0.0)
                continue
            read = self._read(partition, each, end)
            if read is not None:
                found.append(read)
        return found

    def _read(self, partition: BatchPartition, each: Fetched, end: int) -> Read | None:
        """The batches of one partition, of a source that ends there; its position advances. None: nothing new."""
        batches, damaged = scan(each.records)
        if not batches:
            if damaged is not None:
                self._damaged(partition, damaged)
            return None
        if batches[0].base_offset < partition.fetch_from and not self._begins_below(partition, each, batches[0]):
            return None
        begin, next_fetch = partition.next_fetch, batches[-1].last_offset + 1
        if next_fetch <= begin:
            if next_fetch > partition.fetch_from:
                self._ask_from(partition, next_fetch, at_batch_end=True)
            return None
        partition.fetched(batches, next_fetch)
        self._had_its_turn(partition)
        self._note_end(partition, end, len(each.records) / (next_fetch - begin))
        self._changed[partition.tp] = None
        return Read(partition, begin, batches, tuple(each.aborted))

    def _had_its_turn(self, partition: BatchPartition) -> None:
        """Records of it came. In the next session, too, its turn is after those of the others."""
        if partition.tp in self._delivered:
            self._end_round()
        self._delivered.add(partition.tp)
        partition.served(self._round)
        self._delivered_at = time.monotonic()
        self._places[partition.tp] = self._places.pop(partition.tp)

    def _end_round_unless_full(self, answer: FetchReply, found: Sequence[Read]) -> None:
        """Whatever an answer with room doesn't bring has nothing, or stands still. By its quota a broker empties it."""
        one_at_a_time = len(found) == 1 and found[0].partition.behind
        if answer.size < min(_FULL_ANSWER, self._most // 2) and not (answer.throttle_ms or one_at_a_time):
            self._end_round()

    def _end_round(self) -> None:
        """Each could have had its turn."""
        self._round += 1
        self._delivered.clear()

    def _begins_below(self, partition: BatchPartition, each: Fetched, first: Found) -> bool:
        """Whether a batch may begin below the offset that was asked for. No checksum covers a base offset; where it is
        too low, the records would get the offsets of others. So none does where a batch has ended just below; else it
        is asked for from its begin on, so that it comes with what is there before it."""
        if partition.at_batch_end:
            self._damaged(partition, first.base_offset)
            return False
        if first.base_offset < each.log_start:
            return True  # the records below it are deleted
        self._ask_from(partition, first.base_offset, at_batch_end=False)
        return False

    def _ask_from(self, partition: BatchPartition, offset: int, *, at_batch_end: bool) -> None:
        partition.ask_from(offset, at_batch_end=at_batch_end)
        self._changed[partition.tp] = None

    def _note_end(self, partition: BatchPartition, end: int, record_bytes: float) -> None:
        """Note the source's log end: the other fetcher reads a partition that fell behind, or has caught up.

        `record_bytes`: the approximate size of its records.
        """
        changed, grown = partition.seen_end(end)
        if changed and partition.behind and partition.served_in < self._round:
            partition.served(self._round - 1)  # before, it had nothing to be delivered
        if self.backlog:
            self._flow.catch_up.grew(grown * record_bytes)
        if changed and self._flow.catch_up.limits:
            self._flow.moving.add(partition)

    def _failed(self, partition: BatchPartition, each: Fetched) -> None:
        name = describe(error_class(each.error))
        if partition.preferred == self.node:
            self._read_elsewhere(partition, None)  # a follower may know less: ask the leader
        elif each.diverging is not None:
            self._diverged(partition, *each.diverging)
        elif each.error == OFFSET_OUT_OF_RANGE:
            where = f"offset {partition.next_fetch} of {partition.tp}"
            reason = f"the source has no {where} (its log starts at {each.log_start})"
            self._flow.halt_partition(partition, IncidentKind.OUT_OF_RANGE, reason)
        elif each.error in ANOTHER_TOPIC:
            why = f"the source's broker {self.node} lacks the mirrored topic of {partition.tp}: it answers {name}"
            self._flow.source.refresh()
            self._flow.halt_partition(partition, IncidentKind.TOPIC_GONE, why)
        elif each.error == TOPIC_DENIED:
            remedy = f"Grant drkit's principal READ on {partition.tp.topic} on the source. {TRIED_AGAIN}"
            self._flow.halt_partition(partition, IncidentKind.UNREADABLE, f"the source can't be read: {name}", remedy)
        else:
            why = f"the source's broker {self.node} answers {name} to a read at source offset {partition.next_fetch}"
            self._flow.notice(Notice(partition.tp, NOT_MOVING, why, ""))
            if each.error == CORRUPT_MESSAGE and partition.damaged_read() >= _DAMAGED_READS:
                reason = f"the source can't be read from offset {partition.next_fetch} on: {name}"
                self._flow.halt_partition(partition, IncidentKind.UNREADABLE, reason)
            self._flow.source.refresh()
            self._rest(partition)

    def _diverged(self, partition: BatchPartition, epoch: int, end: int) -> None:
        """The broker's log differs from the one that was read: it diverges from the last epoch read at `end`."""
        reason = (
            f"{partition.tp} on {self._flow.source.alias} is not the log that was read up to offset "
            f"{partition.next_fetch} in leader epoch {partition.source_batches.newest_epoch}: its epoch {epoch} ends "
            f"at {end}"
        )
        self._flow.halt_partition(partition, IncidentKind.DIVERGED, reason)

    def _rest(self, partition: BatchPartition) -> None:
        """Don't read a partition for a moment; the others continue."""
        partition.rest(True)
        asyncio.get_running_loop().call_later(_PAUSE, partition.rest, False)

    def _damaged(self, partition: BatchPartition, offset: int) -> None:
        """Fetch a damaged batch again: the network may have damaged it."""
        self._rest(partition)
        if partition.damaged_read() >= _DAMAGED_READS:
            reason = f"the batch at source offset {offset} of {partition.tp} does not match its checksum, or its place"
            self._flow.halt_partition(partition, IncidentKind.UNREADABLE, reason)
