"""Finds one instant at which every mirrored topic is complete on the target. Pure.

An unplanned failover truncates each partition at another time. An instant T is *consistent* if the target has every
record stamped before T, on every partition. A partition's limit is:

- records are missing, and the source can be read: the earliest timestamp among the missing ones, including those of
  open transactions;
- records are missing, and the source is gone: they were appended after the mirrored ones, so they are stamped no
  earlier than the newest mirrored record, less the partition's lateness (by how much records in its tail were stamped
  before earlier ones);
- nothing was missing at the last look: later records are stamped no earlier than its begin, less lateness. So an idle
  topic delays nothing, as long as the mirror looks at it;
- it isn't known whether more is missing than is counted (both sides answer, and whether they still hold what was
  mirrored can't be told): as if the source were gone.

T is the least of the limits. Larger lateness than any in the tails, and producers' clocks that differ from the
mirror's, can't be known from the target alone; the messages say which limits rest on that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.snapshot import PartitionView, Snapshot
from drkit.kafka.client.record_probe import Scanned, SeenBatch
from drkit.model.clock import from_millis, iso
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition
from drkit.model.totals import total
from drkit.model.wording import and_more, counted

_SHOWN = 5
_CHANGELOG, REPARTITION = "-changelog", "-repartition"


@dataclass(frozen=True, slots=True)
class Limit:
    """The instant before which a partition is complete on the target, and why; `exact`: from the missing records."""

    topic: str
    partition: int
    before: datetime
    why: str
    exact: bool = False


@dataclass(frozen=True, slots=True)
class TopicBeyond:
    """What a topic has beyond the cut: target offsets (read again), source offsets that are missing."""

    topic: str
    on_target: int
    missing: int | None


@dataclass(frozen=True, slots=True)
class ConsistentCut:
    """The instant, its lowest limits, what lies beyond it, and the transactions and applications that it divides."""

    instant: datetime
    limits: tuple[Limit, ...]
    beyond: tuple[TopicBeyond, ...] = ()
    cuts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tails:
    """The data read, by the source's names.

    `target`: the tail of each partition there; `missing`: records that it lacks, if the source answered.
    """

    target: Mapping[TopicPartition, Scanned]
    missing: Mapping[TopicPartition, Scanned]


def consistent_cut(snapshot: Snapshot, tails: Tails, covered: Iterable[TopicPartition]) -> ConsistentCut:
    """The latest consistent instant over these partitions.

    Raises:
        Refused: for the named partition nothing bounds the missing records.
    """
    limits = sorted(
        (_limit(snapshot, snapshot.partitions[tp], tails) for tp in covered), key=lambda limit: limit.before
    )
    if not limits:
        raise Refused("no partition is mirrored", remedy="Run the mirror first")
    instant = limits[0].before.replace(microsecond=limits[0].before.microsecond // 1000 * 1000)
    return ConsistentCut(instant, tuple(limits[:_SHOWN]))


def moment_of(cut: ConsistentCut) -> Moment:
    """The cut as a moment for placing groups."""
    return Moment("--consistent", cut.instant, "UTC", str(iso(cut.instant)))


def beyond(snapshot: Snapshot, covered: Iterable[TopicPartition]) -> tuple[TopicBeyond, ...]:
    """What each topic has beyond the cut, most first; the views know the first offset from it on."""
    held: dict[str, int] = defaultdict(int)
    missing: dict[str, list[int | None]] = defaultdict(list)
    for tp in covered:
        view = snapshot.partitions[tp]
        end = view.target_end or 0
        held[tp.topic] += end - min(end, end if view.at_offset is None else view.at_offset)
        missing[tp.topic].append(view.lag)
    topics = [TopicBeyond(topic, held[topic], total(missing[topic])) for topic in held]
    return tuple(sorted(topics, key=lambda t: (-(t.missing or 0), -t.on_target, t.topic)))


def streams_cut(snapshot: Snapshot, covered: Sequence[TopicPartition]) -> list[str]:
    """Streams applications with state beyond the cut, one sentence each.

    An application's internal topics are named after its group: `<application.id>-…-changelog`, `-repartition`. State is
    restored from the whole changelog, so it is ahead of input positions that were moved back.
    """
    groups = {position.group for position in snapshot.positions}
    ahead: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for tp in covered:
        view = snapshot.partitions[tp]
        owner = streams_owner(tp.topic, groups)
        if owner is None or view.at_offset is None or view.target_end is None:
            continue
        ahead[owner][tp.topic] += max(0, view.target_end - view.at_offset)
    sentences = []
    for group, topics in sorted(ahead.items()):
        logs = {topic: count for topic, count in topics.items() if topic.endswith(_CHANGELOG) and count}
        if logs:
            named = ", ".join(f"{topic} ({count:,} records)" for topic, count in sorted(logs.items()))
            sentences.append(
                f"{group} is a Streams application whose state goes beyond the cut: {named}; it counts again what it "
                "reads again, unless its state is reset too (kafka-streams-application-reset, and its local state)"
            )
    return sentences


def transactions_cut(
    at_millis: int, around: Mapping[TopicPartition, Scanned], cut: Mapping[TopicPartition, int]
) -> list[str]:
    """Transactions with records on both sides of the cut, one sentence for each producer.

    A transaction is open at a partition's cut if it has records below it and its marker at or after it. It is divided
    if it also has records at or after the cut, in that partition or another one: those stamped no later than its
    marker.

    Args:
        at_millis: the instant.
        around: the source's batches near the cut, by partition.
        cut: the first source offset from the instant on, by partition.
    """
    ends: dict[int, int] = {}
    below: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp, scanned in around.items():
        for producer, marker in _open_at(scanned.batches, cut[tp]).items():
            below[producer].append(tp)
            ends[producer] = max(ends.get(producer, at_millis), marker)
    sentences = []
    for producer, tps in sorted(below.items()):
        after = [
            tp
            for tp, scanned in around.items()
            if any(
                batch.producer == producer
                and not batch.control
                and batch.last_offset >= cut[tp]
                and batch.earliest <= ends[producer]
                for batch in scanned.batches
            )
        ]
        if after:
            earlier, later = (and_more([str(tp) for tp in sorted(tps)]) for tps in (tps, after))
            sentences.append(
                f"a transaction of producer {producer} is cut in two: records on {earlier} lie before the instant, "
                f"records on {later} from it on"
            )
    return sentences


def _limit(snapshot: Snapshot, view: PartitionView, tails: Tails) -> Limit:
    tail = tails.target.get(view.tp)
    late = timedelta(milliseconds=tail.late if tail is not None else 0)
    lately = f", less the lateness of {late.total_seconds():g} s seen in its tail" if late else ""
    lately += f" ({tail.reason})" if tail is not None and tail.reason is not None else ""
    if view.lag is None:
        raise _unknown(view, view.missing.reason or "the content of the source is unknown")
    if view.missing.gaps:
        gap = view.missing.gaps[0]
        raise _unknown(view, f"source offsets {gap.begin} to {gap.until - 1} are missing on {snapshot.target.alias}")
    missing = tails.missing.get(view.tp)
    unjudged = view.missing.reason if view.missing.at_least else None
    if missing is not None and missing.reason is None and missing.earliest is not None and unjudged is None:
        first = from_millis(missing.earliest)
        rest = view.lag - view.held
        parts = [counted(rest, "missing offset")] if rest else []
        held = " and ".join([*parts, *(["records held by an open transaction"] if view.held or not rest else [])])
        return Limit(*view.tp, first, f"the earliest of {held} is stamped {iso(first)}", exact=True)
    if tail is not None and tail.reason is not None and tail.newest is None:
        raise _unknown(view, f"its tail on {snapshot.target.alias} could not be read: {tail.reason}")
    begun = snapshot.begun_at or snapshot.observed_at
    if view.lag == 0 and unjudged is None:
        live = view.source_end is not None
        looked = begun if live else None if view.watermark is None else view.watermark.observed_at
        if looked is None:
            raise _unknown(view, "the mirror never looked at it")
        return Limit(*view.tp, looked - late, f"nothing was missing when it was looked at, {iso(looked)}{lately}")
    if missing is not None and missing.reason is None and unjudged is None:
        return Limit(*view.tp, begun - late, "no record is missing, only control records", exact=True)
    count = f"{view.lag:,} offsets are missing" + (f" or more ({unjudged})" if unjudged else "")
    if tail is None or tail.newest is None:
        raise _unknown(view, f"{count} and none is on the target")
    newest = from_millis(tail.newest)
    why = f"{count}; the newest record on the target is stamped {iso(newest)}{lately}"
    before = newest - late
    if missing is not None and missing.earliest is not None and from_millis(missing.earliest) < before:
        before = from_millis(missing.earliest)
        why = f"{count}, of those that were read the earliest is stamped {iso(before)}"
    return Limit(*view.tp, before, why)


def _unknown(view: PartitionView, why: str) -> Refused:
    return Refused(
        f"no consistent instant is known: {view.tp}: {why}",
        meaning="Any instant could lie after a record that is lost",
        remedy="Give an instant yourself with --at, or leave the topic out with --topic",
    )


def _open_at(batches: Sequence[SeenBatch], cut: int) -> dict[int, int]:
    """Producers with a transaction open at the cut, and the timestamp of its marker (or of the last batch seen)."""
    open_now: set[int] = set()
    ends: dict[int, int] = {}
    for batch in batches:
        if batch.producer is None:
            continue
        if batch.base_offset < cut:  # a batch may itself cross the cut
            (open_now.discard if batch.control else open_now.add)(batch.producer)
        elif batch.producer in open_now and batch.producer not in ends and batch.control:
            ends[batch.producer] = batch.latest
    last = max((batch.latest for batch in batches), default=0)
    return {producer: ends.get(producer, last) for producer in open_now}


def streams_owner(topic: str, groups: Collection[str]) -> str | None:
    """The group whose Streams application owns an internal topic: the longest matching name."""
    if not topic.endswith((_CHANGELOG, REPARTITION)):
        return None
    return max((group for group in groups if topic.startswith(f"{group}-")), key=len, default=None)
