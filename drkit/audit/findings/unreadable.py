"""What of either side can't be compared, in words: no finding names it, so it makes the verdict incomplete.

Of the source: what can't be read, and records of which nobody can say what the link made. Of the target: an unreadable
batch without source records (a marker, somebody else's records), and what stands behind an open transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from pyspark.sql import functions as F

from drkit.audit.classify.classifier import TARGET_HIDDEN
from drkit.audit.classify.run_classification import Judgement, images
from drkit.audit.compare.first_pass import Unreadable
from drkit.audit.compare.scope import PartitionScope, Scope
from drkit.audit.read.log_tasks import opened
from drkit.kafka.client.log_reader import OffsetsGone, TopicGone
from drkit.kafka.transform.transformed_reader import AlteredReader
from drkit.model.audit.audit_result import FindingKind
from drkit.model.offsets import merged_ranges, without_ranges
from drkit.model.wording import counted

DAMAGED = "batches there fail their checksum, or the broker can't find them (a topic that isn't compacted has no gaps)"

_FEW = 1_000
"""Offsets that are looked at again to say why."""


def unreadable_source(scope: Scope, ranges: Unreadable) -> list[tuple[int, str]]:
    """Where the source can't be read, or nobody can say what the link made of it, in words: what is there is compared
    with nothing.

    Args:
        scope: what was compared.
        ranges: the source's offsets that tasks could not read.

    Returns:
        The partition's number and the words, of each range.

    Raises:
        Unreachable: the source doesn't answer.
    """
    names = [f"{scope.link.id.source} can't be read at {each.topic}:{each.partition}" for each in scope.partitions]
    return [
        (number, f"{names[number]} from offset {first} to {until - 1}: {_why(scope, number, first, until)}")
        for number, members in sorted(ranges.items())
        for first, until in members
    ]


def _why(scope: Scope, number: int, first: int, until: int) -> str:
    """Why tasks could not tell what a range of the source is on the target: a callable is asked about it once more."""
    damaged = DAMAGED
    if not scope.asks_callables:
        return damaged
    each = scope.partitions[number]
    until = min(until, first + _FEW)
    with suppress(OffsetsGone, TopicGone), opened(scope.source_reached()) as reader:
        assert isinstance(reader, AlteredReader)  # noqa: S101 - the link alters
        with closing(reader.read(each.topic, each.partition, first, until)) as answers:
            readable = all(batch.readable for found in answers for batch in found)
        if reader.reasons:
            return reader.reasons[0]
        if readable:
            return "a callable of the link raised, or gave two answers, when Spark's tasks asked it; it does not always"
    return damaged  # or what was there has gone since


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
    """By partition, what of the target stands behind an open transaction: records of the source that have their place
    there, or, until the link is failed over (then clients write there), anything: it may be records of nobody's.

    Args:
        scope: what was compared.
        counts: by partition and outcome.
    """
    target = scope.link.id.target
    found = {}
    for each in scope.partitions:
        records = counts.get(each.number, {}).get(TARGET_HIDDEN, 0)
        offsets = each.hidden.end - each.hidden.begin
        if not records and not (offsets and each.sealed_at is None):
            continue
        found[each.number] = IncomparableOffsets(
            records or offsets,
            each.hidden.end,
            f"{each.target_topic}:{each.partition} on {target} can be read only up to offset {each.hidden.begin - 1}: "
            f"a transaction is open there, and {counted(records, 'record') if records else counted(offsets, 'offset')} "
            "after it can't be compared. Its producer ends it, or its time-out does; kafka-transactions.sh "
            "find-hanging names one that nobody ends",
        )
    return found


def hidden_source(scope: Scope) -> tuple[str, ...]:
    """What of the source stands behind an open transaction, in words: it isn't compared, as no reader of committed
    records, and so no mirror of such a link, gets it yet."""
    source = scope.link.id.source
    hidden = [(each, each.source_hidden.begin, each.source_hidden.end) for each in scope.partitions]
    return tuple(
        f"{each.topic}:{each.partition}: offsets {begin} to {end - 1} of {source} stand behind a transaction "
        "that is open there: they are neither compared nor mirrored before it ends, and --fail-on unseen counts them. "
        "kafka-transactions.sh find-hanging names one that nobody ends"
        for each, begin, end in hidden
        if begin < end
    )


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
        f"{DAMAGED}: a consumer that checks CRCs stops there, or skips it. No record of {link.source} "
        f"has its place at {which}"
    )
