"""The batch engine's state of one partition: the queue between reading and writing.

Admission gives every run its position on the target before anything is sent: sequence number, target
offset, mapping row where the delta changes. In preserve mode a hole of the source (a marker, aborted or
compacted records) is matched by as many markers on the target, so that the delta stays. Too large a hole
isn't (each marker is an append); then the delta changes and a row says so.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from drkit.kafka.protocol.coalescing import Found
from drkit.kafka.protocol.data_requests import Payload, id_bytes
from drkit.kafka.protocol.record_batch import CODEC_MASK, header, next_sequence, placed_digest
from drkit.mirror.engine.batch_splitter import Hole, Piece, RecordRun, Rules
from drkit.mirror.engine.inflight_window import InFlight, Mark, SharedInFlight
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionStart, StableEnd
from drkit.mirror.engine.range_digests import RangeDigests
from drkit.mirror.engine.source_batches import SourceBatches
from drkit.model.digests import RangeDigest
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition

LARGEST_MATCH = 1_000
"""Markers don't match a hole of more offsets than this."""

FORGOTTEN_MS = 12 * 3_600_000
"""Brokers forget producers by the timestamps of their last records, after 24 hours by default; this is half of that."""


class ProducerMemory:
    """For how long the target's brokers surely remember a producer, by the stamp of its newest record: for half of
    their `producer.id.expiration.ms`, `FORGOTTEN_MS` at most, and as long as they haven't told it. Threads share it.
    """

    def __init__(self) -> None:
        self.ms = FORGOTTEN_MS

    def told(self, expiration: timedelta) -> None:
        """What the brokers' setting is now, the shortest of all that tell it."""
        self.ms = min(FORGOTTEN_MS, int(expiration / timedelta(milliseconds=2)))


_MARKER_BURST = 20_000.0
_MARKERS_A_SECOND = 2_000.0
_REST_SECONDS = 1.0
"""This long after its last acknowledgement a partition's end is checked again, where the producer may be forgotten."""

_ABOUT_TARGET = frozenset(
    {IncidentKind.UNCERTAIN, IncidentKind.MISPLACED, IncidentKind.REJECTED, IncidentKind.TOPIC_GONE}
)
"""After one of these no acknowledgement counts any more."""


class Reader(Protocol):
    """Fetches a partition: the fetcher of the broker that reads it."""

    def touch(self, partition: BatchPartition) -> None:
        """Note that its position changed, or whether it should be read."""

    def takes_turns(self, partition: BatchPartition) -> bool:
        """Whether a partition of which the source has more waits for others to be delivered, which are."""

    def queue_anew(self, partition: BatchPartition) -> None:
        """Note that it is read again, after a time in which it wasn't asked for: its turn comes after the others'."""

    def remove(self, tp: TopicPartition) -> None:
        """Stop fetching it."""


class Writer(Protocol):
    """Produces a partition: the sender of the broker that leads it on the target."""

    stuck: bool

    def offer(self, partition: BatchPartition) -> None:
        """Note that it has something to send."""

    def pump(self) -> None:
        """Send whatever can be sent now."""

    def withdraw(self, partition: BatchPartition) -> None:
        """Stop producing it."""

    def takes_turns(self, partition: BatchPartition) -> bool:
        """Whether it waits for others to be written, which are."""


class Append:
    """One batch to be produced.

    `stamp`: its newest timestamp, by which the broker forgets the producer. `gated`: wait until the rows of its
    admission are durable. `digest`: with its offset, where it is an unchanged source batch and range digests are
    kept; then `crc`: that batch's checksum on the source. `codec`: the batch's compression codec.
    """

    __slots__ = ("codec", "count", "crc", "digest", "gated", "mark", "payload", "size", "source_first", "stamp")

    def __init__(
        self,
        payload: Payload,
        count: int,
        mark: Mark,
        source_first: int,
        stamp: int,
        codec: int = 0,
    ) -> None:
        self.payload = payload
        self.count = count
        self.mark = mark
        self.size = len(payload[0]) + len(payload[1])
        self.source_first = source_first
        self.stamp = stamp
        self.codec = codec
        self.digest: int | None = None
        self.crc = 0
        self.gated = False


class Markers:
    """Markers to be written for a hole. `gated`: like `Append`'s. `begun`: the first one is written."""

    __slots__ = ("begun", "count", "gated", "mark", "size")

    def __init__(self, count: int, mark: Mark, *, gated: bool = False) -> None:
        self.count = count
        self.begun = False
        self.gated = gated
        self.mark = mark
        self.size = 100 * count


class BatchPartition:
    """One partition since it was started; a restart makes a new object, so late answers can't interfere.

    Fetcher, admission and sender change its state only with the methods here:

        read      `read_by` → `fetched` → `admit` (→ `rows_kept`) → `take_append`, `take_markers` → `acknowledge`
        not read  `hold`, `rest`, `fill`, `put_aside`, and while rows are being stored
        stopped   `halt` or `halt_after`, reported by `settled`; `forget`. Not reported while rows are being stored

    Attributes for others to read:
    `reader`, `writer`: its current fetcher and sender, or None.
    `next_fetch`: the source offset to fetch next; `fetch_from`: the one to ask for, below `next_fetch` while a
    batch is asked for from its begin; `at_batch_end`: a batch ends right below that, so no other one begins there.
    `next_admit`: the source offset that the next admitted batches must begin at. `next_source`, `next_target`: of the
    next admitted record. `outstanding`: requests in flight.
    `incident`: why it is halted; reported to the runtime once nothing is outstanding and no row is being stored.
    `ending`: why it will halt once its queue is written. `deviation`: why offsets differ from here on, until
    reported. `heard_at`: when the broker that read it before last answered (monotonic seconds);
    `looked_at`: when both sides were compared before it was started.
    `held`: an operator paused it. `resting`: not read for a moment after a failed read.
    `filling`: its offsets are being aligned, so appends are filler. `keeping`: rows are being made
    durable, nothing that needs them is sent. `aside`: its target broker doesn't answer, so it isn't read.
    `served_in`: the round of its fetcher in which records of it came last.
    `wanted`: it still belongs to the engine. `behind`: the source held more than was read at the last look, or there
    was none yet.
    `most`: the target topic's limit for a batch; `limit`: what it accepted lately, where that is less.
    `pending_bytes`: queued or in flight. `apart`: the last request must be answered before another is sent.
    `ranges`: folds acknowledged appends into range digests, where they are kept. `shared`: its target has other
    writers, so no offset is expected and no row is kept; `target_leader_epoch`, `claim`: like `PartitionStart`'s.
    `source_topic_id`, `target_topic_id`: Kafka's 16 bytes, or empty. `stable`: the source's last stable offset as the
    last answer says it, if one does, and since when (monotonic seconds) a transaction is open there (None: none is).
    """

    __slots__ = (
        "_budget",
        "_budget_at",
        "_dense_from",
        "_end_checked_on",
        "_end_known_at",
        "_leaderless_since",
        "_memory",
        "_newest",
        "_sequence",
        "_source_end",
        "_topic_ids",
        "apart",
        "aside",
        "at_batch_end",
        "behind",
        "claim",
        "damaged",
        "delta",
        "deviation",
        "ending",
        "epoch",
        "fetch_from",
        "filling",
        "heard_at",
        "held",
        "incident",
        "keeping",
        "limit",
        "looked_at",
        "most",
        "next_admit",
        "next_fetch",
        "next_source",
        "next_target",
        "outstanding",
        "pending_bytes",
        "preferred",
        "preserve",
        "producer_id",
        "queue",
        "queued_bytes",
        "ranges",
        "reader",
        "resting",
        "served_in",
        "shared",
        "source_batches",
        "source_topic_id",
        "stable",
        "target_leader_epoch",
        "target_topic",
        "target_topic_id",
        "tp",
        "wanted",
        "window",
        "writer",
    )

    def __init__(
        self,
        start: PartitionStart,
        *,
        matches: bool = True,
        digests: deque[RangeDigest] | None = None,
        memory: ProducerMemory | None = None,
    ) -> None:
        """`matches`: whether markers may match holes; `digests`: takes range digests of ended ranges; `memory`: of the
        target's brokers, None: nobody asks them."""
        self.tp = start.tp
        self.target_topic = start.target_topic
        self._topic_ids = start.source_topic_id, start.target_topic_id
        self.source_topic_id, self.target_topic_id = map(id_bytes, self._topic_ids)
        self.epoch = start.epoch
        self.claim = start.claim
        self.limit = self.most = start.max_message_bytes
        self.delta = start.delta
        self.preserve = start.preserve and matches
        self.producer_id = start.producer_id
        self._sequence = start.sequence
        self.next_fetch = self.fetch_from = self.next_admit = self.next_source = start.source_offset
        self.at_batch_end = False
        self.stable: StableEnd | None = None
        self.next_target = start.target_offset
        self._dense_from = start.dense_from
        self.shared = start.shared
        self.target_leader_epoch = start.target_leader_epoch
        window = SharedInFlight if start.shared else InFlight
        self.window: InFlight = window(start.source_offset, start.target_offset)
        self.queue: deque[Append | Markers] = deque()
        self.queued_bytes = self.pending_bytes = self.outstanding = 0
        self.keeping = self.apart = False
        self._memory = memory or ProducerMemory()
        self._newest = 0
        self._end_checked_on: object | None = None
        self._end_known_at = 0.0
        self._leaderless_since: float | None = None
        self.source_batches = SourceBatches(start.leader_epoch)
        self._source_end: int | None = None
        self.damaged = 0
        self.looked_at = start.looked_at
        self.heard_at: float | None = None
        self.preferred: int | None = None
        self.deviation: str | None = None
        self.ending: Incident | None = None
        self.incident: Incident | None = None
        self.held = self.resting = self.aside = False
        self.filling = start.fill_to is not None
        self.wanted = self.behind = True
        self.ranges = None if digests is None else RangeDigests(start.tp, start.epoch, digests)
        self.served_in = 0
        self.reader: Reader | None = None
        self.writer: Writer | None = None
        self._budget = _MARKER_BURST
        self._budget_at = time.monotonic()

    # -- reading -----------------------------------------------------------------------------------

    @property
    def fetchable(self) -> bool:
        """Whether it should be read now."""
        stopped = self.incident or self.ending or not self.wanted
        return not (stopped or self.held or self.keeping or self.resting or self.filling or self.aside)

    @property
    def asleep(self) -> bool:
        """Whether it isn't read for a reason that will soon pass."""
        return self.keeping or self.resting or self.filling

    @property
    def busy(self) -> bool:
        """Whether something waits to be written or answered, or stops it."""
        return bool(self.outstanding or self.queue or self.asleep or self.incident or self.ending)

    @property
    def active(self) -> bool:
        """Whether it belongs to the engine and isn't halted."""
        return self.wanted and self.incident is None

    def read_by(self, reader: Reader | None) -> None:
        """Set the fetcher; None: nobody reads it."""
        self.reader = reader

    @property
    def takes_turns(self) -> bool:
        """Whether it waits for its turn among others that move: to be written, or else to be read."""
        if self.queue:
            return self.outstanding == 0 and self.writer is not None and self.writer.takes_turns(self)
        return self.reader is not None and self.reader.takes_turns(self)

    def served(self, fetch_round: int) -> None:
        """Note that records of it came in this round of its fetcher, or that it counts as if."""
        self.served_in = fetch_round

    def heard(self, at: float) -> None:
        """Note when the broker that read it last answered; another connection takes over."""
        self.heard_at = at

    def prefer(self, replica: int | None) -> None:
        """Read it from a replica near this worker; None: from its leader."""
        self.preferred = replica

    def hold(self, held: bool) -> None:
        """Stop reading it, or continue."""
        if self.held != held:
            self.held = held
            self.stable = None  # nothing is read meanwhile
            self._touch(after_wait=not held)

    def fetched(self, batches: Sequence[Found], next_fetch: int) -> None:
        """Note the read batches; the next ones begin at `next_fetch`."""
        self.damaged = 0  # batches after the good ones are read again
        self.next_fetch = next_fetch
        self.ask_from(next_fetch, at_batch_end=True)
        self.source_batches.note(batches, self.window.position.source_through)

    def ask_from(self, offset: int, *, at_batch_end: bool) -> None:
        """Ask for batches from this offset on; those below `next_fetch` only show whether the others are in place."""
        self.fetch_from, self.at_batch_end = offset, at_batch_end

    def seen_end(self, end: int) -> tuple[bool, int]:
        """Note the source's log end; returns whether `behind` changed, and by how much the log grew."""
        behind = self.next_fetch < end
        changed = behind != self.behind
        grown = 0 if self._source_end is None else max(0, end - self._source_end)
        self.behind, self._source_end = behind, end
        return changed, grown

    def seen_stable(self, offset: int, high_watermark: int) -> None:
        """Note the source's last stable offset: where that is below its high watermark, a transaction is open there."""
        before = self.stable
        if offset >= high_watermark:
            self.stable = StableEnd(offset, None)
        elif before is None or before.open_since is None or before.offset != offset:
            self.stable = StableEnd(offset, time.monotonic())

    def damaged_read(self) -> int:
        """Fetch a damaged batch again (the network may have damaged it). Returns how often it was damaged."""
        self.damaged += 1
        return self.damaged

    def rest(self, resting: bool) -> None:
        """Don't read it for a moment, or continue."""
        self.resting = resting
        self._touch()

    def _touch(self, *, after_wait: bool = False) -> None:
        if self.reader is None:
            return
        if after_wait:
            self.reader.queue_anew(self)
        else:
            self.reader.touch(self)

    # -- admission ---------------------------------------------------------------------------------

    def rules(self, *, committed: bool) -> Rules:
        """How its batches are split."""
        return Rules(committed, self.limit, self._may_match, self.most, self._dense_from)

    def follows(self, begin: int, next_offset: int) -> bool:
        """Whether batches read from `begin` to `next_offset` come next; then they count as taken."""
        if begin != self.next_admit:
            return False
        self.next_admit = next_offset
        return True

    def admit(self, found: Iterable[Piece]) -> tuple[list[OffsetMapping], int, dict[str, int]]:
        """Queue pieces to append. Returns the rows that must be durable first, how many items were queued at the end of
        `queue`, and the number of source batches by reason ("forwarded": unchanged).
        """
        rows: list[OffsetMapping] = []
        before = len(self.queue)
        reasons: dict[str, int] = {}
        for piece in found:
            if isinstance(piece, Hole):
                self._hole(piece.source_next, gated=bool(rows))
                continue
            if not self.shared:
                if self.next_target - piece.source_first != self.delta:
                    self._row(rows, piece.source_first, self.next_target)
                for index, source in piece.gaps:
                    self._row(rows, source, self.next_target + index)
            item = self._append(piece)
            if self.ranges is not None and piece.reason is None:  # now, while the bytes are in the CPU cache
                item.digest = placed_digest(self.next_target - piece.records_count, *item.payload)
                item.crc = piece.crc
            item.gated = bool(rows)
            self._put(item)
            reason = piece.reason or "forwarded"
            reasons[reason] = reasons.get(reason, 0) + piece.batches
        if rows:
            self.keeping = True
            self._touch()
        return rows, len(self.queue) - before, reasons

    def rows_kept(self) -> None:
        """The rows of `admit` are durable: send what needs them, and read on."""
        self.keeping = False
        self._touch(after_wait=True)

    def rows_refused(self) -> None:
        """The rows of `admit` are not durable, and never will be: what needs them isn't sent."""
        self.keeping = False

    def take_deviation(self) -> str | None:
        """Why offsets differ from here on, once."""
        why, self.deviation = self.deviation, None
        return why

    def lower_limit(self, limit: int) -> None:
        """Note that the target accepts no larger batches."""
        self.limit = min(self.limit, limit)

    def fill(self, run: RecordRun) -> Append:
        """Queue filler: records that correspond to no source record."""
        item = self._append(run)
        self._put(item)
        return item

    def filled(self) -> None:
        """Its offsets are aligned: start to read it."""
        self.filling = False
        self._touch()

    def filler_removed(self) -> None:
        """Filler was removed: a broker may forget its producer then."""
        self._newest = 0

    # -- writing -----------------------------------------------------------------------------------

    def written_by(self, writer: Writer | None) -> None:
        """Set the sender, even to the same one again; None: nobody writes it."""
        self.writer = writer
        self._end_checked_on = None  # another leader's term: even where the same one leads again

    def leaderless(self) -> float:
        """It has no leader on the target now. Returns for how many seconds."""
        at = time.monotonic()
        self._leaderless_since = self._leaderless_since or at
        return at - self._leaderless_since

    def led(self) -> None:
        """It has a leader on the target."""
        self._leaderless_since = None

    def put_aside(self, aside: bool) -> bool:
        """Note whether its target broker is unresponsive; returns whether that changed."""
        if self.aside == aside:
            return False
        self.aside = aside
        self._touch(after_wait=not aside)
        return True

    def offer(self) -> Writer | None:
        """Note that it has something to write; returns the sender to pump."""
        if self.writer is not None:
            self.writer.offer(self)
        return self.writer

    @property
    def known(self) -> bool:
        """Whether the broker surely knows the producer's sequence, so that it refuses a batch whose predecessor it
        refused: the last acknowledged batch is of today. After a quiet day it may have forgotten it."""
        return self._newest + self._memory.ms > time.time() * 1000

    @property
    def must_wait(self) -> bool:
        """Whether the next item must wait: for its mapping rows, or for the answer to requests in flight.

        A broker that doesn't know the producer accepts any sequence number: if it had refused the batch before, it
        would append the next one in its place. A marker has no sequence number: a broker that is just becoming the
        leader may refuse a marker and accept the batch after it.
        """
        first = self.queue[0] if self.queue else None
        if first is not None and self.keeping and first.gated:
            return True
        if self.outstanding > 0 and isinstance(first, Markers):
            return True
        return self.outstanding > 0 and (self.apart or not self.known)

    def end_is_known(self, connection: object) -> bool:
        """Whether an append on this connection surely gets its expected offset, or is refused. Where others write
        there, no offset is expected; then: whether nothing was lost since the log was read.
        """
        if self._end_checked_on is not connection:
            return False
        rested = self.outstanding == 0 and not self.shared and time.monotonic() - self._end_known_at > _REST_SECONDS
        return not rested or self.known

    def ask_end(self) -> None:
        """Note that its log end was requested; nothing of it is sent before the answer."""
        self.outstanding += 1
        self.apart = True

    def end_answered(self, connection: object, end: int | None) -> bool:
        """Whether its log on the target ends where the next append belongs; None: unknown, or another leader's term has
        begun since the log was read.
        """
        self.outstanding -= 1
        self.apart = False
        if end is None or (not self.shared and end != self.window.position.target_end):
            return False
        self._end_checked_on, self._end_known_at = connection, time.monotonic()
        return True

    def take_append(self, item: Append) -> None:
        """Take the first item of the queue to send it."""
        self.queue.popleft()
        self.queued_bytes -= item.size
        self.apart = item.stamp + self._memory.ms <= time.time() * 1000
        self.outstanding += 1

    def take_markers(self, item: Markers) -> tuple[int, bool]:
        """How many of the first markers to send, and whether they are the last: one marker first, then the others.
        The answer to several in one request names one outcome only, and a broker that is just becoming the leader
        refuses the first ones.
        """
        last = item.begun or item.count == 1
        count = item.count - item.begun if last else 1
        item.begun = True
        if last:
            self.queue.popleft()
            self.queued_bytes -= item.size
        self.outstanding += 1
        self.apart = True
        return count, last

    def answered(self, item: Append | Markers, *, last: bool = True) -> None:
        """A request with it (or some of its markers) ended, with any outcome."""
        self.outstanding -= 1
        if last:
            self.pending_bytes -= item.size

    def acknowledge(self, item: Append, target_offset: int) -> str | None:
        """Note that the append's last record is at that offset. Returns an error if another offset was expected."""
        self.window.acknowledge(item.mark, target_offset)
        if self.window.stopped is not None:
            return self.window.stopped
        self._newest = item.stamp
        self._end_known_at = time.monotonic()
        if self.ranges is not None:
            first = item.mark.after.target_end - item.count
            self.ranges.take(item.source_first, first, item.count, item.size, item.digest, item.crc)
        return None

    def markers_written(self, item: Markers) -> None:
        """All of its markers are written."""
        self.window.acknowledge(item.mark, item.mark.after.target_end - 1)

    # -- the end -----------------------------------------------------------------------------------

    def halt(self, incident: Incident) -> list[Append | Markers]:
        """Halt it; returns the dropped queue. The first reason stays."""
        if self.incident is not None:
            return []
        self.incident = incident
        self._touch()
        if incident.kind in _ABOUT_TARGET:
            self.window.stop(incident.reason)
        return self._drop_queue()

    def halt_after(self, incident: Incident) -> None:
        """Halt it once its queue is written, because the next source record can't be."""
        self.ending = incident
        self._touch()

    def settled(self) -> Incident | None:
        """The reason of a halt, once: as soon as none of its requests is outstanding, and its rows are durable or
        surely won't be. A row that is stored after the next start has read the rows would stay, and be wrong.
        """
        if self.ending is not None and self.incident is None and not (self.queue or self.outstanding):
            self.incident = self.ending
        if self.incident is None or self.outstanding or self.keeping or not self.wanted:
            return None
        self.wanted = False
        return self.incident

    def forget(self) -> list[Append | Markers]:
        """Remove it from the engine; returns the dropped queue."""
        self.wanted = False
        self.window.stop("forgotten")
        return self._drop_queue()

    def handed_over(self) -> PartitionStart | None:
        """Where another engine continues it; None unless everything admitted is acknowledged."""
        position = self.window.position
        if self.busy or position != (self.next_source, self.next_target):
            return None
        return PartitionStart(
            self.tp,
            self.target_topic,
            self.epoch,
            self.next_source,
            self.next_target,
            self.delta,
            self.most,
            producer_id=self.producer_id,
            sequence=self._sequence,
            preserve=self.preserve,
            leader_epoch=self.source_batches.epoch_below(self.next_source),
            source_topic_id=self._topic_ids[0],
            target_topic_id=self._topic_ids[1],
            dense_from=self._dense_from,
            claim=self.claim,
        )

    # -- inside ------------------------------------------------------------------------------------

    def _drop_queue(self) -> list[Append | Markers]:
        """Drop unsent items and return them."""
        dropped = list(self.queue)
        self.pending_bytes -= self.queued_bytes
        self.queued_bytes = 0
        self.queue.clear()
        return dropped

    def _row(self, rows: list[OffsetMapping], source: int, target: int) -> None:
        self.delta = target - source
        rows.append(OffsetMapping(self.tp.topic, self.tp.partition, self.epoch, source, target))

    def _append(self, run: RecordRun) -> Append:
        """Assign a run the next sequence numbers and target offsets."""
        head = header(
            attributes=run.attributes,
            count=run.records_count,
            base_timestamp=run.base_timestamp,
            max_timestamp=run.max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
            records=run.payload,
        )
        self._sequence = next_sequence(self._sequence, run.records_count)
        self.next_target += run.records_count
        self.next_source = run.source_next
        mark = self.window.send(run.source_next, self.next_target)
        codec = run.attributes & CODEC_MASK
        return Append((head, run.payload), run.records_count, mark, run.source_first, run.max_timestamp, codec)

    def _put(self, item: Append | Markers) -> None:
        self.queue.append(item)
        self.queued_bytes += item.size
        self.pending_bytes += item.size

    def _hole(self, source_next: int, *, gated: bool) -> None:
        """The source has no record up to there: match the hole, or let the delta change."""
        size = source_next - self.next_source
        if size <= 0:
            return
        self.next_source = source_next
        # only while both sides are in step: after an unmatched hole the next record changes the delta anyway
        in_step = self.next_target - (source_next - size) == self.delta
        if in_step and self._may_match(size):
            self._budget -= size
            self.next_target += size
            self._put(Markers(size, self.window.send(source_next, self.next_target), gated=gated))
        else:
            self.window.hole(source_next)
            if in_step and self.preserve:
                self.deviation = _differ(self.tp, source_next - size, size)

    def _may_match(self, size: int) -> bool:
        if not self.preserve or size > LARGEST_MATCH:
            return False
        at = time.monotonic()
        self._budget = min(_MARKER_BURST, self._budget + (at - self._budget_at) * _MARKERS_A_SECOND)
        self._budget_at = at
        return self._budget >= size


def _differ(tp: TopicPartition, first: int, size: int) -> str:
    """Why offsets aren't the same on both sides, though they are to be preserved; names the newest hole."""
    where = f"offset {first}" if size == 1 else f"offsets {first} to {first + size - 1}"
    why = (
        f"longer than {LARGEST_MATCH}"
        if size > LARGEST_MATCH
        else f"more than {_MARKERS_A_SECOND:.0f} markers a second"
    )
    return (
        f"offsets of {tp} differ between source and target, as the source's log has holes that markers don't fill; "
        f"the newest is at {where} ({why})"
    )
