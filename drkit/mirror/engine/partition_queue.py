"""What the batch engine keeps of one partition while it mirrors it: the queue between reading and writing.

Admission gives every run its place on the target before anything is sent: sequence number, target
offset, mapping row where the delta changes. In preserve mode a hole of the source (a marker, an
aborted stretch, what compaction took) is matched by as many markers on the target, so that the delta
stays; too many of them are not (each is an append), then the delta changes and a row says so.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from drkit.kafka.protocol.batch_digest import placed_digest
from drkit.kafka.protocol.fetch_produce import Payload, id_bytes
from drkit.kafka.protocol.record_batch import header, next_sequence
from drkit.mirror.engine.batch_splitter import Hole, Piece, RecordRun, Rules
from drkit.mirror.engine.inflight_window import InFlight, Mark
from drkit.mirror.engine.interface import Incident, PartitionStart
from drkit.mirror.engine.range_digests import RangeDigests
from drkit.mirror.engine.shared_window import SharedInFlight
from drkit.mirror.engine.source_epochs import SourceEpochs
from drkit.model.offsets import OffsetMapping

LARGEST_MATCH = 1_000
"""A hole of more offsets than this isn't matched by markers."""

FORGOTTEN_MS = 12 * 3_600_000
"""Brokers forget producers by the stamps of their records, after 24 hours unless told otherwise; half of that."""

_MARKER_BURST = 20_000.0
_MARKERS_A_SECOND = 2_000.0


class Append:
    """One batch to be produced.

    `forgettable`: stamped so long ago that the broker may forget who wrote it. `gated`: only once the rows
    that its admission asked for are durable. `digest`: at its place, where it is a batch of the source as it
    was and range digests are kept.
    """

    __slots__ = ("count", "digest", "forgettable", "gated", "mark", "payload", "size", "source_first")

    def __init__(
        self,
        payload: Payload,
        count: int,
        mark: Mark,
        source_first: int,
    ) -> None:
        self.payload = payload
        self.count = count
        self.mark = mark
        self.size = len(payload[0]) + len(payload[1])
        self.source_first = source_first
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
    """One partition since it was started; starting it anew makes a new object, so late answers can't mix in.

    `next_fetch`: the source offset to fetch next; `next_admit`: from which on what is admitted next was
    fetched. `next_source`, `next_target`, `sequence`: of what is
    admitted next. `outstanding`: requests in flight that concern it. `asleep`: it isn't fetched (rows
    are being kept). `incident`: why it stands still; told to the runtime once nothing is outstanding.
    `ending`: why it will, once what is queued is written. `deviation`: why offsets differ from here on,
    until it is told.
    `aside`: its target broker doesn't answer, so no more of it is read. `wanted`: it belongs to the engine still.
    `most`: the target topic's limit for a batch; `limit`: what it took lately, where that is less.
    `filling`: its offsets are being aligned, so what is appended is filler.
    `pending_bytes`: queued or in flight. `known`: the broker surely knows the producer's sequence (what was
    acknowledged last can't have been forgotten), so that it refuses a batch whose predecessor it refused;
    `apart`: nothing may follow what was sent last before that is answered. `keeping`: rows are being made
    durable, nothing that needs them is sent. `ranges`: folds what is acknowledged into range digests, where they
    are kept. `shared`: its target has other writers too, so that no offset is expected and no row is kept.
    `source_topic_id`, `target_topic_id`: Kafka's 16 bytes; none where it isn't known.
    """

    __slots__ = (
        "_budget",
        "_budget_at",
        "_topic_ids",
        "apart",
        "aside",
        "asleep",
        "damaged",
        "delta",
        "deviation",
        "end_checked_on",
        "end_known_at",
        "ending",
        "epoch",
        "filling",
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
        "sequence",
        "shared",
        "source_epochs",
        "source_topic_id",
        "stuck_since",
        "target_topic",
        "target_topic_id",
        "tp",
        "wanted",
        "window",
    )

    def __init__(self, start: PartitionStart, *, matches: bool = True) -> None:
        self.tp = start.tp
        self.target_topic = start.target_topic
        self._topic_ids = start.source_topic_id, start.target_topic_id
        self.source_topic_id, self.target_topic_id = map(id_bytes, self._topic_ids)
        self.epoch = start.epoch
        self.limit = self.most = start.max_message_bytes
        self.delta = start.delta
        self.preserve = start.preserve and matches
        self.producer_id = start.producer_id
        self.sequence = start.sequence
        self.next_fetch = self.next_admit = self.next_source = start.source_offset
        self.next_target = start.target_offset
        self.shared = start.shared
        window = SharedInFlight if start.shared else InFlight
        self.window: InFlight = window(start.source_offset, start.target_offset)
        self.queue: deque[Append | Markers] = deque()
        self.queued_bytes = 0
        self.pending_bytes = 0
        self.outstanding = 0
        self.keeping = False
        self.known = False
        self.apart = False
        self.end_checked_on: object | None = None
        self.end_known_at = 0.0
        self.source_epochs = SourceEpochs(start.leader_epoch)
        self.damaged = 0
        self.stuck_since: float | None = None
        self.preferred: int | None = None
        self.deviation: str | None = None
        self.ending: Incident | None = None
        self.incident: Incident | None = None
        self.held = False
        self.filling = False
        self.asleep = False
        self.aside = False
        self.wanted = True
        self.ranges: RangeDigests | None = None
        self._budget = _MARKER_BURST
        self._budget_at = time.monotonic()

    @property
    def fetchable(self) -> bool:
        """Whether it is to be read now."""
        stopped = self.incident or self.ending or not self.wanted
        return not (stopped or self.held or self.asleep or self.aside)

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

    def rules(self, *, committed: bool) -> Rules:
        """How its batches are taken."""
        return Rules(committed, self.limit, self._may_match, self.most)

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
        self.keeping = self.keeping or bool(rows)
        return rows, len(self.queue) - before, reasons

    def drop_queue(self) -> list[Append | Markers]:
        """Forget what isn't sent; returns it."""
        dropped = list(self.queue)
        self.pending_bytes -= self.queued_bytes
        self.queued_bytes = 0
        self.queue.clear()
        return dropped

    def handed_over(self) -> PartitionStart | None:
        """Where it goes on elsewhere: what was admitted is all acknowledged. None where that isn't so."""
        position = self.window.position
        busy = self.outstanding or self.queue or self.keeping or self.asleep or self.incident or self.ending
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
            sequence=self.sequence,
            preserve=self.preserve,
            leader_epoch=self.source_epochs.below(self.next_source),
            source_topic_id=self._topic_ids[0],
            target_topic_id=self._topic_ids[1],
        )

    def _row(self, rows: list[OffsetMapping], source: int, target: int) -> None:
        self.delta = target - source
        rows.append(OffsetMapping(self.tp.topic, self.tp.partition, self.epoch, source, target))

    def fill(self, run: RecordRun) -> int:
        """Queue records that stand for none of the source's; returns the bytes queued."""
        item = self._append(run)
        self._put(item)
        return item.size

    def _append(self, run: RecordRun) -> Append:
        """Give a run its place: the next sequence numbers and target offsets."""
        head = header(
            attributes=run.attributes,
            count=run.records_count,
            base_timestamp=run.base_timestamp,
            max_timestamp=run.max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            records=run.payload,
        )
        self.sequence = next_sequence(self.sequence, run.records_count)
        self.next_target += run.records_count
        self.next_source = run.source_next
        mark = self.window.send(run.source_next, self.next_target)
        return Append((head, run.payload), run.records_count, mark, run.source_first)

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
                first = source_next - size
                why = f"more than {LARGEST_MATCH}" if size > LARGEST_MATCH else "too many markers in a short time"
                self.deviation = (
                    f"the source has no record at offsets {first} to {source_next - 1} of {self.tp} ({why}): "
                    "they are not matched by markers on the target, where offsets differ from there on"
                )

    def _may_match(self, size: int) -> bool:
        if not self.preserve or size > LARGEST_MATCH:
            return False
        at = time.monotonic()
        self._budget = min(_MARKER_BURST, self._budget + (at - self._budget_at) * _MARKERS_A_SECOND)
        self._budget_at = at
        return self._budget >= size
