"""Exact resume: decides from both logs and the store where a partition's mirror continues.

`drkit.mapping.resume` decides from rows, watermark and the target's log end. This module does the I/O in an order that
makes it repeatable after a crash at any moment:

    0  read the leader epochs of the source: a later leader's log isn't the one observed
    1  read the watermarks, then the target's state of the link's producer (see
       `drkit.mirror.engine.producer_id`), then both sides' offsets; the target's end until two reads
       agree (a dead worker's requests in flight may still arrive)
    2  decide; classify what is unusual
    3  verify the tail: the records after the last stored acknowledgement (`drkit.mirror.resume.tail_verification`);
       without a tail, the last record below the end (`drkit.mirror.resume.misplaced_records`)
    4  store problems, then the resulting watermark, then remove rows ahead of the log, then the first row where one
       is needed; each of the last three for all partitions of a call before the next, so that thousands of starting
       partitions cost a few writes
    5  only then may the engine produce

What is unusual:

| kind | found by | then |
|---|---|---|
| `source_truncated` | the source lost mirrored records (`divergence`) | halted until accepted as a new topic |
| `foreign_writer` | both sides hold different records | halted, and stays so where that can't be seen again |
| (no problem) | the tail is the mirror's own, a marker is late or missing | the mapping rows are corrected |
| `records_unmapped` | the store has nothing of it, the target has records | halted until accepted as a new topic |
| `records_misplaced` | the mirror's own records are below their offsets | a new row; copied again after them |
| `target_lost_data` | the target ends below what it acknowledged | rewinds and copies again |
| `retention_gap` | the source's log starts above the next offset | names the lost offsets; continues at the start |
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.source_divergence import KIND, divergence
from drkit.kafka.client.record_probe import OffsetRange
from drkit.kafka.protocol.data_requests import UNKNOWN_EPOCH
from drkit.lag.batch_comparison import compare_batches, replaced_reason, set_back_remedy, unmirrored_reason
from drkit.lag.beyond_watermarks import foreign_writer_remedy
from drkit.lag.divergence_check import check_divergences, further_down
from drkit.lag.unmirrored_tail import LinkSides, unmirrored_tail
from drkit.mapping import ResumeKind, ResumePoint, resume_point
from drkit.mirror.engine.interface import PartitionStart
from drkit.mirror.engine.producer_id import LinkProducer
from drkit.mirror.health.problems import Problems
from drkit.mirror.resume.misplaced_records import Misplaced, MisplacedRecords
from drkit.mirror.resume.offset_alignment.fill_decision import FillDecision, Observed
from drkit.mirror.resume.tail_verification import MOST_UNREAD, Tail, TailUnread, TailVerifier
from drkit.mirror.resume.unmapped_records import UnmappedRecords
from drkit.mirror.topics.topic_sync import ReadyTopic
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.link_state import (
    FOREIGN_WRITER,
    RECORDS_MISPLACED,
    RECORDS_UNMAPPED,
    RETENTION_GAP,
    STORE_RECOVERED,
    TARGET_LOST_DATA,
    Alignment,
    Problem,
    TopicState,
)
from drkit.model.offsets import HOLES_ANYWHERE, LOOKS_WITHIN_SECONDS, OffsetMapping, WaitingRecords, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore, MappingStore
from drkit.store.link_notes import (
    SkippedOffsets,
    SourceHoles,
    add_never_mirrored,
    put_source_gap,
    put_source_holes,
    source_gaps,
    source_holes,
)

log = logging.getLogger(__name__)

_AGREE_SECONDS = 0.2
_AGREE_READS = 50
UNSEEN_REMEDY = (
    "Bring the brokers back that lead it on either side. Where one answers and its own log reports damage "
    "(CORRUPT_MESSAGE), let another replica lead the partition, or move its clients by a failover"
)

RESUME_KINDS = frozenset(
    {KIND, FOREIGN_WRITER, "mapping_conflict", "alignment_refused", STORE_RECOVERED, RECORDS_UNMAPPED}
)
"""Problems that halt a partition, or that a start decides from what it reads; a successful start clears them."""


class _LeaderMoved(Exception):
    """The source's log may no longer be the one that was observed."""


def _shows(seen: Observed, differing: Problem) -> bool:
    """Whether a source still holds the place from which on both sides differ. Not where the cleaner works: it may have
    removed what showed it."""
    first = differing.unsure_from
    return first is not None and not seen.topic.compacted and seen.source_start <= first


def waiting_records(seen: Observed, source_offset: int, at: datetime) -> WaitingRecords | None:
    """What waits where a partition continues at this offset, by an earlier look or because a transaction is open.

    What didn't wait at the last look came since. If that was longer ago than a mirror's looks are apart, when it came
    isn't known exactly.
    """
    known = seen.watermark
    before = None if known is None else known.waiting_beyond(source_offset)
    if before is not None and seen.source_end > source_offset:
        return before._replace(until=seen.source_end)
    if seen.source_end <= max(seen.source_readable_end, source_offset):
        return None
    if known is None:
        return WaitingRecords(seen.source_end, None, at_most=True)
    looked = known.observed_at
    return WaitingRecords(seen.source_end, looked, at_most=(at - looked).total_seconds() > LOOKS_WITHIN_SECONDS)


def start_at(at: Watermark, seen: Observed) -> PartitionStart:
    """A partition's start at a watermark: what all starts have, however the target is written."""
    state = seen.topic.state
    return PartitionStart(
        tp=seen.tp,
        target_topic=state.target_topic,
        source_topic_id=state.source_topic_id,
        target_topic_id=state.target_topic_id,
        epoch=state.epoch,
        source_offset=at.source_through,
        target_offset=at.target_end,
        delta=at.target_end - at.source_through,
        max_message_bytes=seen.topic.max_message_bytes,
        leader_epoch=UNKNOWN_EPOCH if at.leader_epoch is None else at.leader_epoch,
    )


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a partition continues, and its stored watermark."""

    start: PartitionStart
    watermark: Watermark


@dataclass(frozen=True, slots=True)
class Halt:
    """Why a partition can't be started."""

    kind: str
    reason: str
    remedy: str
    unsure_from: int | None = None


@dataclass(frozen=True, slots=True)
class _Repair:
    """What the store must say about a partition before it continues. `row`: in force there; None: one is needed."""

    seen: Observed
    point: ResumePoint
    row: OffsetMapping | None
    watermark: Watermark


class Resumer:
    """Finds where partitions continue, and repairs the store. Not thread-safe.

    Args:
        link: the link.
        source, target: the clusters.
        store: rows and watermarks.
        problems: where facts for an operator go.
        verifier: reads tails back.
        producer: the link's producer.
        whole: where offset alignments are noted.
        committed: whether the source is read up to its last stable offset, else up to its high watermark.
    """

    _keeps_rows = True
    """Whether mapping rows say where records are on the target: not where others write there, too."""

    def __init__(
        self,
        link: LinkId,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: MappingStore,
        problems: Problems,
        verifier: TailVerifier,
        producer: LinkProducer,
        whole: LinkStore,
        *,
        committed: bool,
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._problems = problems
        self._verifier = verifier
        self._producer = producer
        self._committed = committed
        self._notes = whole
        self._decision = FillDecision(link, whole, problems, producer)
        self._misplaced = MisplacedRecords(link, source, target, store, verifier)
        self._unmapped = UnmappedRecords(link, whole, problems)
        self._leave: Callable[[Collection[TopicPartition]], None] | None = None
        self._looked_at: float | None = None
        self._holes: dict[TopicPartition, SourceHoles] = {}
        self._new_holes: dict[TopicPartition, SourceHoles] = {}
        self._gaps: dict[TopicPartition, SkippedOffsets] = {}
        self.denied: dict[TopicPartition, DrkitError] = {}
        """From the last call of `resume`: partitions that a cluster refused to show, or not in time; the others
        continued."""
        self._unread: dict[TopicPartition, None] = {}  # tails that couldn't be read, the longest ago first
        self.replaced: set[TopicPartition] = set()
        """From the last call, too: partitions whose topic is another one than the known one on some side."""

    def resume(
        self,
        wanted: dict[TopicPartition, ReadyTopic],
        stop: threading.Event,
        doubted: Collection[TopicPartition] = (),
        *,
        leave: Callable[[Collection[TopicPartition]], None] | None = None,
    ) -> list[Resumed]:
        """Find where these partitions continue. Halted ones have a problem; those with neither result nor problem
        couldn't be observed completely: call again for them. `doubted`: their records were reported at unexpected
        offsets. `leave`: called with partitions before their stored watermarks change, so that the running mirror
        writes no older one over them before it starts them again.

        Raises:
            Unreachable: a cluster or the store doesn't answer.
        """
        resumed: list[Resumed] = []
        repairs: list[_Repair] = []
        halted: dict[TopicPartition, TopicState] = {}
        self._leave, self._looked_at = leave, time.monotonic()
        self.denied.clear()
        self._holes, self._new_holes = source_holes(self._notes, self._link), {}
        self._gaps = source_gaps(self._notes, self._link)
        epochs = {tp: ready.state.epoch for tp, ready in wanted.items()}
        standing = {tp: self._problems.standing(KIND, tp, epoch) for tp, epoch in epochs.items()}
        lost = {tp: problem for tp, problem in standing.items() if problem is not None}
        self._look_below(lost, {tp: wanted[tp] for tp in lost})
        wanted = {tp: ready for tp, ready in wanted.items() if tp not in lost}
        observations = self._not_diverged(self._observe(wanted, stop), halted)
        found, late = self._doubted(observations)
        self.denied.update(late)
        doubted = {*doubted, *found}
        doubted -= self._decision.filling([seen for seen in observations if seen.tp in doubted])
        replaced, same = self._other_sources(observations)
        self._verifier.unread = 0
        for observed in self._in_turn([seen for seen in observations if seen.tp not in self.denied]):
            if stop.is_set():
                break
            differing = self._problems.standing(FOREIGN_WRITER, observed.tp, observed.topic.state.epoch)
            outcome: Resumed | Halt | Problem | _Repair
            try:
                if observed.tp in replaced:
                    outcome = self._set_back(observed, *replaced[observed.tp])
                elif differing is not None and observed.tp not in same and not _shows(observed, differing):
                    continue
                else:
                    outcome = self._decide(observed, doubted=observed.tp in doubted)
            except _LeaderMoved:
                continue  # the caller asks again
            except (Refused, TailUnread) as error:
                self._deny(observed.tp, error)
                continue
            self._unread.pop(observed.tp, None)
            if isinstance(outcome, Halt | Problem):
                self._halt(observed, outcome, differing)
                halted[observed.tp] = observed.topic.state
            elif isinstance(outcome, _Repair):
                repairs.append(outcome)
            else:
                resumed.append(outcome)
        self._withdraw(halted)
        resumed += self._repaired(repairs)
        put_source_holes(self._notes, self._link, self._new_holes)
        for each in resumed:
            self._problems.settle(each.start.tp.topic, kinds=RESUME_KINDS, partition=each.start.tp.partition)
        return resumed

    def _in_turn(self, observations: Sequence[Observed]) -> list[Observed]:
        """Those whose tails couldn't be read come last, so that the others don't wait for them each time."""
        turns = {tp: turn for turn, tp in enumerate(self._unread, 1)}
        return sorted(observations, key=lambda seen: turns.get(seen.tp, 0))

    def _deny(self, tp: TopicPartition, error: Refused | TailUnread) -> None:
        self.denied[tp] = error
        tried = self._verifier.unread < MOST_UNREAD  # else it keeps its turn
        if tried and isinstance(error, TailUnread):
            self._verifier.unread += 1
            self._unread.pop(tp, None)
            self._unread[tp] = None

    def _halt(self, seen: Observed, why: Halt | Problem, differing: Problem | None) -> None:
        """Store why a partition is halted. `differing`: the `foreign_writer` on record; what it names first remains,
        though one of the sides may have removed it since."""
        tp, first = seen.tp, why.unsure_from
        if isinstance(why, Problem):
            self._problems.stand(why, tp, seen.topic.state.epoch)
        elif why.kind != FOREIGN_WRITER or first is None:
            unsure = None if first is None else (first, None)
            self._problems.put(why.kind, tp.topic, tp.partition, why.reason, why.remedy, halted=True, unsure=unsure)
        elif differing is None or differing.unsure_from is None or first < differing.unsure_from:
            epoch, unsure = seen.topic.state.epoch, (first, None)
            self._problems.put_standing(why.kind, tp, epoch, why.reason, why.remedy, unsure=unsure)

    # -- observing ---------------------------------------------------------------------------------

    def _observe(self, wanted: dict[TopicPartition, ReadyTopic], stop: threading.Event) -> list[Observed]:
        wanted = self._of_known_incarnation(wanted)
        leader_epochs = self._source.leader_epochs(wanted)
        there = {tp: TopicPartition(ready.state.target_topic, tp.partition) for tp, ready in wanted.items()}
        # before all ends: records that another worker mirrors meanwhile (or while this one is frozen) must not seem
        # lost
        watermarks = self._of_this_epoch(wanted)
        wanted = self._of_known_epoch(wanted)
        there = {tp: there[tp] for tp in wanted}
        source_starts = self._source.start_offsets(wanted, partial=True)
        target_starts = self._target.start_offsets(there.values(), partial=True)
        # before the ends: a record in between makes the next append out of sequence, never a duplicate
        sequences = self._producer.last_sequences(there.values())
        target_ends = self._settled_ends(list(there.values()), stop)
        # after the target's: whatever another worker mirrored until then is below them, however long this one was
        # frozen
        source_ends = self._source.end_offsets(wanted, committed=False, partial=True)
        # high watermarks first: offsets beyond a stable end read later surely belong to open transactions
        readable_ends = self._source.end_offsets(wanted, committed=self._committed, partial=True)
        known = {tp: mark.leader_epoch for tp, mark in watermarks.items() if mark.leader_epoch is not None}
        epoch_ends = self._source.epoch_ends(known)
        observed = []
        for tp, ready in wanted.items():
            target = there[tp]
            if tp not in leader_epochs or (tp in known and tp not in epoch_ends):
                continue
            if tp in source_starts and tp in readable_ends and tp in source_ends and target in target_starts:
                if target not in target_ends or target not in sequences:
                    continue
                observed.append(
                    Observed(
                        tp,
                        ready,
                        source_starts[tp],
                        readable_ends[tp],
                        max(source_ends[tp], readable_ends[tp]),
                        target_starts[target],
                        target_ends[target],
                        watermarks.get(tp),
                        sequences.get(target),
                        leader_epochs[tp],
                        epoch_ends.get(tp),
                    )
                )
        return self._below_markers(observed)

    def _below_markers(self, observed: list[Observed]) -> list[Observed]:
        """The partitions as they are below the markers by which a failover fenced an earlier mirror off: a copy ends
        there, and goes on behind them."""
        if not self._keeps_rows:
            return observed
        logs = {}
        for seen in observed:
            begin = seen.target_start if seen.watermark is None else seen.watermark.target_end
            logs[TopicPartition(seen.topic.state.target_topic, seen.tp.partition)] = OffsetRange(begin, seen.target_end)
        below = self._producer.ends_below_markers(logs)
        found = []
        for seen in observed:
            target = TopicPartition(seen.topic.state.target_topic, seen.tp.partition)
            if target in below.unknown:
                self.denied[seen.tp] = Unreachable(f"{target}: {below.unknown[target]}", remedy=UNSEEN_REMEDY)
            elif target in below.ends:
                found.append(replace(seen, target_end=below.ends[target], markers_end=seen.target_end))
            else:
                found.append(seen)
        return found

    def _of_this_epoch(self, wanted: dict[TopicPartition, ReadyTopic]) -> dict[TopicPartition, Watermark]:
        """The watermarks of these partitions, without those of earlier topics with the name."""
        kept = self._store.watermarks(self._link)
        return {tp: kept[tp] for tp, ready in wanted.items() if tp in kept and kept[tp].epoch == ready.state.epoch}

    def _of_known_epoch(self, wanted: dict[TopicPartition, ReadyTopic]) -> dict[TopicPartition, ReadyTopic]:
        """Those whose topics weren't accepted as new ones meanwhile; the next topic sync handles the others."""
        anew = self._accepted_anew({tp: ready.state for tp, ready in wanted.items()})
        self.replaced |= anew
        return {tp: ready for tp, ready in wanted.items() if tp not in anew}

    def _accepted_anew(self, known: Mapping[TopicPartition, TopicState]) -> set[TopicPartition]:
        """Those whose topics are of another epoch in the store: an operator accepted them as new ones."""
        states = self._notes.topic_states(self._link) if known else {}
        return {tp for tp, state in known.items() if states.get(tp.topic, state).epoch != state.epoch}

    def _withdraw(self, halted: Mapping[TopicPartition, TopicState]) -> None:
        """Take back problems of topics that an operator accepted as new ones while they were compared: they are about
        the former ones, and would halt what was accepted."""
        anew = self._accepted_anew(halted)
        self.replaced |= anew
        for tp in anew:
            self._problems.settle(tp.topic, kinds=RESUME_KINDS, partition=tp.partition)

    def _of_known_incarnation(self, wanted: dict[TopicPartition, ReadyTopic]) -> dict[TopicPartition, ReadyTopic]:
        """Those whose topics are still the known ones on both sides; the next topic sync handles the others."""
        states = [ready.state for ready in wanted.values()]
        ours = self._source.topics({state.topic for state in states}, denied=set())
        theirs = self._target.topics({state.target_topic for state in states}, denied=set())

        known: dict[TopicPartition, ReadyTopic] = {}
        self.replaced = set()
        for tp, ready in wanted.items():
            state = ready.state
            found = ours.get(state.topic), theirs.get(state.target_topic)
            ids = [None if each is None else each.topic_id for each in found]
            due = [state.source_topic_id, state.target_topic_id]
            if ids == due:
                known[tp] = ready
            elif any(one is not None and one != other for one, other in zip(ids, due, strict=True)):
                self.replaced.add(tp)  # a missing topic may just not be listed yet: the topic sync waits for that
        return known

    def _settled_ends(self, tps: Sequence[TopicPartition], stop: threading.Event) -> dict[TopicPartition, int]:
        """The target's log ends on which two consecutive reads agree. Partitions that gave no answer to a read, while
        others did, are left out: they must hold up no other."""
        last = self._target.log_ends(tps, partial=True)
        # of two first batches into an empty log the broker accepts one (`drkit.mirror.engine.producer_id`): don't wait
        settled = {tp: end for tp, end in last.items() if end == 0}
        if len(settled) == len(tps):
            return settled
        for _ in range(_AGREE_READS):
            if stop.wait(_AGREE_SECONDS):
                return {}
            left = [tp for tp in last if tp not in settled]
            if not left:
                return settled
            try:
                ends = self._target.log_ends(left, partial=True)
            except Unreachable:
                if settled:
                    return settled
                raise
            settled.update((tp, end) for tp, end in ends.items() if last.get(tp) == end)
            last = ends
        return settled

    # -- deciding ----------------------------------------------------------------------------------

    def _not_diverged(self, observed: Sequence[Observed], halted: dict[TopicPartition, TopicState]) -> list[Observed]:
        """Those whose source has not lost mirrored records; of the others that is stored as a problem (`halted`)."""
        seen = {each.tp: each for each in observed}
        marks = {tp: mark for tp, each in seen.items() if (mark := each.watermark) is not None}
        found = {
            tp: lost.seen_with(seen[tp].source_readable_end) if self._committed else lost
            for tp, mark in marks.items()
            if (lost := divergence(mark, seen[tp].epoch_end, seen[tp].source_end)) is not None
        }
        if found and self._keeps_rows:
            sides = partial(self._sides, [each.topic for each in observed])
            found = check_divergences(found, marks, link=self._link, store=self._store, sides=sides)
        for tp, lost in found.items():
            epoch, reason, remedy = seen[tp].topic.state.epoch, lost.reason(self._link), lost.remedy(self._link)
            self._problems.put_standing(KIND, tp, epoch, reason, remedy, unsure=lost.unsure)
            halted[tp] = seen[tp].topic.state
        return [each for each in observed if each.tp not in found]

    def _doubted(
        self, observations: Sequence[Observed]
    ) -> tuple[set[TopicPartition], dict[TopicPartition, Unreachable]]:
        """Partitions to be compared from further back, and those whose last records could not be read in time."""
        doubted, late = self._misplaced.doubted(observations)
        return doubted, {tp: Unreachable(why, remedy=UNSEEN_REMEDY) for tp, why in late.items()}

    def _continued(self, seen: Observed) -> Watermark | None:
        """The watermark where the partition continues there; None where the target lost its end."""
        mark = seen.watermark
        return mark if mark is not None and seen.target_end >= mark.target_end else None

    def _other_sources(
        self, observations: Sequence[Observed]
    ) -> tuple[dict[TopicPartition, tuple[str, int]], frozenset[TopicPartition]]:
        """Partitions whose source holds something else than was mirrored, why, and from which offset on at the latest
        (0: unknown). Second, those of which it holds the very batch that was mirrored last, so all below it."""
        source, target = self._link.source, self._link.target
        marks = {mark.tp: mark for mark in map(self._continued, observations) if mark is not None}
        batches = compare_batches(self._source, marks.values())
        found = {tp: (replaced_reason(source, target, tp, batch), 0) for tp, batch in batches.replaced.items()}
        unread = dict.fromkeys(batches.silent, "its leader doesn't show its last batch")
        if batches.rewritten and self._keeps_rows:
            tail = unmirrored_tail(
                self._sides([each.topic for each in observations]), [marks[tp] for tp in batches.rewritten]
            )
            found |= {
                tp: (unmirrored_reason(source, target, tp, first), tail.same_until[tp])
                for tp, first in tail.first.items()
            }
            unread |= tail.unread
        for tp in unread:
            self.denied[tp] = Unreachable(f"{tp} on {source}: {unread[tp]}", remedy=UNSEEN_REMEDY)
        return found, batches.same

    def _look_below(self, lost: Mapping[TopicPartition, Problem], ready: dict[TopicPartition, ReadyTopic]) -> None:
        """Move the places of lost tails on record down, where their sources were set back further meanwhile."""
        known = self._of_known_incarnation(ready) if ready and self._keeps_rows else {}
        if not known:
            return
        problems, sides = [lost[tp] for tp in known], partial(self._sides, list(known.values()))
        deeper, _ = further_down(problems, self._of_this_epoch(known), link=self._link, store=self._store, sides=sides)
        for tp, problem in deeper.items():
            self._problems.stand(problem, tp, known[tp].state.epoch)

    def _sides(self, ready: Iterable[ReadyTopic]) -> LinkSides:
        """What both sides of these topics are compared with."""
        topics = {each.state.topic: each.state.target_topic for each in ready}
        return LinkSides(
            self._link,
            self._source,
            self._target,
            topics.__getitem__,
            self._store,
            self._verifier.alteration,
            self._committed,
        )

    def _set_back(self, seen: Observed, why: str, first: int) -> Halt:
        """The source holds something else than was mirrored, at the latest from `first` on (0: unknown): find where
        both sides begin to differ. Changes nothing."""
        difference = self._first_difference(seen)
        if difference is None:
            return Halt(FOREIGN_WRITER, why, set_back_remedy(self._link, seen.tp.topic), first)
        what, source_offset = difference
        return Halt(FOREIGN_WRITER, f"{why}; {what}", set_back_remedy(self._link, seen.tp.topic), source_offset)

    def _first_difference(self, seen: Observed) -> tuple[str, int] | None:
        """How the target's records differ from the source's, and from which source offset on; None: unknown."""
        found = self._misplaced.difference(seen)
        if found is None:
            return None
        difference, there = found
        return difference.what, there.source_offset if isinstance(there, Misplaced) else there

    def _decide(self, seen: Observed, *, doubted: bool = False) -> Resumed | Halt | Problem | _Repair:
        watermark = seen.watermark
        try:
            rows = self._rows(seen)
            point = resume_point(
                rows, watermark, seen.target_end, source_start=seen.source_start, source_end=seen.source_end
            )
        except (Unreachable, Refused):
            raise
        except DrkitError as error:
            return Halt("mapping_conflict", error.what, error.remedy)
        if point.kind is ResumeKind.FRESH and (watermark is None or watermark.target_end > seen.target_start):
            unmapped = self._unmapped.problem(seen)
            if unmapped is not None:
                return unmapped
        foreign = point.kind is ResumeKind.FOREIGN
        mismatch = str(point.reason) if foreign else self._tail_mismatch(seen, rows, point)
        if mismatch is None and not doubted:
            return self._repair(seen, point)
        shifted = None if mismatch is None else self._shifted(seen, mismatch)
        right = shifted or self._set_right(seen, point, mismatch)
        return self._behind_markers(seen, right) if isinstance(right, Resumed) else right

    def _behind_markers(self, seen: Observed, resumed: Resumed) -> Resumed:
        """It continues behind the fencing markers, if there are any."""
        if seen.markers_end is None:
            return resumed
        kept = self._watermark(seen, resumed.watermark.source_through, seen.log_end)
        row = OffsetMapping(*seen.tp, kept.epoch, kept.source_through, kept.target_end)
        self._store.append_mappings(self._link, [row])
        self._keep([kept])
        return Resumed(self._start(kept, seen, row, None), kept)

    def _rows(self, seen: Observed) -> list[OffsetMapping]:
        """The relevant rows: the one in force at the tail's begin, and all above it."""
        epoch = seen.topic.state.epoch
        begin = seen.target_end if seen.watermark is None else min(seen.target_end, seen.watermark.target_end)
        row = self._store.last_valid_mapping(self._link, seen.tp, epoch, begin)
        if row is None:
            return self._store.mappings(self._link, seen.tp, epoch)
        rows = []
        while row is not None:
            rows.append(row)
            row = self._store.next_mapping(self._link, seen.tp, epoch, row.source_offset)
        return rows

    def _tail_mismatch(self, seen: Observed, rows: Sequence[OffsetMapping], point: ResumePoint) -> str | None:
        if point.kind is not ResumeKind.CONTINUE or not rows:
            return None
        begin = rows[0].target_offset if seen.watermark is None else seen.watermark.target_end
        if begin >= seen.target_end:
            return None
        log.info("%s: verifying %d unrecorded records on %s", self._link, seen.target_end - begin, seen.tp)
        found = self._verifier.difference(self._tail(seen, begin, rows), begin)
        return None if found is None else found.what

    def _tail(self, seen: Observed, begin: int, rows: Sequence[OffsetMapping]) -> Tail:
        return Tail(
            seen.tp,
            seen.topic.state.target_topic,
            begin,
            seen.target_end,
            rows,
            seen.source_start,
            seen.target_start,
            seen.topic.compacted,
            seen.source_readable_end,
        )

    def _shifted(self, seen: Observed, what: str) -> Resumed | None:
        """Where it continues, if the tail is the mirror's own and only its offsets differ (`shifted_tail`).

        The watermark is written last: until then, a restart repeats all of this.
        """
        watermark, epoch = seen.watermark, seen.topic.state.epoch
        if watermark is None or seen.topic.compacted:
            return None
        begin = watermark.target_end
        if not (seen.target_start <= begin < seen.target_end and seen.source_start <= watermark.source_through):
            return None
        before = self._store.last_valid_mapping(self._link, seen.tp, epoch, begin - 1)
        tail = self._tail(seen, begin, ())
        delta = None if before is None else before.delta
        found = self._verifier.realigned(tail, watermark.source_through, seen.source_readable_end, delta)
        if found is None:
            return None
        log.warning("%s: %s: %s. A marker is late or missing: mapping rows are corrected", self._link, seen.tp, what)
        rows = [OffsetMapping(seen.tp.topic, seen.tp.partition, epoch, *row) for row in found.rows]
        self._store.supersede_mappings(self._link, seen.tp, epoch, begin - 1)
        if rows:
            self._store.append_mappings(self._link, rows)
        last = rows[-1] if rows else before
        kept = self._watermark(seen, found.source_offset, seen.target_end)
        self._keep([kept])
        return Resumed(self._start(kept, seen, last, None), kept)

    def _set_right(self, seen: Observed, point: ResumePoint, mismatch: str | None) -> Resumed | Halt | _Repair:
        """Find whose records are where both sides diverge. The mirror's own are reported, and copied again after
        them."""
        found = self._misplaced.difference(seen)
        if found is None:
            mirrored = None if seen.watermark is None else seen.watermark.source_through
            return self._repair(seen, point) if mismatch is None else self._foreign(seen, mismatch, mirrored)
        difference, misplaced = found
        if isinstance(misplaced, Misplaced):
            return self._copy_behind(seen, misplaced)
        return self._foreign(seen, mismatch or difference.what, misplaced)

    def _copy_behind(self, seen: Observed, misplaced: Misplaced) -> Resumed:
        """Copy records again, after the mirror's own records below their expected offsets.

        The watermark goes back first: until the last step is done, a restart repeats all of this.
        """
        tp, epoch, (begin, end, due, run) = seen.tp, seen.topic.state.epoch, misplaced
        target = f"{seen.topic.state.target_topic}:{tp.partition}"
        self._problems.put(
            RECORDS_MISPLACED,
            tp.topic,
            tp.partition,
            f"{target} on {self._link.target} had lost its records from target offset {begin} on, and source offsets "
            f"{run.first} to {run.last} were written there instead: target offsets {begin} to {end - 1} hold records "
            f"that are there a second time later. Everything from source offset {due} on is copied again from target "
            f"offset {end} on",
            f"A consumer that starts below target offset {end} reads those {end - begin} records twice, out of order: "
            f"records can't be removed from there. If they are the oldest, `kafka-delete-records` up to {end} "
            f"removes them. For a copy without them, delete the topic on {self._link.target} and start it again: "
            f"`drkit link resume '{self._link}' --topic {tp.topic} --accept-recreated`. Find out why "
            f"{self._link.target} lost its records",
            halted=False,
            adds=True,
            unsure=(0, due),
        )
        source_offset = max(due, seen.source_start)
        if source_offset > due:
            self._note_gap(seen, due)
        self._keep([self._watermark(seen, due, begin)])
        self._store.supersede_mappings(self._link, tp, epoch, begin)
        row = OffsetMapping(tp.topic, tp.partition, epoch, source_offset, end)
        self._store.append_mappings(self._link, [row])
        kept = self._watermark(seen, source_offset, end)
        self._keep([kept])
        return Resumed(self._start(kept, seen, row, None), kept)

    def _foreign(self, seen: Observed, what: str, unsure_from: int | None) -> Halt:
        return Halt(
            FOREIGN_WRITER,
            f"{seen.topic.state.target_topic}:{seen.tp.partition} on {self._link.target} holds records that the mirror "
            f"did not write: {what}",
            foreign_writer_remedy(self._link, seen.tp.topic, seen.topic.state.target_topic),
            0 if unsure_from is None else unsure_from,
        )

    # -- repairing ---------------------------------------------------------------------------------

    def _keep(self, watermarks: Sequence[Watermark]) -> None:
        """Store watermarks of partitions that are resumed."""
        if self._leave is not None:
            self._leave([each.tp for each in watermarks])
        self._store.put_watermarks(self._link, watermarks)

    def _repair(self, seen: Observed, point: ResumePoint) -> _Repair:
        """The changes that make the store agree with the answer; the problems found are stored now."""
        if point.kind is ResumeKind.REWIND:
            self._problems.put(
                TARGET_LOST_DATA,
                seen.tp.topic,
                seen.tp.partition,
                str(point.reason),
                f"drkit copies from there on what {self._link.source} holds now. Find out why {self._link.target} lost "
                f"them (an unclean leader election, a restored disk?): if {self._link.source} was restored as well, "
                "these may be other records",
                halted=False,
                adds=True,
            )
        row = point.last_row
        source_offset = point.source_offset
        if source_offset < seen.source_start:
            self._note_gap(seen, source_offset)
            source_offset, row = seen.source_start, None
        if seen.markers_end is not None:
            row = None
        return _Repair(seen, point, row, self._watermark(seen, source_offset, seen.log_end))

    def _repaired(self, repairs: Sequence[_Repair]) -> list[Resumed]:
        """Change the store, in the order that the module docstring states."""
        if not repairs:
            return []
        self._keep([each.watermark for each in repairs])
        resumed: list[Resumed] = []
        due: list[OffsetMapping] = []
        for each in repairs:
            seen, point, row, watermark = each.seen, each.point, each.row, each.watermark
            epoch, source_offset = seen.topic.state.epoch, watermark.source_through
            if point.superseded:
                self._store.supersede_mappings(self._link, seen.tp, epoch, point.target_offset)
            at = replace(point, target_offset=watermark.target_end)  # behind fencing markers
            fill = self._decision.alignment(seen, source_offset, at, row)
            if row is None:
                target_offset = watermark.target_end if fill is None else fill.end
                row = OffsetMapping(seen.tp.topic, seen.tp.partition, epoch, source_offset, target_offset)
                due.append(row)
            resumed.append(Resumed(self._start(watermark, seen, row, fill), watermark))
        if due:
            self._store.append_mappings(self._link, due)
        return resumed

    def _start(
        self, at: Watermark, seen: Observed, row: OffsetMapping | None, fill: Alignment | None
    ) -> PartitionStart:
        start = replace(
            start_at(at, seen),
            preserve=seen.topic.preserve,
            fill_to=None if fill is None else fill.end,
            fill_from=0 if fill is None else fill.begin,
        )
        return self._conditional(start if row is None else replace(start, delta=row.delta), seen)

    def _conditional(self, start: PartitionStart, seen: Observed) -> PartitionStart:
        """The start with producer id and sequence, which make each append conditional on the one before it."""
        sequence = self._producer.next_sequence(seen.last_sequence, start.target_offset)
        dense_from = self._dense_from(seen, start.source_offset)
        return replace(
            start,
            producer_id=self._producer.id(),
            sequence=sequence,
            looked_at=self._looked_at,
            dense_from=dense_from,
        )

    def _dense_from(self, seen: Observed, source_offset: int) -> int:
        """The source offset from which on its log has no gaps. One that was compacted has them in what it held then.

        A gap that was told stands until an operator accepts it: compaction that began later didn't make it.
        """
        epoch = seen.topic.state.epoch
        known = self._holes.get(seen.tp)
        until = 0 if known is None or known.epoch != epoch else known.until
        gap = self._gaps.get(seen.tp)
        if gap is not None and gap.epoch == epoch and gap.first >= source_offset and gap.end > until:
            return gap.first if seen.topic.compacted else until
        due = until
        if seen.topic.compacted:
            due = HOLES_ANYWHERE
        elif until == HOLES_ANYWHERE:
            due = max(seen.source_end, 0 if seen.watermark is None else seen.watermark.source_end)
        if due != until:
            self._new_holes[seen.tp] = SourceHoles(epoch, due)
        return due

    def told_gap(self, tp: TopicPartition, epoch: int, gap: tuple[int, int]) -> bool:
        """Whether a gap from there on was told before, and no operator has accepted it; it may end elsewhere now."""
        told = self._gaps.get(tp)
        return told is not None and (told.epoch, told.first) == (epoch, gap[0])

    def is_compacted(self, topic: str) -> bool:
        """Whether the source's cleaner works on a topic, as the source says now.

        Raises:
            DrkitError: it doesn't say.
        """
        return bool(self._source.compacted([topic]))

    def note_source_gap(self, tp: TopicPartition, epoch: int, gap: tuple[int, int]) -> None:
        """Store what the source skips, so that an operator can go on without it."""
        put_source_gap(self._notes, self._link, tp, epoch, gap)

    def _note_gap(self, seen: Observed, first: int) -> None:
        last = seen.source_start - 1
        add_never_mirrored(self._notes, self._link, seen.tp, seen.topic.state.epoch, first, seen.source_start)
        self._problems.put(
            RETENTION_GAP,
            seen.tp.topic,
            seen.tp.partition,
            f"{seen.tp} on {self._link.source} no longer has offsets {first} to {last} "
            f"({last - first + 1} offsets): they were removed before they were mirrored",
            "The target will never have them. Give the source a longer retention than the mirror may lag; "
            f"acknowledge with `drkit link acknowledge '{self._link}' {RETENTION_GAP} --topic {seen.tp.topic}`",
            halted=False,
            adds=True,
        )

    def _watermark(self, seen: Observed, source_offset: int, target_offset: int) -> Watermark:
        at = now()
        known = seen.watermark
        fresh = Watermark(
            topic=seen.tp.topic,
            partition=seen.tp.partition,
            epoch=seen.topic.state.epoch,
            source_through=source_offset,
            target_end=target_offset,
            source_start=seen.source_start,
            source_end=max(seen.source_readable_end, source_offset),
            target_start=seen.target_start,
            observed_at=at,
            leader_epoch=self._epoch_below(seen, source_offset),
            source_batch=None if known is None else known.batch_below(source_offset),
            waiting=waiting_records(seen, source_offset, at),
        )
        if fresh.lag_records == 0:
            return fresh
        since = known.behind_since if known is not None and known.behind_since is not None else at
        return replace(fresh, behind_since=since)

    def _epoch_below(self, seen: Observed, source_offset: int) -> int | None:
        """The leader epoch of the source's batch below the offset where a partition continues, or None.

        It is read if the watermark doesn't have it. If it belongs to a later leader than the first one seen, the log
        may have lost what was compared.
        """
        known = None if seen.watermark is None else seen.watermark.epoch_at(source_offset)
        if known is not None or source_offset <= seen.source_start:
            return known
        found = self._source.epochs_below({seen.tp: source_offset}).get(seen.tp)
        if found is None or found > seen.leader_epoch:
            raise _LeaderMoved
        return None if found == UNKNOWN_EPOCH else found
