"""Obstacles for consumers of the target that are no source records: an unreadable batch without source records (a
marker, somebody else's records), and an open transaction.

No finding names them, so they make the verdict incomplete: not all of the target can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import functions as F

from drkit.audit.classify.classifier import TARGET_HIDDEN
from drkit.audit.classify.run_classification import Judgement, images
from drkit.audit.compare.scope import PartitionScope, Scope
from drkit.model.audit.audit_result import FindingKind
from drkit.model.offsets import merged_ranges, without_ranges
from drkit.model.wording import counted

_NAMED = 3


class IncomparableOffsets(NamedTuple):
    """How many offsets of a partition can't be compared, below which they are, and why, in words."""

    offsets: int
    until: int
    words: str


def unreadable_target(scope: Scope, judgement: Judgement) -> dict[int, IncomparableOffsets]:
    """By partition, what of the target can't be read and stands for no record of the source."""
    unreadable = judgement.comparison.target_unreadable
    named = _named(judgement) if unreadable else Counter[int]()
    found: dict[int, IncomparableOffsets] = {}
    for number, members in sorted(unreadable.items()):
        each = scope.partitions[number]
        beside = images(each, judgement.comparison.source_unreadable.get(number, ()))  # said of the source already
        ranges = _of_link(each, without_ranges(members, beside), judgement.bounds.get(number))
        more = sum(until - first for first, until in ranges) - named[number]
        if more > 0:
            found[number] = IncomparableOffsets(more, ranges[-1][1], _unreadable_words(scope, each, ranges, more))
    return found


def hidden_target(scope: Scope, counts: Mapping[int, Mapping[str, int]]) -> dict[int, IncomparableOffsets]:
    """By partition, which of the target's records stand behind an open transaction.

    Args:
        scope: what was compared.
        counts: by partition and outcome.
    """
    target = scope.link.id.target
    return {
        number: IncomparableOffsets(
            hidden,
            each.hidden.end,
            f"{each.target_topic}:{each.partition} on {target} can be read only up to offset {each.hidden.begin - 1}: "
            f"a transaction is open there, and {counted(hidden, 'record')} after it can't be compared. Its producer "
            "ends it, or its time-out does; kafka-transactions.sh find-hanging names one that nobody ends",
        )
        for number, of in sorted(counts.items())
        if (hidden := of.get(TARGET_HIDDEN, 0))
        for each in (scope.partitions[number],)
    }


def _of_link(each: PartitionScope, ranges: Sequence[tuple[int, int]], bound: int | None) -> list[tuple[int, int]]:
    """What of these target offsets is the link's, and wasn't counted before."""
    cut = merged_ranges((first, until if bound is None else min(until, bound)) for first, until in ranges)
    return without_ranges(cut, each.told)


def _named(judgement: Judgement) -> Counter[int]:
    """By partition, how many records are findings as their place can't be read, whatever the time window."""
    unreadable = FindingKind.UNREADABLE
    found = Counter(entry.p for entry in judgement.settled if entry.outcome == unreadable)
    stayed = judgement.stayed
    if stayed is not None and not judgement.comparison.in_tasks.isdisjoint(judgement.comparison.target_unreadable):
        for row in stayed.where(F.col("outcome") == str(unreadable)).groupBy("p").count().collect():
            found[row["p"]] += row["count"]
    return found


def _unreadable_words(scope: Scope, each: PartitionScope, ranges: Sequence[tuple[int, int]], more: int) -> str:
    link = scope.link.id
    named = [str(first) if until == first + 1 else f"{first} to {until - 1}" for first, until in ranges[:_NAMED]]
    offsets = "offset" if named == [str(ranges[0][0])] else "offsets"
    rest = "" if len(ranges) <= _NAMED else f" and {counted(len(ranges) - _NAMED, 'further range')}"
    whole = more == sum(until - first for first, until in ranges)
    which = f"{more:,} of these offsets" if not whole else "this offset" if more == 1 else "these offsets"
    return (
        f"{link.target} can't be read at {each.target_topic}:{each.partition}, {offsets} {', '.join(named)}{rest}: "
        f"its batches fail their checksum, so a consumer that checks CRCs stops. No record of {link.source} "
        f"has its place at {which}"
    )
