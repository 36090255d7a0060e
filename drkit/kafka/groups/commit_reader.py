"""Reads what groups have committed, from the coordinators' own log, `__consumer_offsets`.

That log still shows what a coordinator no longer tells: when a topic is deleted, its groups' offsets are deleted with
it, but the records of the commits stay until a cleaner takes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.groups.coordinator import CommittedOffset
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.kafka.protocol.record_batch import Batch
from drkit.kafka.protocol.records import Damaged
from drkit.kafka.protocol.transaction_log import commit_records

_Found = dict[tuple[str, str, int], CommittedOffset]


class LogPart(NamedTuple):
    """A part of one partition of the log: offsets [first, end), and its last stable offset."""

    first: int
    stable: int
    end: int


class LastCommits(NamedTuple):
    """`committed`: the last commit of each group and partition; `undecided`: groups with others, in transactions
    of which nobody knows yet how they end."""

    committed: list[CommittedOffset]
    undecided: list[str]


def last_commits(
    alias: str, cluster: ClusterConfig, parts: Mapping[int, LogPart], topics: Collection[str], *, timeout_seconds: float
) -> LastCommits:
    """What groups committed on these topics in these parts of the log; that offsets were deleted doesn't count.

    Transactions are decided below the last stable offset. Their markers follow a moment after the client has been told.

    Args:
        alias: the cluster's name in messages.
        cluster: how to reach it.
        parts: by partition of the log.
        topics: names.
        timeout_seconds: how long to retry without an answer.

    Raises:
        Damaged: a batch can't be read.
        DrkitError: like `LogReader.read`.
    """
    found: _Found = {}
    undecided: _Found = {}
    with (
        LogReader(alias, cluster, timeout_seconds=timeout_seconds) as decided,
        LogReader(alias, cluster, timeout_seconds=timeout_seconds, committed=False) as everything,
    ):
        for partition, part in sorted(parts.items()):
            stable = max(part.first, min(part.stable, part.end))
            for batch in batches_of(decided, partition, part.first, stable):
                _take(batch, topics, found)
            for batch in batches_of(everything, partition, stable, part.end):
                _take(batch, topics, undecided if batch.is_transactional else found)
    return LastCommits(sorted(found.values()), sorted({each.group for each in undecided.values()}))


def batches_of(reader: LogReader, partition: int, first: int, until: int) -> Iterator[Batch]:
    """The batches of a partition of the log that hold offsets in [first, until).

    Raises:
        Damaged: a batch can't be read.
        DrkitError: like `LogReader.read`.
    """
    for batches in reader.read(OFFSETS_TOPIC, partition, first, until):
        for batch in batches:
            if not batch.readable:
                raise Damaged(
                    f"the batch at offset {batch.base_offset} of {OFFSETS_TOPIC}:{partition} fails its checksum"
                )
            yield batch


def _take(batch: Batch, topics: Collection[str], found: _Found) -> None:
    for group, (topic, partition), offset, metadata in commit_records(batch):
        if offset is not None and topic in topics:
            found[group, topic, partition] = CommittedOffset(group, topic, partition, offset, metadata)
