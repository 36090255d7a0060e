"""The records of Kafka's two transactional logs that show which offsets a transaction committed. Pure.

`__transaction_state` (KIP-98, `TransactionLogKey`, `TransactionLogValue`): each step of each transaction of a
transactional id. PrepareCommit and PrepareAbort are the decision, and name every partition that gets a marker.
`__consumer_offsets` (`OffsetCommitKey`, `OffsetCommitValue`): committed offsets; those of a transaction are in
batches with its producer id and apply once that producer's commit marker follows in the same partition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from drkit.kafka.protocol import encoding as form
from drkit.kafka.protocol.record_batch import Batch
from drkit.kafka.protocol.record_body import decode
from drkit.kafka.protocol.records import Damaged, read
from drkit.model.topology import TopicPartition

TRANSACTIONS_TOPIC = "__transaction_state"

_VERSION = form.I16
_ENTRY = struct.Struct(">qhib")  # producer id, producer epoch, timeout, status
_FLEXIBLE = 1
_LAST_OFFSET_KEY = 1
_OFFSET_WITH_EPOCH, _FLEXIBLE_OFFSET = 3, 4
_MARKER_KEY = struct.Struct(">hh")  # version, type

_T = TypeVar("_T")


class Status(IntEnum):
    """The state of a transactional id, as in its log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


DECISIONS = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})


@dataclass(frozen=True, slots=True)
class TransactionEntry:
    """One step of a transactional id. `partitions`: all that take part so far."""

    transactional_id: str
    producer_id: int
    status: Status
    partitions: frozenset[TopicPartition]


class CommitRecord(NamedTuple):
    """A committed offset of a group. `offset` None: it was deleted."""

    group: str
    tp: TopicPartition
    offset: int | None
    metadata: str


def transaction_entries(batch: Batch) -> Iterator[tuple[int, TransactionEntry]]:
    """The steps in a batch of `__transaction_state`, each with its offset.

    Raises:
        Damaged: the batch can't be read.
    """
    return _parsed(batch, TRANSACTIONS_TOPIC, _live_entry)


def commit_records(batch: Batch) -> Iterator[CommitRecord]:
    """The committed offsets in a batch of `__consumer_offsets`; records of other kinds are left out.

    Raises:
        Damaged: the batch can't be read.
    """
    for _, found in _parsed(batch, "__consumer_offsets", _commit):
        yield found


def removed_groups(batch: Batch) -> Iterator[str]:
    """The groups of which a batch of `__consumer_offsets` removes a committed offset, or the group itself.

    Raises:
        Damaged: the batch can't be read.
    """
    for _, group in _parsed(batch, "__consumer_offsets", _removed):
        yield group


def _parsed(
    batch: Batch, topic: str, parse: Callable[[memoryview, memoryview | None], _T | None]
) -> Iterator[tuple[int, _T]]:
    """Offset and content of each record of a batch that has a key; those of which `parse` makes None are left out.

    Raises:
        Damaged: a record can't be read.
    """
    for record in read(batch):
        try:
            key, value, _ = decode(bytes(record.body))
            found = None if key is None else parse(memoryview(key), None if value is None else memoryview(value))
        except (struct.error, IndexError, ValueError) as error:
            raise Damaged(f"the record at offset {record.offset} of {topic}: {error}") from error
        if found is not None:
            yield record.offset, found


def _live_entry(key: memoryview, value: memoryview | None) -> TransactionEntry | None:
    return None if value is None else _entry(key, value)  # without a value: the transactional id expired


def _removed(key: memoryview, value: memoryview | None) -> str | None:
    """The group of a tombstone; None: there is a value, or it is of a member or an assignment."""
    if value is not None:
        return None
    (version,) = _VERSION.unpack_from(key)
    group, at = form.string(key, _VERSION.size)
    return group if version <= _LAST_OFFSET_KEY or at == len(key) else None


def commits(marker: Batch) -> bool:
    """Whether a control batch holds a commit marker (type 1), not an abort marker (type 0; KIP-98).

    Raises:
        Damaged: it holds no marker.
    """
    for record in read(marker):
        key, _, _ = decode(bytes(record.body))
        if key is not None and len(key) >= _MARKER_KEY.size:
            kind: int = _MARKER_KEY.unpack_from(key)[1]
            return kind == 1
    raise Damaged(f"the control batch at offset {marker.base_offset} holds no marker")


def _entry(key: memoryview, value: memoryview) -> TransactionEntry:
    transactional_id, _ = form.string(key, _VERSION.size)
    (version,) = _VERSION.unpack_from(value)
    flexible = version >= _FLEXIBLE
    count = form.compact_count if flexible else form.count
    string = form.compact_string if flexible else form.string
    producer_id, _epoch, _timeout, status = _ENTRY.unpack_from(value, _VERSION.size)
    topics, at = count(value, _VERSION.size + _ENTRY.size)
    found: set[TopicPartition] = set()
    for _ in range(max(0, topics)):
        topic, at = string(value, at)
        partitions, at = count(value, at)
        for _ in range(partitions):
            (partition,) = form.I32.unpack_from(value, at)
            found.add(TopicPartition(topic, partition))
            at += 4
        if flexible:
            at = form.tags(value, at)
    return TransactionEntry(transactional_id, producer_id, Status(status), frozenset(found))


def _commit(key: memoryview, value: memoryview | None) -> CommitRecord | None:
    (version,) = _VERSION.unpack_from(key)
    if version > _LAST_OFFSET_KEY:  # a group's metadata, members, assignments
        return None
    group, at = form.string(key, _VERSION.size)
    topic, at = form.string(key, at)
    tp = TopicPartition(topic, *form.I32.unpack_from(key, at))
    if value is None:
        return CommitRecord(group, tp, None, "")
    (version,) = _VERSION.unpack_from(value)
    (offset,) = form.I64.unpack_from(value, _VERSION.size)
    at = _VERSION.size + 8 + (4 if version >= _OFFSET_WITH_EPOCH else 0)
    metadata, _ = form.compact_string(value, at) if version >= _FLEXIBLE_OFFSET else form.string(value, at)
    return CommitRecord(group, tp, offset, metadata)
