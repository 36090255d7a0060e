"""Where on the source a record may be that equals one of a few on the target, without decoding the source.

Whether a target record is a further copy of some source record can only be told by looking at all of the
partition. Its value (or key) as it stands in a batch's plain bytes is looked for there, which costs a fraction of
decoding; only batches in which it occurs are decoded, and compared by digest as ever. Equal records have equal
bytes, so nothing is missed; bytes that occur by chance only cost a little.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import DataFrame

from drkit.audit.log_source import read_records, search_batches
from drkit.audit.reading import Reader, merged, ranges_of
from drkit.audit.spans import Span

MOST_NEEDLES = 128
"""Records looked for in one partition; more are found faster by decoding it. One takes some 15 µs a batch of 1,000
records of 150 bytes, decoding and digesting that batch 4 ms."""

SHORTEST = 8
"""Bytes that a needle has at least; shorter ones would be found everywhere."""


def may_equal(reader: Reader, target: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Source records (as `Reader.source` gives them), among them all that equal one of the target's.

    Args:
        reader: reads both sides.
        target: records of the target (`p`, `t`).
        numbers: the partitions they are in.
    """
    counts = {row["p"]: row["count"] for row in target.groupBy("p").count().collect()}
    few = sorted(number for number in numbers if 0 < counts.get(number, 0) <= MOST_NEEDLES)
    needles = _needles(reader, target, few) if few else {}
    whole = [each for each in reader.scope.partitions if each.number in numbers and each.number not in needles]
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    if needles:
        scope = reader.scope
        spans = [
            Span(each.number, each.topic, each.partition, each.source_from, each.source_end, each.source_end)
            for each in scope.partitions
            if each.number in needles
        ]
        hits = search_batches(
            reader.spark, scope.link.id.source, scope.source_cluster, spans, needles, committed=scope.source_committed
        )
        for number, start, stop in hits.select("p", "start", "stop").collect():
            found[number].append((start, stop))
    near = reader.source_pieces(merged(found))
    return near.unionByName(reader.source(ranges_of(whole))) if whole else near


def _needles(reader: Reader, target: DataFrame, numbers: Sequence[int]) -> dict[int, list[bytes]]:
    """What to look for, by partition; partitions in which a record has nothing long enough are left out."""
    scope = reader.scope
    chosen = target.where(target["p"].isin(list(numbers))).select("p", "t").collect()
    spans = [
        Span(row["p"], each.target_topic, each.partition, row["t"], row["t"] + 1, row["t"] + 1)
        for row in chosen
        for each in (scope.partitions[row["p"]],)
    ]
    records = read_records(reader.spark, scope.link.id.target, scope.target_cluster, spans).select(
        "p", "key", "value", "unreadable_until"
    )
    needles: defaultdict[int, list[bytes]] = defaultdict(list)
    lacking: set[int] = set()
    for number, key, value, _ in records.where("unreadable_until is null").collect():
        needle = max((bytes(part) for part in (value, key) if part is not None), key=len, default=b"")
        if len(needle) < SHORTEST:
            lacking.add(number)
        else:
            needles[number].append(needle)
    return {number: found for number, found in needles.items() if number not in lacking}
