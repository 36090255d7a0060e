"""Verifies the tail: that the target's records after the last stored acknowledgement are the expected ones.

A dead worker may have had requests in flight. Their records may or may not be on the target; the log's end says how
many are. Before continuing there, each is read and compared with the source record that the mapping assigns to its
offset. A difference means that somebody else wrote there, or that the mirror's own records are at unexpected offsets
(`drkit.mirror.resume.offset_alignment.shifted_tail`, `drkit.mirror.resume.copied_run`).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.config.client_config import client_log, confluent_config
from drkit.mirror.resume.copied_run import CopiedRun, find_run
from drkit.mirror.resume.offset_alignment.shifted_tail import Realigned, realign
from drkit.model.errors import Refused, Unreachable
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition

if TYPE_CHECKING:
    from drkit.kafka.transform.record_transform import Alteration

_CHUNK = 1_000
_SILENCE_SECONDS = 10.0
_HURRIED = 0.1
"""Part of that once another tail was silent: several unreadable ones don't each cost all of it."""
MOST_UNREAD = 10
"""After so many unread tails no other is tried until the next call."""
_MOST_MISPLACED = 1_000_000
"""Records; more than a mirror has in flight."""
_SEARCHED = 500_000
"""How many more source records are searched: the records in flight came next, or soon after."""
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own name of the event


@dataclass(frozen=True, slots=True)
class Tail:
    """A range of the target to be verified: its offsets [`begin`, `end`), and the rows in force over it.

    `rows` ascend; the first is in force at `begin`. `source_start`: the source's first remaining record.
    `source_end`: the end of what can be read of the source; target records beyond it are somebody else's. `compacted`:
    the cleaner may have removed records on either side.
    """

    tp: TopicPartition
    target_topic: str
    begin: int
    end: int
    rows: Sequence[OffsetMapping]
    source_start: int
    target_start: int
    compacted: bool
    source_end: int

    def source_of(self, target_offset: int) -> int:
        """The source offset of a target offset."""
        above = bisect_right(self.rows, target_offset, key=lambda row: row.target_offset)
        return target_offset - self.rows[max(above - 1, 0)].delta


class TailUnread(Unreachable):
    """One partition's records can't be read back now; this says nothing about other partitions."""


class Difference(NamedTuple):
    """The first target offset of a range that differs from the mapping, and how."""

    target_offset: int
    what: str


class TailVerifier:
    """Reads both sides. Not thread-safe.

    Args:
        source, target: the clusters.
        committed: whether records of aborted transactions are left out.
        silence_seconds: how long a broker may send nothing before it counts as unreachable.
    """

    alteration: Alteration | None = None
    """What the link changes in records; None: they are on the target byte for byte as on the source."""

    unread: int = 0
    """How many tails couldn't be read in the caller's present round; the others then get less time."""

    def __init__(
        self,
        source: ClusterConfig,
        target: ClusterConfig,
        *,
        committed: bool,
        silence_seconds: float = _SILENCE_SECONDS,
    ) -> None:
        self._isolation = "read_committed" if committed else "read_uncommitted"
        self._source = source
        self._target = target
        self._silence = silence_seconds

    def difference(self, tail: Tail, mirrored: int) -> Difference | None:
        """None where the range holds the mirror's records, else what differs and where.

        Below target offset `mirrored`, which is on record as mirrored, aborted transactions are nobody's records: after
        a failback the target has those of its own clients, and the source a marker in their place.

        Raises:
            TailUnread: a side didn't answer.
        """
        begin = max(tail.begin, tail.target_start)
        if begin >= tail.end:
            return None
        ours = self._ours(tail, begin, mirrored)
        first, last = tail.source_of(begin), tail.source_of(tail.end - 1)
        if last < tail.source_start:
            return None  # the source has none of it left to compare
        first, end = max(first, tail.source_start), min(last + 1, tail.source_end)
        theirs = self._read(self._source, tail.tp.topic, tail.tp.partition, first, end, self._isolation)
        return compare(tail, begin, ours, theirs)

    def _ours(self, tail: Tail, begin: int, mirrored: int) -> Iterator[Message]:
        """The target's records from `begin` on, without those of aborted transactions below `mirrored`."""
        known = max(begin, min(mirrored, tail.end))
        topic, number = tail.target_topic, tail.tp.partition
        yield from self._read(self._target, topic, number, begin, known, self._isolation)
        yield from self._read(self._target, topic, number, known, tail.end, "read_uncommitted")

    def copied_run(self, tail: Tail, source_offset: int, source_end: int) -> CopiedRun | None:
        """The source records from `source_offset` on that fill the whole range, or None where others do.

        Raises:
            TailUnread: a side didn't answer.
        """
        ours = self._read(self._target, tail.target_topic, tail.tp.partition, tail.begin, tail.end, "read_uncommitted")
        wanted = [_digest(record) for record in islice(ours, _MOST_MISPLACED + 1)]
        if not 0 < len(wanted) <= _MOST_MISPLACED:
            return None
        theirs = self._read(self._source, tail.tp.topic, tail.tp.partition, source_offset, source_end, self._isolation)
        searched = islice(theirs, len(wanted) + _SEARCHED)
        return find_run(wanted, ((int(record.offset() or 0), _digest(record)) for record in searched))

    def realigned(self, tail: Tail, source_offset: int, source_end: int, delta: int | None) -> Realigned | None:
        """Where the range's records really belong, if the mirror wrote them; `source_offset`: the first expected one.

        Raises:
            TailUnread: a side didn't answer.
        """
        ours = self._read(self._target, tail.target_topic, tail.tp.partition, tail.begin, tail.end, "read_uncommitted")
        theirs = self._read(self._source, tail.tp.topic, tail.tp.partition, source_offset, source_end, self._isolation)
        return realign(
            _in_step(ours, theirs),
            source_offset=source_offset,
            source_end=source_end,
            target_end=tail.end,
            delta=delta,
        )

    def _patience(self, topic: str, partition: int) -> float:
        """Seconds that this one's broker may be silent."""
        if self.unread >= MOST_UNREAD:
            raise TailUnread(
                f"{topic}:{partition} is read back later: others couldn't be read back",
                remedy="Check that its brokers run; drkit tries again",
            )
        return self._silence * (_HURRIED if self.unread else 1)

    def _read(
        self, cluster: ClusterConfig, topic: str, partition: int, begin: int, end: int, isolation: str
    ) -> Iterator[Message]:
        """The existing records with offsets in [begin, end), in order.

        `end` may be a log's end. A consumer sees the log only up to its high watermark, which may be lower for a moment
        (above all after a new leader's election); the function waits for it.
        """
        if begin >= end:
            return
        silence = self._patience(topic, partition)
        consumer = Consumer(
            confluent_config(
                cluster,
                group_id="drkit-verify",  # the client requires one: nothing is committed
                enable_auto_commit=False,
                isolation_level=isolation,
                enable_partition_eof=True,
                auto_offset_reset="earliest",  # retention may remove the first records meanwhile
            ),
            logger=client_log,
        )
        try:
            consumer.assign([KafkaPartition(topic, partition, begin)])
            heard = time.monotonic()
            while True:
                message = consumer.poll(0.2)
                if (message is None or message.error() is not None) and time.monotonic() - heard > silence:
                    raise TailUnread(
                        f"{topic}:{partition} could not be read back within {silence:g} s",
                        remedy="Check that its brokers run, and that no transaction is open there; drkit tries again",
                    )
                if message is None:
                    continue
                for each in [message, *consumer.consume(_CHUNK - 1, 0)]:
                    error = each.error()
                    if error is not None:
                        if error.code() == _END and (each.offset() or 0) >= end:
                            return
                        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                            raise Refused(
                                f"{topic}:{partition} can't be read back: TOPIC_AUTHORIZATION_FAILED",
                                remedy=f"Grant drkit's principal READ on {topic}; drkit retries it automatically",
                            )
                        continue  # the high watermark is lower: wait for replication
                    if (each.offset() or 0) >= end:
                        return
                    yield each
                    heard = time.monotonic()  # after the yield: the other side is read meanwhile
        finally:
            consumer.close()


def compare(tail: Tail, begin: int, ours: Iterator[Message], theirs: Iterator[Message]) -> Difference | None:
    """Compare both sides in step: `ours` the target's records from `begin` on, `theirs` the source's.

    Where the target has no record (a marker), the source must have none either.
    """
    source = next(theirs, None)
    due = begin
    for record in ours:
        offset = int(record.offset() or 0)
        due = offset + 1
        wanted = tail.source_of(offset)
        while source is not None and (source.offset() or 0) < wanted:
            if not tail.compacted:
                return Difference(offset, _missing(source))
            source = next(theirs, None)
        if source is None or source.offset() != wanted:
            if wanted < tail.source_start or tail.compacted:
                continue  # the source no longer has it to compare
            return Difference(
                offset, f"target offset {offset} corresponds to source offset {wanted}, where there is no record"
            )
        difference = difference_of(record, source)
        if difference is not None:
            return Difference(offset, f"target offset {offset} differs from source offset {wanted} in its {difference}")
        source = next(theirs, None)
    if due < tail.end and source is not None and not tail.compacted:
        return Difference(due, _missing(source))
    return None


def _in_step(
    ours: Iterator[Message], theirs: Iterator[Message]
) -> Iterator[tuple[Message | None, Message | None, bool]]:
    for record in ours:
        source = next(theirs, None)
        yield record, source, source is not None and difference_of(record, source) is None
    yield None, next(theirs, None), True


def _missing(source: Message) -> str:
    return f"the record at source offset {source.offset()} is missing where the target's log has continued"


def _digest(record: Message) -> bytes:
    """A 128-bit digest of everything in a record but its offset."""
    content = (record.key(), record.value(), record.headers() or [], record.timestamp()[1])
    return blake2b(repr(content).encode(), digest_size=16).digest()


def difference_of(record: Message, source: Message) -> str | None:
    """How a record of the target differs from the source record that it was mirrored from, or None."""
    if record.key() != source.key():
        return "key"
    if record.value() != source.value():
        return "value"
    if (record.headers() or []) != (source.headers() or []):
        return "headers"
    if record.timestamp()[1] != source.timestamp()[1]:
        return "timestamp"
    return None
