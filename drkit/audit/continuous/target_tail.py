"""Audits records on the target after the last mirrored one: they belong to no closed range."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from drkit.audit.classify.run_classification import Judgement, judge
from drkit.audit.compare.offset_zones import place, source_of
from drkit.audit.compare.record_frames import ScopeReader
from drkit.audit.compare.scope import PartitionScope, log_starts, observe_scope
from drkit.audit.continuous.closed_ranges import MOST_SAMPLES, after_place
from drkit.audit.findings.unreadable import unreadable_target
from drkit.audit.spark.failures import LogMoved, in_words
from drkit.config import Config
from drkit.model.audit.audit_result import AuditRequest, Counts, FindingKind, TopicChoice
from drkit.model.audit.continuous_audit import AuditProgress, ClosedRange, Reconciled, Sample, incarnation_name
from drkit.model.clock import now, to_millis
from drkit.model.topology import Link
from drkit.store.api import Store


class TargetTailAudit:
    """Audits the records on the target after the last one that was mirrored and reconciled.

    They are in no closed range, so nothing would read them before the mirror continues. Records that the mirror may
    have written beyond its watermark are left to their future range.
    """

    def __init__(self, link: Link, store: Store, config: Config) -> None:
        self._link = link
        self._store = store
        self._config = config
        self._ends: dict[str, int] = {}

    def check(self, progress: AuditProgress, session: Callable[[], SparkSession]) -> list[TargetTail]:
        """The records there that weren't reported yet.

        Args:
            progress: up to where partitions are reconciled, and what was told of before.
            session: asked for only where there is something to compare.

        Raises:
            LogMoved: retention moved a log meanwhile.
            Unreachable, AuthenticationError: a cluster or the store doesn't answer, or refuses drkit.
            ConfigError: a topic is gone.
        """
        if not progress.through:
            self._store.link_control(self._link.id)  # that the store doesn't answer is told, though nothing is to audit
            return []
        topics = sorted({name.rpartition(":")[0] for name in progress.through})
        request = AuditRequest(link=self._link, out="", topics=tuple(map(TopicChoice, topics)))
        states = self._store.topic_states(self._link.id)
        whole = observe_scope(request, self._store, self._config)
        parts: list[PartitionScope] = []
        for each in whole.partitions:
            if each.sealed_at is not None:
                continue  # failed over: what is appended there is its clients'
            name = f"{each.topic}:{each.partition}"
            at, state = progress.through.get(name), states.get(each.topic)
            if state is not None and not progress.is_of(name, incarnation_name(state.epoch, state.incarnation)):
                continue  # of a former topic of that name
            if at is None or each.mirrored_through != at or self._ends.get(name) == each.target_end:
                continue  # a range is to come, or nothing has
            place_after = after_place(each, at)
            first = max(min(place_after, progress.reached.get(name, place_after)), each.target_start)
            known = tuple(progress.told.get(name, ()))
            if first < each.target_end and (first, each.target_end) not in known:
                source_from = min(max(at, each.source_start), each.source_end)
                beyond = range(source_from, each.source_end)  # what has its place behind all that is there isn't there
                source_end = source_from + bisect_left(beyond, each.target_end, key=partial(place, each.zones))
                part = replace(each, number=len(parts), source_from=source_from, source_end=source_end)
                parts.append(replace(part, target_from=first, sealed_at=None, partial=True, told=known))
            else:
                self._ends[name] = each.target_end
        if not parts:
            return []
        scope = replace(whole, partitions=tuple(parts))
        with in_words("the continuous audit"):
            judgement = judge(ScopeReader(session(), scope))
            found = [_behind(each, judgement) for each in parts]
            hindered = unreadable_target(scope, judgement)
            found += [_unreadable(parts[number], each.words) for number, each in hindered.items()]
        if log_starts(scope, self._config) != scope.starts():
            raise LogMoved("retention moved a log meanwhile", remedy="drkit tries again")
        self._ends |= {f"{each.topic}:{each.partition}": each.target_end for each in parts}
        return [each for each in found if each is not None]

    def again(self) -> None:
        """What was found could not be reported: find it again."""
        self._ends.clear()


class TargetTail(NamedTuple):
    """What was found behind a partition's last mirrored record, and the target offsets that are told of with it."""

    outcome: Reconciled
    offsets: tuple[tuple[int, int], ...]


def _unreadable(each: PartitionScope, problem: str) -> TargetTail:
    """What can't be read there: whatever it is, a consumer stops at it. It is told of once."""
    at, there = each.source_from, (each.target_from, each.target_end)
    closed = ClosedRange(each.topic, each.partition, 0, at, at, to_millis(now()))
    return TargetTail(Reconciled(closed, each.target_topic, problem=problem, behind=there), (there,))


def _behind(each: PartitionScope, judgement: Judgement) -> TargetTail | None:
    kinds = {str(FindingKind.DUPLICATED), str(FindingKind.FOREIGN)}
    found: Iterable[tuple[str, int | None, int | None]] = sorted(
        (
            (str(entry.outcome), entry.s, entry.t)
            for entry in judgement.settled
            if entry.p == each.number and entry.t is not None
        ),
        key=lambda one: one[2] or 0,
    )
    if judgement.stayed is not None and not found:  # a partition's classifications are here or there
        stayed = judgement.stayed.where((F.col("p") == each.number) & F.col("outcome").isin(*kinds))
        rows = stayed.select("outcome", "s", "t").orderBy("t").toLocalIterator()
        found = ((row["outcome"], row["s"], row["t"]) for row in rows)
    offsets: list[tuple[int, int]] = []
    counts: Counter[str] = Counter()
    first: list[Sample] = []
    for kind, s, t in found:
        if kind not in kinds or t is None:
            continue
        place_of = source_of(each.zones, t)
        if place_of is not None and each.source_from <= place_of < each.source_end:
            continue  # a source record's place, to which the mirror will come
        if s is not None and place_of == s:
            continue  # the record itself, come late
        counts[kind] += 1
        if offsets and offsets[-1][1] == t:
            offsets[-1] = (offsets[-1][0], t + 1)
        else:
            offsets.append((t, t + 1))
        if counts[kind] <= MOST_SAMPLES:
            first.append(Sample(kind, s, t))
    if not offsets:
        return None
    at = each.source_from
    summed = Counts(target_records=counts.total(), **counts)
    outcome = Reconciled(
        ClosedRange(each.topic, each.partition, 0, at, at, to_millis(now())),
        each.target_topic,
        counts=summed,
        first=tuple(first),
        behind=(offsets[0][0], offsets[-1][1]),
    )
    return TargetTail(outcome, tuple(offsets))
