"""Compares a batch of each source partition with what was read when it was mirrored.

A cluster that is restored from an older copy of all its disks, its controllers' too, gives out its leader epochs a
second time. What it takes since then stands where its lost records were, and its log ends may be those that were
mirrored. A log loses records at its end only, and a batch in a log never changes: so the checksum of the last mirrored
batch (`Watermark.source_batch`) tells, whatever the link does to records and whoever else writes to the target.

Where the cleaner works it tells nothing if it differs: the cleaner writes batches anew, without what it removed. Then
records are compared (`drkit.lag.last_records`, `drkit.lag.unmirrored_tail`). But it never joins batches: one that holds
the offset and ends beyond it is another one. Where retention has removed the batch, nothing can be told by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topology import LinkId, TopicPartition

_CLEANUP = "cleanup.policy"


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
    known = {mark.tp: mark.source_batch for mark in marks if mark.source_batch is not None}
    found = source.batches_at({tp: batch.last_offset for tp, batch in known.items()}) if known else {}
    replaced = {
        tp: known[tp]
        for tp, there in found.items()
        if there is not None and (there.last_offset, there.crc) != known[tp]
    }
    denied: set[str] = set()  # nobody knows then whether the cleaner works there
    settings = source.topic_configs({tp.topic for tp in replaced}, keys=(_CLEANUP,), denied=denied) if replaced else {}
    compacted = {topic for topic, each in settings.items() if "compact" in each.get(_CLEANUP, "")}
    rewritten = {tp for tp in replaced if tp.topic in compacted and not _beyond(found[tp], known[tp])}
    return BatchComparison(
        {tp: batch for tp, batch in replaced.items() if tp.topic in settings and tp not in rewritten},
        frozenset(known.keys() - found.keys() | {tp for tp in replaced if tp.topic not in settings}),
        frozenset(rewritten),
        frozenset(tp for tp, there in found.items() if there is not None and tp not in replaced),
    )


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
