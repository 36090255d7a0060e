"""The batch engine's state of one partition: the queue between reading and writing.

Admission gives every run its place on the target before anything is sent: sequence number, target
offset, mapping row where the delta changes. In preserve mode a hole of the source (a marker, an
aborted stretch, what compaction took) is matched by as many markers on the target, so that the delta
stays; too many of them are not (each is an append), then the delta changes and a row says so.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from drkit.kafka.protocol.batch_digest import placed_digest
from drkit.kafka.protocol.coalescing import Found
from drkit.kafka.protocol.fetch_produce import Payload, id_bytes
from drkit.kafka.protocol.record_batch import CODEC_MASK, header, next_sequence
from drkit.mirror.engine.batch_splitter import Hole, Piece, RecordRun, Rules
from drkit.mirror.engine.inflight_window import InFlight, Mark, SharedInFlight
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionStart
from drkit.mirror.engine.range_digests import RangeDigests
from drkit.mirror.engine.source_epochs import SourceEpochs
from drkit.model.digests import RangeDigest
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition

LARGEST_MATCH = 1_000
"""A hole of more offsets than this isn't matched by markers."""

FORGOTTEN_MS = 12 * 3_600_000
"""Brokers forget producers by the stamps of their records, after 24 hours unless told otherwise; half of that."""

_MARKER_BURST = 20_000.0
_MARKERS_A_SECOND = 2_000.0
_REST_SECONDS = 1.0
"""So long after its last acknowledgement a partition's end is asked for again, where the producer may be forgotten."""

_ABOUT_TARGET = frozenset(
    {IncidentKind.UNCERTAIN, IncidentKind.MISPLACED, IncidentKind.REJECTED, IncidentKind.TOPIC_GONE}
)
"""After one of these no acknowledgement counts any more."""


class Reader(Protocol):
    """Fetches a partition: the fetcher of the broker that it is read from."""

    def touch(self, partition: BatchPartition) -> None:
        """Its position changed, or whether it is to be read."""

    def remove(self, tp: TopicPartition) -> None:
        """Fetch it no longer."""


class Writer(Protocol):
    """Produces a partition: the sender of the broker that leads it on the target."""

    stuck: bool

    def offer(self, partition: BatchPartition) -> None:
        """It has something to be sent."""

    def pump(self) -> None:
        """Send what can be sent now."""

    def withdraw(self, partition: BatchPartition) -> None:
        """Produce it no longer."""


class Append:
    """One batch to be produced.

    `forgettable`: stamped so long ago that the broker may forget who wrote it. `gated`: only once the rows
    that its admission asked for are durable. `digest`: at its place, where it is a batch of the source as it
    was and range digests are kept. `codec`: what the batch says to be compressed by.
    """

    __slots__ = ("codec", "count", "digest", "forgettable", "gated", "mark", "payload", "size", "source_first")

    def __init__(
        self,
        payload: Payload,
        count: int,
        mark: Mark,
        source_first: int,
        codec: int = 0,
    ) -> None:
        self.payload = payload
        self.count = count
        self.mark = mark
        self.size = len(payload[0]) + len(payload[1])
        self.source_first = source_first
        self.codec = codec
        self.digest: int | None = None
        self.forgettable = self.gated = False


class Markers:
    """Markers to be written in the place of a hole. `gated`: as `Append`'s. `begun`: the first one is written."""

    __slots__ = ("begun", "count", "gated", "mark", "size")

    def __init__(self, count: int, mark: Mark, *, gated: bool = False) -> None:
        self.count = count
        self.begun = False
        self.gated = gated
        self.mark = mark
        self.size = 100 * count


class BatchPartition:
    """One partition since it was started; starting it again makes a new object, so late answers can't mix in.

    Fetcher, sequencer and sender move it through its states with the methods here and assign nothing themselves:

        read      `read_by` → `fetched` → `admit` (→ `rows_kept`) → `take_append`, `take_markers` → `acknowledge`
        not read  `hold`, `rest`, `fill`, `put_aside`, and while rows are being kept
        stopped   `halt` or `halt_after`, told of by `settled`; `forget`

    What others read of it:
    `reader`, `writer`: the brokers' fetcher and sender that it is placed with, if it is.
    `next_fetch`: the source offset to fetch next; `next_admit`: from which on what is admitted next was
    fetched. `next_source`, `next_target`: of what is admitted next. `outstanding`: requests in flight that concern it.
    `incident`: why it stands still; told to the runtime once nothing is outstanding.
    `ending`: why it will, once what is queued is written. `deviation`: why offsets differ from here on,
    until it is told. `heard_at`: when the broker from which it was read before answered last (monotonic seconds).
    `held`: an operator paused it. `resting`: left alone for a moment after a failed read.
    `filling`: its offsets are being aligned, so what is appended is filler. `keeping`: rows are being made
    durable, nothing that needs them is sent. `aside`: its target broker doesn't answer, so no more of it is read.
    `wanted`: it belongs to the engine still. `behind`: the source held more than was read at the last look, or it
    wasn't looked at yet.
    `most`: the target topic's limit for a batch; `limit`: what it took lately, where that is less.
    `pending_bytes`: queued or in flight. `known`: the broker surely knows the producer's sequence (what was
    acknowledged last can't have been forgotten), so that it refuses a batch whose predecessor it refused;
    `apart`: nothing may follow what was sent last before that is answered. `ranges`: folds what is acknowledged into
    range digests, where they are kept. `shared`: its target has other writers too, so that no offset is expected and
    no row is kept; `target_leader_epoch`: as `PartitionStart`'s. `source_topic_id`, `target_topic_id`: Kafka's 16
    bytes; none where it isn't known.
    """

    __slots__ = (
        "_budget",
        "_budget_at",
        "_end_checked_on",
        "_end_known_at",
        "_leaderless_since",
        "_sequence",
        "_source_end",
        "_topic_ids",
        "apart",
        "aside",
        "behind",
        "damaged",
        "delta",
        "deviation",
        "ending",
        "epoch",
        "filling",
        "heard_at",
        "held",
        "incident",
        "keeping",
        "known",
        "limit",
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
        "shared",
        "source_epochs",
        "source_topic_id",
        "target_leader_epoch",
        "target_topic",
        "target_topic_id",
        "tp",
        "wanted",
        "window",
        "writer",
    )

    def __init__(
        self, start: PartitionStart, *, matches: bool = True, digests: deque[RangeDigest] | None = None
    ) -> None:
        """`matches`: whether holes may be matched by markers; `digests`: takes range digests of ranges that ended."""
        self.tp = start.tp
        self.target_topic = start.target_topic
        self._topic_ids = start.source_topic_id, start.target_topic_id
        self.source_topic_id, self.target_topic_id = map(id_bytes, self._topic_ids)
        self.epoch = start.epoch
        self.limit = self.most = start.max_message_bytes
        self.delta = start.delta
        self.preserve = start.preserve and matches
        self.producer_id = start.producer_id
        self._sequence = start.sequence
        self.next_fetch = self.next_admit = self.next_source = start.source_offset
        self.next_target = start.target_offset
        self.shared = start.shared
        self.target_leader_epoch = start.target_leader_epoch
        window = SharedInFlight if start.shared else InFlight
        self.window: InFlight = window(start.source_offset, start.target_offset)
        self.queue: deque[Append | Markers] = deque()
        self.queued_bytes = self.pending_bytes = self.outstanding = 0
        self.keeping = self.known = self.apart = False
        self._end_checked_on: object | None = None
        self._end_known_at = 0.0
        self._leaderless_since: float | None = None
        self.source_epochs = SourceEpochs(start.leader_epoch)
        self._source_end: int | None = None
        self.damaged = 0
        self.heard_at: float | None = None
        self.preferred: int | None = None
        self.deviation: str | None = None
        self.ending: Incident | None = None
        self.incident: Incident | None = None
        self.held = self.resting = self.aside = False
        self.filling = start.fill_to is not None
        self.wanted = self.behind = True
        self.ranges = None if digests is None else RangeDigests(start.tp, start.epoch, digests)
        self.reader: Reader | None = None
        self.writer: Writer | None = None
        self._budget = _MARKER_BURST
        self._budget_at = time.monotonic()

    # -- reading -----------------------------------------------------------------------------------

    @property
    def fetchable(self) -> bool:
        """Whether it is to be read now."""
        stopped = self.incident or self.ending or not self.wanted
        return not (stopped or self.held or self.keeping or self.resting or self.filling or self.aside)

    @property
    def asleep(self) -> bool:
        """Whether it isn't read for what will be over soon by itself."""
        return self.keeping or self.resting or self.filling

    @property
    def active(self) -> bool:
        """Whether it belongs to the engine and isn't halted."""
        return self.wanted and self.incident is None

    def read_by(self, reader: Reader | None) -> None:
        """It is fetched there from now on; None: nowhere."""
        self.reader = reader

    def heard(self, at: float) -> None:
        """The broker from which it was read answered last at that time; another connection takes over."""
        self.heard_at = at

    def prefer(self, replica: int | None) -> None:
        """Read it from a replica near this worker; None: from its leader."""
        self.preferred = replica

    def hold(self, held: bool) -> None:
        """Read no more of it, or read on."""
        if self.held != held:
            self.held = held
            self._touch()

    def fetched(self, batches: Sequence[Found], next_fetch: int) -> None:
        """These batches were read; the next ones begin at `next_fetch`."""
        self.damaged = 0  # what comes after the good ones is read again
        self.next_fetch = next_fetch
        self.source_epochs.note(batches, self.window.position.source_through)

    def seen_end(self, end: int) -> tuple[bool, int]:
        """The source's log ends there; returns whether `behind` is another now, and by how much the log grew."""
        behind = self.next_fetch < end
        changed = behind != self.behind
        grown = 0 if self._source_end is None else max(0, end - self._source_end)
        self.behind, self._source_end = behind, end
        return changed, grown

    def damaged_read(self) -> int:
        """What was fetched can't be read: fetch it again (the network may have damaged it). Returns how often."""
        self.damaged += 1
        return self.damaged

    def rest(self, resting: bool) -> None:
        """Leave it alone for a moment, or read on."""
        self.resting = resting
        self._touch()

    def _touch(self) -> None:
        if self.reader is not None:
            self.reader.touch(self)

    # -- admission ---------------------------------------------------------------------------------

    def rules(self, *, committed: bool) -> Rules:
        """How its batches are taken."""
        return Rules(committed, self.limit, self._may_match, self.most)

    def follows(self, begin: int, next_offset: int) -> bool:
        """Whether what was read from `begin` up to `next_offset` comes next; then it counts as taken."""
        if begin != self.next_admit:
            return False
        self.next_admit = next_offset
        return True

    def admit(self, found: Iterable[Piece]) -> tuple[list[OffsetMapping], int, dict[str, int]]:
        """Queue what is to be appended. Returns the rows that must be durable first, how much was queued (so many of
        `queue`'s last), and how many source batches went out for which reason ("forwarded": as they were).
        """
        rows: list[OffsetMapping] = []
        before = len(self.queue)
        reasons: dict[str, int] = {}
        horizon = int(time.time() * 1000) - FORGOTTEN_MS
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
            if self.ranges is not None and piece.reason is None:  # now, while the bytes are in the cores' caches
                item.digest = placed_digest(self.next_target - piece.records_count, *item.payload)
            item.forgettable, item.gated = piece.max_timestamp < horizon, bool(rows)
            self._put(item)
            reason = piece.reason or "forwarded"
            reasons[reason] = reasons.get(reason, 0) + piece.batches
        if rows:
            self.keeping = True
            self._touch()
        return rows, len(self.queue) - before, reasons

    def rows_kept(self) -> None:
        """The rows that `admit` asked for are durable: what needs them may be sent, and more be read."""
        self.keeping = False
        self._touch()

    def take_deviation(self) -> str | None:
        """Why offsets differ from here on, once."""
        why, self.deviation = self.deviation, None
        return why

    def lower_limit(self, limit: int) -> None:
        """The target takes no larger batches."""
        self.limit = min(self.limit, limit)

    def fill(self, run: RecordRun) -> Append:
        """Queue filler: records that stand for none of the source's."""
        item = self._append(run)
        self._put(item)
        return item

    def filled(self) -> None:
        """Its offsets are aligned: it is read from now on."""
        self.filling = False
        self._touch()

    def filler_removed(self) -> None:
        """A broker may forget the producer whose records it removes."""
        self.known = False

    # -- writing -----------------------------------------------------------------------------------

    def written_by(self, writer: Writer | None) -> None:
        """It is produced there from now on, by another leader or the same one again; None: nowhere."""
        self.writer = writer
        self._end_checked_on = None  # another leader's time: also where the same one leads again

    def leaderless(self) -> float:
        """Nobody leads it on the target now. Returns for how many seconds."""
        at = time.monotonic()
        self._leaderless_since = self._leaderless_since or at
        return at - self._leaderless_since

    def led(self) -> None:
        """A broker leads it on the target."""
        self._leaderless_since = None

    def put_aside(self, aside: bool) -> bool:
        """Its target broker doesn't answer, or does again; returns whether that is new."""
        if self.aside == aside:
            return False
        self.aside = aside
        self._touch()
        return True

    def offer(self) -> Writer | None:
        """It has something to be written; returns who is to be pumped for it."""
        if self.writer is not None:
            self.writer.offer(self)
        return self.writer

    @property
    def must_wait(self) -> bool:
        """Whether what comes next is to wait: for its mapping rows, or for the answer to what is in flight.

        A broker that knows nothing of the producer takes any sequence number: were the batch before it
        refused, the next one would land in its place. A marker has no sequence number at all: a broker that
        is just becoming the leader may refuse a marker and take the batch behind it.
        """
        first = self.queue[0] if self.queue else None
        if first is not None and self.keeping and first.gated:
            return True
        if self.outstanding > 0 and isinstance(first, Markers):
            return True
        return self.outstanding > 0 and (self.apart or not self.known)

    def end_is_known(self, connection: object) -> bool:
        """Whether an append on this connection surely lands at its place, or is refused; where others write there, too,
        no place is expected, but that nothing was lost since the log was looked at.
        """
        if self._end_checked_on is not connection:
            return False
        rested = not self.known and self.outstanding == 0 and not self.shared
        return not (rested and time.monotonic() - self._end_known_at > _REST_SECONDS)

    def ask_end(self) -> None:
        """The end of its log is asked for; nothing of it is sent before the answer."""
        self.outstanding += 1
        self.apart = True

    def end_answered(self, connection: object, end: int | None) -> bool:
        """Whether its log ends on the target where the next append is due; None: that isn't known, or another leader's
        time has begun there since the log was looked at.
        """
        self.outstanding -= 1
        self.apart = False
        if end is None or (not self.shared and end != self.window.position.target_end):
            return False
        self._end_checked_on, self._end_known_at = connection, time.monotonic()
        return True

    def take_append(self, item: Append) -> None:
        """The first of the queue is sent."""
        self.queue.popleft()
        self.queued_bytes -= item.size
        self.apart = item.forgettable
        self.outstanding += 1

    def take_markers(self, item: Markers) -> tuple[int, bool]:
        """So many of the first of the queue are sent, and whether they are the last: one marker first, then the others.
        Of several in one request the answer names one outcome only, and a broker that is just becoming the leader
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
        """A request that carried it (or some of its markers) is over, whatever came of it."""
        self.outstanding -= 1
        if last:
            self.pending_bytes -= item.size

    def acknowledge(self, item: Append, target_offset: int) -> str | None:
        """The last record of what was appended landed there. Returns why that can't be, where it is another place than
        expected.
        """
        self.window.acknowledge(item.mark, target_offset)
        if self.window.stopped is not None:
            return self.window.stopped
        self.known = not item.forgettable
        self._end_known_at = time.monotonic()
        if self.ranges is not None:
            first = item.mark.after.target_end - item.count
            self.ranges.take(item.source_first, first, item.count, item.size, item.digest)
        return None

    def markers_written(self, item: Markers) -> None:
        """All of them landed."""
        self.window.acknowledge(item.mark, item.mark.after.target_end - 1)

    # -- the end -----------------------------------------------------------------------------------

    def halt(self, incident: Incident) -> list[Append | Markers]:
        """It stands still from now on; returns what was queued and is dropped. The first reason stays."""
        if self.incident is not None:
            return []
        self.incident = incident
        self._touch()
        if incident.kind in _ABOUT_TARGET:
            self.window.stop(incident.reason)
        return self._drop_queue()

    def halt_after(self, incident: Incident) -> None:
        """It stands still once what it has queued is written: what comes next on the source can't be."""
        self.ending = incident
        self._touch()

    def settled(self) -> Incident | None:
        """Why it stands still, once: as soon as none of its requests is outstanding."""
        if self.ending is not None and self.incident is None and not (self.queue or self.outstanding):
            self.incident = self.ending
        if self.incident is None or self.outstanding or not self.wanted:
            return None
        self.wanted = False
        return self.incident

    def forget(self) -> list[Append | Markers]:
        """It leaves the engine; returns what was queued and is dropped."""
        self.wanted = False
        self.window.stop("forgotten")
        return self._drop_queue()

    def handed_over(self) -> PartitionStart | None:
        """Where it continues elsewhere: what was admitted is all acknowledged. None where that isn't so."""
        position = self.window.position
        busy = self.outstanding or self.queue or self.asleep or self.incident or self.ending
        if busy or position != (self.next_source, self.next_target):
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
            leader_epoch=self.source_epochs.below(self.next_source),
            source_topic_id=self._topic_ids[0],
            target_topic_id=self._topic_ids[1],
        )

    # -- inside ------------------------------------------------------------------------------------

    def _drop_queue(self) -> list[Append | Markers]:
        """Forget what isn't sent; returns it."""
        dropped = list(self.queue)
        self.pending_bytes -= self.queued_bytes
        self.queued_bytes = 0
        self.queue.clear()
        return dropped

    def _row(self, rows: list[OffsetMapping], source: int, target: int) -> None:
        self.delta = target - source
        rows.append(OffsetMapping(self.tp.topic, self.tp.partition, self.epoch, source, target))

    def _append(self, run: RecordRun) -> Append:
        """Give a run its place: the next sequence numbers and target offsets."""
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
        return Append((head, run.payload), run.records_count, mark, run.source_first, codec)

    def _put(self, item: Append | Markers) -> None:
        self.queue.append(item)
        self.queued_bytes += item.size
        self.pending_bytes += item.size

    def _hole(self, source_next: int, *, gated: bool) -> None:
        """The source has nothing up to there: match it, or let the delta change."""
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
