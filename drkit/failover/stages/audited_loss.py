"""Counts what a failover lost, on the old primary once it answers again, and completes the run's evidence.

The store's watermarks stay as the failover settled them until a failback starts the link's record anew. Records at or
beyond them on the old primary never reached the target. Records named by recorded problems are missing there, too
(`drkit.lag`), as are those that the old primary wrote in place of a lost tail, or since it was set back to an older
copy of its disks. The records are read, so those that are compacted, expired, aborted or left out by the link don't
count. What stands behind an open transaction counts, too, and is named: which of it will be aborted is unknown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Facts, Loss, State, TopicLoss
from drkit.failover.journal.journal import AUDITED, LOSS
from drkit.failover.journal.run_record import RunRecord, load_anchored_run
from drkit.failover.plan.failover_plan import FailoverPlan
from drkit.failover.plan.loss import held_before
from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.admin.logs.source_divergence import compare_source
from drkit.kafka.client.record_probe import OffsetRange
from drkit.kafka.protocol.records import Damaged, RawRecord
from drkit.lag.divergence_check import check_divergences
from drkit.lag.partition_lag import partition_lag, seen_since
from drkit.lag.problems_now import LinkRecord, LogsSeen, ProblemsNow, link_sides, problems_now
from drkit.lag.returned_records import with_returned
from drkit.lag.waiting_records import behind_open_transactions
from drkit.mapping.mapping_rows import former_ranges
from drkit.mapping.translate import left_unread
from drkit.model.clock import from_millis, now
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.link_state import PARTED, SOURCE_TRUNCATED, TARGET_PURGED, Direction, Problem, TopicState
from drkit.model.offsets import Watermark
from drkit.model.topics.removing import CLEANUP, is_compacted
from drkit.model.topology import Link, TopicPartition, is_canary
from drkit.model.wording import and_more
from drkit.store.api import Store

if TYPE_CHECKING:
    from drkit.kafka.client.log_reader import LogReader
    from drkit.kafka.transform.record_transform import Alteration

AUDIT_SECONDS = 60.0


def complete_evidence(estate: ClusterContext, link: Link) -> Loss | None:
    """Count what the failover that sealed a link lost, and journal it; None: the loss is already exact.

    The caller holds the link's run lease.

    Raises:
        Unreachable: the old primary, or the store, doesn't answer.
        Refused: another cluster answers at its address, or it has none of the mirrored records.
        DrkitError: the run's journal was tampered with.
    """
    record = sealing_failover(estate, link)
    if record is None or not needs_audit(record.machine.facts):
        return None
    loss = count_loss(estate, link, record)
    record.journal.anchor = estate.anchors.on(record.plan.target.alias)
    record.journal.write(AUDITED, AUDITED, LOSS.dump_json(loss).decode())
    return loss


def sealing_failover(estate: ClusterContext, link: Link) -> RunRecord | None:
    """The closed failover by which the link was failed away from, or None."""
    control = estate.store.link_control(link.id)
    if control is None or control.run is None or control.direction is not Direction.SEALED:
        return None
    record = load_anchored_run(estate, control.run)
    return record if isinstance(record.plan, FailoverPlan) and record.machine.state is State.CLOSED else None


def needs_audit(facts: Facts) -> bool:
    """Whether the loss is not exact yet, and a count on the old primary may make it so. An open transaction leaves an
    upper bound, until it is over."""
    loss = facts.loss
    if loss is None:
        return False
    return loss.lower_bound or loss.records is None or (loss.basis == "audited" and loss.upper_bound)


def count_loss(estate: ClusterContext, link: Link, record: RunRecord) -> Loss:
    """The records of the old primary that never reached the target, and the age of the oldest at the fence.

    Ages use the records' timestamps. Records that retention has removed there can't be counted: then the result is a
    lower bound, and says so.

    Raises:
        Unreachable: the old primary, or the store, doesn't answer.
        Refused: another cluster answers at its address, or it has none of the mirrored records.
    """
    source = link.id.source
    admin = estate.admin(source, may_be_gone=True)
    planned = record.plan.source.cluster_id if isinstance(record.plan, FailoverPlan) else None
    found = admin.cluster_id()
    if planned is not None and found != planned:
        raise Refused(
            f"{source} is another cluster now: its id is {found}, it was {planned}",
            meaning="What the old primary lost can't be counted there",
            remedy=f"Correct the address of {source} in the configuration",
        )
    fenced_at = record.machine.facts.fenced_at or record.started_at
    states = estate.store.topic_states(link.id)
    marks = {tp: mark for tp, mark in estate.store.watermarks(link.id).items() if not is_canary(tp.topic)}
    topics = {name: info for name, info in admin.topics().items() if link.covers_topic(name) and not is_canary(name)}
    unsure = [
        f"{name} is another topic than the one mirrored" if name in topics else f"{name} is not there any more"
        for name in sorted({tp.topic for tp in marks} & set(states))
        if name not in topics or topics[name].topic_id != states[name].source_topic_id
    ]
    tps = [TopicPartition(name, number) for name, info in topics.items() for number in range(info.partitions)]
    of_these = {tp: mark for tp, mark in marks.items() if not _is_another(tp.topic, states, topics)}
    starts, ends = admin.start_offsets(tps, partial=True), admin.end_offsets(tps, committed=False, partial=True)
    logs = {tp: OffsetRange(start, ends[tp]) for tp, start in starts.items() if tp in ends}
    seen_now = _problems_now(estate, link, of_these, states, topics, logs)
    recorded = [each for each in estate.store.problems(link.id) if each.kind != TARGET_PURGED]
    recorded += [each for each in seen_now.problems if each.kind == TARGET_PURGED]  # as far as it is still so
    missing = _Missing(
        of_these,
        with_returned(estate.store, link.id, of_these, logs, recorded),
        _partings(estate, link, of_these, states, seen_now),
        seen_now,
    )
    for tp in tps:
        if tp in logs:
            missing.add(tp, logs[tp])
        else:
            unsure.append(f"{tp} has no leader")
    unsure += missing.unsure
    held = [tp for tp, mark in marks.items() if max(mark.source_end, mark.source_through) > 0]
    if held and not any(_is_mirrored(tp, states, topics) and ends.get(tp, 1) > 0 for tp in held):
        raise Refused(
            f"what run {record.run} lost can't be counted on {source}: {and_more(unsure, separator='; ')}",
            meaning=f"Nothing there is what was mirrored, so what {source} held beyond it isn't there, either. The "
            "run's evidence stays as it was observed",
            remedy=f"Where the old data of {source} is found again: count it there, drkit runs {record.run} --audit",
        )
    scanned = [found for each in (missing.tails, *missing.gaps) for found in _scan(estate, link, each)]
    unsure += record.machine.facts.loss.unjudged if record.machine.facts.loss is not None else ()
    unsure += [f"{tp} was not read to its end: {each.reason}" for tp, each in scanned if each.reason]
    undecided = sum(each.undecided for _, each in scanned)
    unaltered = next((each.unaltered for _, each in scanned if each.unaltered), None)
    notes = [] if record.machine.facts.fenced else [f"{source} was not fenced: what was written later is counted too"]
    before = _held_before(estate.store, link, [missing.tails, *missing.gaps], states, of_these)
    notes += [held_before(before)] if before else []
    notes += [behind_open_transactions(undecided)] if undecided else []
    notes += [f"what the link leaves out is counted, too: {unaltered}"] if unaltered else []
    if missing.maybe_there:
        why = and_more(sorted(filter(None, missing.maybe_there.values())), separator="; ")
        notes.append(f"some of what is counted of {and_more(sorted(missing.maybe_there))} may be on the target: {why}")
    by_topic = tuple(_of_topic(name, scanned, fenced_at) for name in sorted({tp.topic for tp, _ in scanned}))
    counted_now = sum(topic.records or 0 for topic in by_topic)
    seen = record.machine.facts.loss
    known = seen.records or 0 if seen is not None and unsure and not seen.upper_bound else 0
    return Loss(
        records=max(counted_now, known),  # removed records don't make it smaller
        seconds=max((topic.seconds or 0.0 for topic in by_topic), default=0.0),
        observed_at=now(),
        by_topic=by_topic,
        reason=and_more([*unsure, *notes], separator="; ") or None,
        basis="audited",
        lower_bound=bool(unsure),
        upper_bound=bool(before or missing.maybe_there or undecided or unaltered),
    )


@dataclass(slots=True)
class _Missing:
    """What the target lacks of an old primary's logs, partition by partition.

    `marks`: the watermarks; `problems`: of the link; `partings`: where both sides part now;
    `seen`: what both logs show now. `tails`: what is missing up to the logs' ends; `gaps`: what is missing below that,
    each partition once in each; `maybe_there`: topics of which the target may have some of it, and why; `unsure`: what
    can't be counted any more.
    """

    marks: Mapping[TopicPartition, Watermark]
    problems: Sequence[Problem]
    partings: Mapping[TopicPartition, int]
    seen: ProblemsNow
    tails: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    gaps: list[dict[TopicPartition, OffsetRange]] = field(default_factory=list)
    maybe_there: dict[str, str] = field(default_factory=dict)
    unsure: list[str] = field(default_factory=list)

    def add(self, tp: TopicPartition, log: OffsetRange) -> None:
        """Add a partition by its present log."""
        mark, (start, end) = self.marks.get(tp), (log.begin, log.end)
        missing = partition_lag(tp, mark, self.problems, start=start, end=end)
        through = start if missing.through is None else missing.through
        lost = [each for each in self.problems if each.kind == SOURCE_TRUNCATED and each.concerns(tp)]
        last = mark.source_end if mark is not None and all(seen_since(mark, each) for each in lost) else 0
        if end < max(last, through):
            self.unsure.append(f"{tp} ends at {end:,} now and reached {max(last, through):,}: its end was lost there")
        if (missing.records is None or missing.at_most) and missing.reason:
            self.maybe_there[tp.topic] = missing.reason
        if tp in self.seen.unseen:
            self.unsure.append(f"whether {tp} has lost more since it lost its end isn't known")
        elif why := self.seen.unjudged.get(tp):
            self.unsure.append(why)
        if tp in self.partings:
            parting = self.partings[tp]
            if parting <= start < through:
                self.maybe_there[tp.topic] = f"from where on {tp} holds other records than were mirrored isn't known"
            elif through < min(parting, end):
                self.maybe_there[tp.topic] = "a transaction that is open again may hold what was mirrored as committed"
            through = min(through, parting)
        for number, gap in enumerate(missing.gaps):
            self.gaps += [{}] if number == len(self.gaps) else []
            self.gaps[number][tp] = OffsetRange(gap.begin, max(gap.begin, min(gap.until, through)))
        if start > through:
            self.unsure.append(f"{tp} begins at {start:,} now: what was between {through:,} and that is gone")
        self.tails[tp] = OffsetRange(max(through, start), max(end, through, start))


def _problems_now(
    estate: ClusterContext,
    link: Link,
    marks: Mapping[TopicPartition, Watermark],
    states: Mapping[str, TopicState],
    topics: Mapping[str, TopicInfo],
    logs: Mapping[TopicPartition, OffsetRange],
) -> ProblemsNow:
    """The link's problems, and what the old primary shows of them now."""
    control = estate.store.link_control(link.id)
    record = LinkRecord(link, control, marks, states, running=False, flowing=False, left=True)
    try:
        admin = estate.admin(link.id.target)
        there = admin.topics({state.target_topic for state in states.values()})
        starts = admin.start_offsets(
            [TopicPartition(name, number) for name, info in there.items() for number in range(info.partitions)],
            partial=True,
        )
        ids: dict[str, str] | None = {name: info.topic_id for name, info in there.items()}
    except Unreachable:
        starts, ids = {}, None
    begins, ends = ({tp: bounds[at] for tp, bounds in logs.items()} for at in (0, 1))
    seen = LogsSeen(begins, ends, starts, {}, topics.keys(), ids)
    return problems_now(estate, estate.store, record, seen, estate.store.problems(link.id), now())


def _partings(
    estate: ClusterContext,
    link: Link,
    marks: Mapping[TopicPartition, Watermark],
    states: Mapping[str, TopicState],
    seen: ProblemsNow,
) -> dict[TopicPartition, int]:
    """Where both sides part now, by what no problem on record says; the begin of a log, or 0, where that isn't known.

    Records of transactions that are open again are on the target as well: they aren't lost.
    """
    admin = estate.admin(link.id.source, may_be_gone=True)
    diverged = compare_source(admin, marks, states, committed=False).diverged
    sides = partial(link_sides, estate, link, estate.store, left=True)
    checked = check_divergences(diverged, marks, link=link.id, store=estate.store, sides=sides)
    partings = {tp: each.unsure[0] for tp, each in checked.items()}
    recorded = estate.store.problems(link.id)
    told = {(each.kind, each.topic, each.partition) for each in recorded}
    for problem in seen.problems:
        if problem.kind not in PARTED or problem.partition is None or problem in recorded:
            continue
        tp, place = TopicPartition(problem.topic, problem.partition), (problem.kind, problem.topic, problem.partition)
        if partings.get(tp) and place not in told:  # found by the same epochs, and lowered by an open transaction
            continue
        first = problem.differs_from or 0
        partings[tp] = min(partings[tp], first) if partings.get(tp) else first
    return partings


def _held_before(
    store: Store,
    link: Link,
    counted: Sequence[Mapping[TopicPartition, OffsetRange]],
    states: Mapping[str, TopicState],
    marks: Mapping[TopicPartition, Watermark],
) -> list[str]:
    """The topics of which the target may hold some of what is counted, from before they were accepted as new ones."""
    found = set()
    for tp in {tp for each in counted for tp, offsets in each.items() if offsets.begin < offsets.end}:
        if tp.topic not in states or states[tp.topic].epoch == 1:
            continue
        epoch, mark = states[tp.topic].epoch, marks.get(tp)
        log = (0, sys.maxsize) if mark is None else (mark.target_start, mark.target_end)
        rows_of = partial(store.mappings, link.id, tp)
        former = former_ranges(rows_of(epoch), epoch, log, rows_of)
        if any(tp in each and left_unread(*each[tp], former) for each in counted):
            found.add(tp.topic)
    return sorted(found)


def _is_another(topic: str, states: Mapping[str, TopicState], topics: Mapping[str, TopicInfo]) -> bool:
    """Whether a topic of this name is there, and nothing of it was mirrored."""
    return topic in states and topic in topics and topics[topic].topic_id != states[topic].source_topic_id


def _is_mirrored(tp: TopicPartition, states: Mapping[str, TopicState], topics: Mapping[str, TopicInfo]) -> bool:
    """Whether the partition's topic exists and is the mirrored one."""
    return tp.topic in states and tp.topic in topics and topics[tp.topic].topic_id == states[tp.topic].source_topic_id


def _scan(
    estate: ClusterContext, link: Link, ranges: Mapping[TopicPartition, OffsetRange]
) -> list[tuple[TopicPartition, CarriedRecords]]:
    """What the link carries of these ranges; an unreadable one says so."""
    try:
        return sorted(count_carried(estate, link, ranges, seconds=AUDIT_SECONDS).items(), key=lambda found: found[0])
    except DrkitError as error:
        return [(tp, CarriedRecords(reason=error.what)) for tp in sorted(ranges)]


def _of_topic(name: str, scanned: list[tuple[TopicPartition, CarriedRecords]], fenced_at: datetime) -> TopicLoss:
    mine = [each for tp, each in scanned if tp.topic == name]
    earliest = [each.earliest for each in mine if each.earliest is not None]
    age = max(0.0, (fenced_at - from_millis(min(earliest))).total_seconds()) if earliest else 0.0
    return TopicLoss(name, sum(each.records for each in mine), age)


_ANSWER_SECONDS = 10.0


@dataclass(slots=True)
class CarriedRecords:
    """The records of an offset range that the link carries. `earliest`: the smallest timestamp, ms; None: there is no
    record. `undecided`: how many of them stand behind an open transaction. `reason`: why the range was not read to its
    end; None: it was. `unaltered`: why what the filter leaves out is counted, too; None: it isn't."""

    records: int = 0
    earliest: int | None = None
    undecided: int = 0
    reason: str | None = None
    unaltered: str | None = None

    def add(self, timestamp: int, records: int = 1) -> None:
        """Count records, of which the earliest has this timestamp (ms)."""
        self.records += records
        self.earliest = timestamp if self.earliest is None else min(self.earliest, timestamp)


def count_carried(
    estate: ClusterContext, link: Link, ranges: Mapping[TopicPartition, OffsetRange], *, seconds: float
) -> dict[TopicPartition, CarriedRecords]:
    """Count the records of these ranges; what isn't read in time, or can't be, has a reason.

    Raises:
        Unreachable: the source doesn't answer.
    """
    from drkit.kafka.client.log_reader import LogReader  # noqa: PLC0415 - loads aiokafka

    source = link.id.source
    admin = estate.admin(source, may_be_gone=True)
    wanted = {tp: each for tp, each in ranges.items() if each.begin < each.end}
    found = {tp: CarriedRecords() for tp in ranges}
    stable = admin.end_offsets(wanted, committed=True, partial=True) if link.committed else {}
    alteration, unaltered = _alteration(estate, link, admin)
    until = time.monotonic() + seconds
    cluster, timeout = estate.config.clusters[source], min(seconds, _ANSWER_SECONDS)
    policies = admin.topic_configs({tp.topic for tp in wanted}, keys=(CLEANUP,), denied=set()) if wanted else {}
    dense = {topic for topic, settings in policies.items() if not is_compacted(settings)}
    with LogReader(source, cluster, timeout_seconds=timeout, committed=link.committed, dense=dense) as reader:
        for tp, (begin, end) in sorted(wanted.items()):
            if link.committed and tp not in stable:
                found[tp].reason = "no leader answers for it"
                continue
            decided = OffsetRange(begin, max(begin, min(end, stable.get(tp, end))))
            found[tp].unaltered = unaltered
            try:
                _count(_records(reader, tp, decided, until), tp, alteration, found[tp])
            except (DrkitError, Damaged, _Late) as error:
                found[tp].reason = str(error)
    held = {tp: OffsetRange(max(each.begin, stable[tp]), each.end) for tp, each in wanted.items() if tp in stable}
    _count_undecided(admin, {tp: each for tp, each in held.items() if each.begin < each.end}, found, until)
    return found


def _count(
    records: Iterator[RawRecord], tp: TopicPartition, alteration: Alteration | None, found: CarriedRecords
) -> None:
    if alteration is None:
        for record in records:
            found.add(record.timestamp)
        return
    from drkit.kafka.transform.record_transform import AlterationFailed  # noqa: PLC0415 - loads librdkafka

    try:
        for record in alteration.records(tp, records):
            found.add(record.timestamp)
    except AlterationFailed as error:
        found.reason = str(error)


def _count_undecided(
    admin: ClusterAdmin,
    ranges: Mapping[TopicPartition, OffsetRange],
    found: Mapping[TopicPartition, CarriedRecords],
    until: float,
) -> None:
    """Count what stands behind the last stable offset of its partition."""
    if not ranges:
        return
    for tp, seen in admin.scan(ranges, seconds=max(1.0, until - time.monotonic()), most_bytes=None).items():
        found[tp].reason = found[tp].reason or seen.reason
        if seen.records and seen.earliest is not None:
            found[tp].add(seen.earliest, seen.records)
            found[tp].undecided = seen.records


def _alteration(estate: ClusterContext, link: Link, source: ClusterAdmin) -> tuple[Alteration | None, str | None]:
    """What the link does to records, if anything, or why that isn't known here."""
    if not link.alters:
        return None, None
    from drkit.kafka.transform.record_transform import Alteration  # noqa: PLC0415 - loads librdkafka

    try:
        alteration = Alteration.of(estate.config, link)
        if link.marks and alteration is not None:
            alteration.identify(source.cluster_id(), estate.admin(link.id.target).cluster_id())
    except DrkitError as error:
        return None, error.what
    return alteration, None


class _Late(Exception):
    """Not read in time."""


def _records(reader: LogReader, tp: TopicPartition, offsets: OffsetRange, until: float) -> Iterator[RawRecord]:
    with closing(reader.records(tp.topic, tp.partition, offsets.begin, offsets.end)) as records:
        for record in records:
            if time.monotonic() > until:
                raise _Late("there was no time for it")
            yield record
