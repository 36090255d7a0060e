"""Whether what was mirrored beyond the watch of transactions is output at all, or markers only. Reads the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from drkit.failover.plan.snapshot import PartitionView
from drkit.failover.run.cluster_context import ClusterContext
from drkit.mapping.mapping_rows import floor
from drkit.model.errors import DrkitError
from drkit.model.groups.transactions import TransactionHistory
from drkit.model.topology import TopicPartition

_MOST = 1_000
_SECONDS = 5.0


def without_empty_gaps(
    estate: ClusterContext, target: str, history: TransactionHistory, partitions: Mapping[TopicPartition, PartitionView]
) -> TransactionHistory:
    """The history, where a partition was mirrored a little further than the watch has read it, and the target holds no
    record from there on: then nothing unknown was brought over. The mirror and the watch read over connections of
    their own, and the source mostly dies between two answers.
    """
    read = dict(history.read)
    for tp, upto in history.read.items():
        view = partitions.get(tp)
        if view is None or view.through is None or not 0 < view.through - upto <= _MOST:
            continue
        if not _has_records(estate, target, view, upto):
            read[tp] = view.through
    return replace(history, read=read)


def _has_records(estate: ClusterContext, target: str, view: PartitionView, source_offset: int) -> bool:
    """Whether the target holds records from a source offset on; where it can't be told: yes."""
    row = floor(view.rows, source_offset)
    if row is None or view.target_end is None:
        return True
    from drkit.kafka.client.log_reader import LogReader  # noqa: PLC0415 - loads aiokafka

    begin = max(source_offset + row.delta, view.target_start or 0)
    try:
        with LogReader(target, estate.config.clusters[target], timeout_seconds=_SECONDS) as reader:
            return any(reader.read(*view.target_tp, begin, view.target_end))
    except DrkitError:
        return True
