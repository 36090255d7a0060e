"""Compares batches of source partitions with what was read when they were mirrored.

A cluster that is restored from an older copy of all its disks, its controllers' too, gives out its leader epochs a
second time. What it takes since then stands where its lost records were, and its log ends may be those that were
mirrored. A log loses records at its end only, and a batch in a log never changes: so the checksum of the last mirrored
batch (`Watermark.source_batch`) tells, whatever the link does to records and whoever else writes to the target. Earlier
ones (`RangeDigest.source_batch`) tell up to where a log is still the one that was read (`held_below`).

Where the cleaner works it tells nothing if it differs: the cleaner writes batches anew, without what it removed. Then
records are compared (`drkit.lag.last_records`, `drkit.lag.unmirrored_tail`). But it never joins batches: one that holds
the offset and ends beyond it is another one. Where retention has removed the batch, nothing can be told by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.model.errors import Unreachable
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topics.removing import CLEANUP, is_compacted
from drkit.model.topology import LinkId, TopicPartition


class BatchComparison(NamedTuple):
    """`same`: partitions whose source holds this very batch; `replaced`: another one where it was; `silent`: those of
    which no leader answered, or whose topic's settings may not be read; `rewritten`: those of compacted topics of which
    only records can tell (`drkit.lag.unmirrored_tail`). Of the others the batch is gone."""

    replaced: dict[TopicPartition, SourceBatch]
    silent: frozenset[TopicPartition]
    rewritten: frozenset[TopicPartition]
    same: frozenset[TopicPartition]


def compare_batches(source: ClusterAdmin, marks: Iterable[Watermark]) -> BatchComparison:
    """Compare the batches of these watermarks with what the source holds at their offsets.

    Raises:
        Unreachable: no broker answers.
    """
    return compare_known(source, {mark.tp: mark.source_batch for mark in marks if mark.source_batch is not None})


def compare_known(source: ClusterAdmin, known: Mapping[TopicPartition, SourceBatch]) -> BatchComparison:
    """As `compare_batches`, of these batches."""
    found = source.batches_at({tp: batch.last_offset for tp, batch in known.items()}) if known else {}
    replaced = {tp: known[tp] for tp, there in found.items() if there is not None and not _is(there, known[tp])}
    denied: set[str] = set()  # nobody knows then whether the cleaner works there
    settings = source.topic_configs({tp.topic for tp in replaced}, keys=(CLEANUP,), denied=denied) if replaced else {}
    compacted = {topic for topic, each in settings.items() if is_compacted(each)}
    rewritten = {tp for tp in replaced if tp.topic in compacted and not _beyond(found[tp], known[tp])}
    return BatchComparison(
        {tp: batch for tp, batch in replaced.items() if tp.topic in settings and tp not in rewritten},
        frozenset(known.keys() - found.keys() | {tp for tp in replaced if tp.topic not in settings}),
        frozenset(rewritten),
        frozenset(tp for tp, there in found.items() if there is not None and tp not in replaced),
    )


def held_below(
    source: ClusterAdmin, batches: Mapping[TopicPartition, Collection[SourceBatch]]
) -> dict[TopicPartition, int]:
    """The offset below which each partition still is what was read when these batches were: it holds the one that ends
    there. 0: nothing shows that.

    A bisection, of all partitions at once: a log that holds one of the batches holds all that was below (or retention
    has removed its beginning). Of batches that the cleaner wrote anew, and of those that no leader answers for, nothing
    is known. A marker behind a batch may be another one by now than was read: what belongs to a transaction that was
    aborted behind the batch isn't below the offset.
    """
    known = {tp: sorted(set(each)) for tp, each in batches.items() if each}
    held = dict.fromkeys(batches, 0)
    left = {tp: (0, len(each)) for tp, each in known.items()}  # held: those before the first; not: from the second on
    asked = {tp: len(each) - 1 for tp, each in known.items()}  # the last one first: mostly it is all there
    while asked:
        try:
            found = source.batches_at({tp: known[tp][at].last_offset for tp, at in asked.items()}, committed=True)
        except Unreachable:  # no leader answers for any of them
            break
        for tp, at in asked.items():
            if tp not in found:
                del left[tp]
                continue
            there, (first, until) = found[tp], left[tp]
            if there is None or not _is(there, known[tp][at]):
                left[tp] = first, at
                continue
            after = there.last_offset + 1
            held[tp] = after if there.aborted_from is None else min(after, there.aborted_from)
            left[tp] = at + 1, until
        asked = {tp: (first + until) // 2 for tp, (first, until) in left.items() if first < until}
    return held


def _is(there: LogBatch, batch: SourceBatch) -> bool:
    return (there.last_offset, there.crc) == batch


def _beyond(there: LogBatch | None, batch: SourceBatch) -> bool:
    """Whether a batch holds this one's last offset, and ends beyond it."""
    return there is not None and there.base_offset <= batch.last_offset < there.last_offset


def replaced_reason(source: str, target: str, tp: TopicPartition, batch: SourceBatch) -> str:
    """That a source holds other records than were mirrored, as a reason."""
    return (
        f"{tp} on {source} holds another batch at source offset {batch.last_offset} than was mirrored to {target}: "
        f"{source} was restored from an older copy of its disks and has grown again (or its cleaner worked there, if "
        "the topic was compacted for a while)"
    )


def unmirrored_reason(source: str, target: str, tp: TopicPartition, offset: int) -> str:
    """That a source holds a record that counts as mirrored and never was, as a reason. `offset`: 0 where there may be
    earlier ones."""
    if offset == 0:
        return (
            f"{tp} on {source} holds other records than were mirrored to {target}: {source} was restored from an older "
            "copy of its disks, or another program writes to the target"
        )
    return (
        f"{tp} on {source} holds a record at source offset {offset} that was never mirrored to {target}, though the "
        f"link carries it and has read beyond it: {source} was restored from an older copy of its disks and has grown "
        "again"
    )


def set_back_remedy(link: LinkId, topic: str) -> str:
    """What to do then."""
    return (
        f"`drkit audit --link '{link}' --topic {topic}` names the records that each side lacks. Then `drkit link "
        f"resume '{link}' --topic {topic} --accept-recreated` mirrors the topic from its start again"
    )
