"""Compares closed ranges like an audit: batches first, records where they differ.

An audit's scope is limited to the ranges: source offsets [first, until) and their places on the target. So the verdict
is the audit's, on less data.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from drkit.audit.classify.run_classification import TARGET_RETIRED, Judgement, judge
from drkit.audit.compare.offset_zones import place
from drkit.audit.compare.record_frames import ScopeReader
from drkit.audit.compare.scope import PartitionScope, Scope, log_starts, observe_scope
from drkit.audit.findings.findings import OutcomeCounts, count, outcome_counts
from drkit.audit.findings.unreadable import hidden_target, unreadable_source, unreadable_target
from drkit.audit.spark.failures import LogMoved, in_words
from drkit.audit.spark.session import describe
from drkit.config import Config
from drkit.model.audit.audit_result import AuditRequest, Counts, TopicChoice
from drkit.model.audit.continuous_audit import (
    GONE,
    KINDS,
    ClosedRange,
    Reconciled,
    Sample,
    incarnation_name,
    one_incarnation,
)
from drkit.model.errors import AuthenticationError, ConfigError
from drkit.model.link_state import TopicState
from drkit.model.topology import Link
from drkit.store.api import Store

_ATTEMPTS = 4
MOST_SAMPLES = 5
_TOLD = (*KINDS, TARGET_RETIRED)


CountedRanges = Mapping[str, Sequence[tuple[int, int]]]
"""Target offsets that were counted already, as ranges, by `topic:partition`."""


def reconcile(
    ranges: Sequence[ClosedRange], told: CountedRanges, link: Link, store: Store, config: Config, spark: SparkSession
) -> list[Reconciled]:
    """Compare ranges of different partitions, all in one go.

    Records on the target behind the last mirrored one belong to no range: `continuous/target_tail.py` audits these.

    Raises:
        LogMoved: retention moved the logs faster than they could be read.
        Unreachable, AuthenticationError: a cluster or the store doesn't answer, or refuses drkit; nothing was decided.
        DrkitError: Spark failed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            whole = observe_scope(AuditRequest(link=link, out="", topics=_choices(ranges)), store, config)
        except AuthenticationError:
            raise
        except ConfigError as error:  # a topic that has been deleted since
            if len(ranges) == 1:
                return [Reconciled(ranges[0], link.target_topic(ranges[0].topic), problem=error.what)]
            return [found for each in ranges for found in reconcile([each], told, link, store, config, spark)]
        scope, kept, aside = _cut_down(whole, ranges, told, store)
        if not kept:
            return aside
        try:
            with in_words("the continuous audit"):
                found = _compared(scope, kept, spark)
        except LogMoved:
            if attempt == _ATTEMPTS:
                raise
            continue
        if log_starts(scope, config) == scope.starts():
            return sorted(aside + found, key=lambda each: each.closed)  # the sum goes on from a partition's last
    raise LogMoved(
        f"retention moved a log during each of {_ATTEMPTS} looks at closed ranges",
        remedy="drkit tries again; check whether retention is far too short",
    )


def begin(
    ranges: Sequence[ClosedRange], begins: Mapping[str, int] | None, link: Link, store: Store, config: Config
) -> tuple[list[ClosedRange], list[Reconciled], dict[str, int]]:
    """Where ranges begin, however long they are: what the logs no longer hold isn't cut into lots.

    A partition's opening range begins where both logs begin when it is seen first: what retention had
    taken by then was never promised. Of any other, what the source's retention took is unknown.

    Args:
        ranges: of different partitions.
        begins: what an earlier look at the same ranges has found; it holds. None: this is the first look.
        link: whose they are.
        store: mapping rows and topics' epochs.
        config: both clusters.

    Returns:
        What is to be compared, what can be said at once, and where those ranges begin that don't at their `first`, by
        `ClosedRange.name`.

    Raises:
        Unreachable, AuthenticationError: a cluster or the store doesn't answer, or refuses drkit.
    """
    try:
        whole = observe_scope(AuditRequest(link=link, out="", topics=_choices(ranges)), store, config)
    except AuthenticationError:
        raise
    except ConfigError as error:  # a topic that has been deleted since
        if len(ranges) == 1:
            return [], [Reconciled(ranges[0], link.target_topic(ranges[0].topic), problem=error.what)], {}
        looks = [begin([each], begins, link, store, config) for each in ranges]
        return (
            [found for kept, _, _ in looks for found in kept],
            [found for _, aside, _ in looks for found in aside],
            {name: at for _, _, known in looks for name, at in known.items()},
        )
    observed = {(each.topic, each.partition): each for each in whole.partitions}
    states = store.topic_states(link.id)
    kept: list[ClosedRange] = []
    aside: list[Reconciled] = []
    found: dict[str, int] = {}
    for each in ranges:
        scope = observed[each.topic, each.partition]
        if (other := _another(each, scope, states)) is not None:
            aside.append(other)
            continue
        at = _start(scope, each) if begins is None else begins.get(each.name, each.first)
        if at > each.first:
            found[each.name] = at
            if not each.opening:
                aside.append(_taken(each._replace(until=at), scope.target_topic))
        if at < each.until:
            kept.append(each._replace(first=at))
        elif each.opening:
            aside.append(Reconciled(each._replace(first=at), scope.target_topic))
    return kept, aside, found


def _start(scope: PartitionScope, closed: ClosedRange) -> int:
    """The range's first offset that the source's log holds; of a partition's first range, and the target's too."""
    at = min(max(closed.first, scope.source_start), closed.until)
    if not closed.opening or scope.target_start == 0:
        return at
    held = range(at, closed.until)
    return at + bisect_left(held, scope.target_start, key=lambda offset: place(scope.zones, offset))


def _another(closed: ClosedRange, scope: PartitionScope, states: Mapping[str, TopicState]) -> Reconciled | None:
    """What is said of a range whose topic was deleted and recreated since."""
    state = states.get(closed.topic)
    if state is None or one_incarnation(incarnation_name(state.epoch, state.incarnation), closed.incarnation_name):
        if scope.mirrored_through is not None:
            return None
        problem = "the source no longer has the topic that was mirrored: it was deleted or recreated"
        return Reconciled(closed, scope.target_topic, problem=problem)
    which = f"epoch {state.epoch}, not {closed.epoch}" if state.epoch != closed.epoch else "it has other topic ids"
    problem = f"the topic is another one by now ({which})"
    return Reconciled(closed, scope.target_topic, problem=problem)


def _taken(closed: ClosedRange, target_topic: str) -> Reconciled:
    taken = closed.until - closed.first
    problem = f"the source's retention took {taken} offsets of it before they were looked at"
    return Reconciled(closed, target_topic, problem=problem)


def _cut_off(closed: ClosedRange, scope: PartitionScope) -> Reconciled:
    problem = f"the source's log ends at {scope.source_end}, before what was mirrored of it"
    return Reconciled(closed, scope.target_topic, problem=problem)


def _choices(ranges: Sequence[ClosedRange]) -> tuple[TopicChoice, ...]:
    by_topic: defaultdict[str, set[int]] = defaultdict(set)
    for each in ranges:
        by_topic[each.topic].add(each.partition)
    return tuple(TopicChoice(topic, frozenset(numbers)) for topic, numbers in sorted(by_topic.items()))


def _cut_down(
    whole: Scope, ranges: Sequence[ClosedRange], told: CountedRanges, store: Store
) -> tuple[Scope, list[ClosedRange], list[Reconciled]]:
    """The scope of the ranges alone, those ranges in its order, and what of others can be said at once."""
    observed = {(each.topic, each.partition): each for each in whole.partitions}
    states = store.topic_states(whole.link.id)
    parts: list[PartitionScope] = []
    kept: list[ClosedRange] = []
    aside: list[Reconciled] = []
    for each in ranges:
        scope = observed[each.topic, each.partition]
        if (other := _another(each, scope, states)) is not None:
            aside.append(other)
            continue
        taken = min(each.until, scope.source_start)
        if taken > each.first:
            aside.append(_taken(each._replace(until=taken), scope.target_topic))
        first = max(each.first, scope.source_start)
        until = max(first, min(each.until, scope.source_end))
        if until < each.until:  # records that were mirrored are in no log any more that could be compared
            aside.append(_cut_off(each._replace(first=until), scope))
            if until == first:
                continue
        # after the place of the last before, so that ranges leave no gap between them where the delta changes
        target_until = min(max(after_place(scope, until), scope.target_start), scope.target_end)
        if until == each.until == scope.source_end and scope.sealed_at is None:
            # nothing of the source is to come: what is there may be displaced. After a failover it is its clients'
            target_until = scope.target_end
        target_from = scope.target_start if each.opening else max(after_place(scope, first), scope.target_start)
        parts.append(
            replace(
                scope,
                number=len(parts),
                source_from=first,
                source_end=until,
                target_from=min(target_from, target_until),
                target_end=target_until,
                sealed_at=None,
                partial=True,
                told=tuple(told.get(f"{each.topic}:{each.partition}", ())),
            )
        )
        kept.append(each._replace(until=min(until, each.until)))
    return replace(whole, partitions=tuple(parts)), kept, aside


def _beyond(part: PartitionScope) -> tuple[int, int] | None:
    """The target offsets of a range's scope that are behind its last place."""
    first = max(after_place(part, part.source_end), part.target_start)
    return (first, part.target_end) if first < part.target_end else None


def after_place(scope: PartitionScope, offset: int) -> int:
    """The target offset after the place of the last source offset below this one."""
    return place(scope.zones, offset - 1) + 1 if offset > 0 else 0


def _compared(scope: Scope, ranges: Sequence[ClosedRange], spark: SparkSession) -> list[Reconciled]:
    describe(spark, f"continuous audit of {scope.link.id}: comparing {len(ranges)} ranges")
    judgement = judge(ScopeReader(spark, scope))
    counts = outcome_counts(scope, judgement)
    audits = count(scope, judgement, counts)
    first = _first(judgement)
    unknown = _unknown(scope, judgement, counts)
    found = [
        Reconciled(
            closed,
            part.target_topic,
            counts=_live(audit.counts),
            gone=0 if part.compaction_explains else audit.counts.target_retired,
            first=tuple(first[part.number]),
            reached=part.target_end,
            beyond=_beyond(part),
        )
        for closed, part, audit in zip(ranges, scope.partitions, audits, strict=True)
    ]
    return [
        Reconciled(each.closed, each.target_topic, problem=unknown[part.number])
        if part.number in unknown and not each.deviates
        else each
        for each, part in zip(found, scope.partitions, strict=True)
    ]


def _unknown(scope: Scope, judgement: Judgement, counts: OutcomeCounts) -> dict[int, str]:
    """Why partitions could not be compared as a whole: one side can't be read there, or a callable has no answer."""
    hindered = unreadable_target(scope, judgement) | hidden_target(scope, counts)
    of_target = {number: each.words for number, each in hindered.items()}
    return of_target | dict(reversed(unreadable_source(scope, judgement.comparison.source_unreadable)))


def _first(judgement: Judgement) -> dict[int, list[Sample]]:
    """The first records of each kind of deviation, by the partition's number."""
    found = [(each.p, str(each.outcome), each.s, each.t) for each in judgement.settled if str(each.outcome) in _TOLD]
    if judgement.stayed is not None:
        nth = F.row_number().over(Window.partitionBy("p", "outcome").orderBy("s", "t"))
        wanted = judgement.stayed.where(F.col("outcome").isin(*_TOLD)).withColumn("nth", nth)
        rows = wanted.where(F.col("nth") <= MOST_SAMPLES).select("p", "outcome", "s", "t").collect()
        found += [(row["p"], row["outcome"], row["s"], row["t"]) for row in rows]
    found.sort(key=lambda each: tuple((part is not None, part) for part in each))
    samples: defaultdict[int, list[Sample]] = defaultdict(list)
    taken: Counter[tuple[int, str]] = Counter()
    for number, outcome, s, t in found:
        taken[number, outcome] += 1
        if taken[number, outcome] <= MOST_SAMPLES:
            samples[number].append(Sample(GONE if outcome == TARGET_RETIRED else outcome, s, t))
    return samples


def _live(counts: Counts) -> Counts:
    """Within a range there is no target of its applications' own, and what is above the watermark is not in it."""
    return replace(counts, target_appended=0)
