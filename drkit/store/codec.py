"""Conversion of values to rows and back, the same in both backends.

An unknown value is written as an impossible number (`NOWHERE`, `NEVER`), not as null: in Cassandra a written null is
a tombstone, and a read over more than 100,000 of them fails. Omitting the column would leave its old value.

`…_row` gives the columns in the order of the tables (without the link); `read_…` takes them in that
order. Instants are whole microseconds since 1970: neither backend has a type that stores them exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache, wraps
from sys import intern
from typing import Any, ParamSpec, TypeVar

from drkit.model.digests import RangeDigest
from drkit.model.errors import DrkitError
from drkit.model.link_state import Direction, KeptLease, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, SourceBatch, WaitingRecords, Watermark
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import LinkId, TopicPartition

_P = ParamSpec("_P")
_R = TypeVar("_R")


class UnreadableRow(DrkitError, ValueError):
    """A row that no drkit wrote, or that was damaged since. (A ValueError for those who read copies row by row.)"""


def _told(read: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make `read` report a row that it can't read, with what to do."""

    @wraps(read)
    def told(*row: _P.args, **more: _P.kwargs) -> _R:
        try:
            return read(*row, **more)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            what = read.__name__.removeprefix("read_").removesuffix("s").replace("_", " ")
            raise UnreadableRow(
                f"the store holds a {what} that can't be read: {error}",
                meaning="The store is damaged, or another program wrote into it",
                remedy="Restore it from a backup (drkit store restore); or move it away, then `drkit store recover "
                "--from` the cluster mirrored to fills a new one from that cluster's own copy",
            ) from error

    return told


WHOLE_TOPIC = -1
"""Means "no partition" where a problem concerns a topic: null can't be part of a primary key."""

NOWHERE = -1
"""Means an unknown offset or epoch."""

_NO_BATCH = (NOWHERE, 0)

NEVER = -1
"""Means that there is no instant."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIGEST_BYTES = 16


@lru_cache(maxsize=1024)  # tens of thousands of positions share one capture time
def to_micros(instant: datetime) -> int:
    """An aware instant as whole microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=1024)
def from_micros(micros: int) -> datetime:
    """The instant, UTC, that `to_micros` wrote."""
    return _EPOCH + timedelta(microseconds=micros)


def micros_or_never(instant: datetime | None) -> int:
    """Like `to_micros`; `NEVER` for None."""
    return NEVER if instant is None else to_micros(instant)


def instant_or_none(micros: int) -> datetime | None:
    """What `micros_or_never` wrote."""
    return None if micros == NEVER else from_micros(micros)


def watermark_row(mark: Watermark) -> tuple[Any, ...]:
    """topic, partition, epoch, source_through … leader_epoch, last offset and checksum of `source_batch`, until,
    since and at_most of `waiting`."""
    waiting = mark.waiting
    return (
        mark.topic,
        mark.partition,
        mark.epoch,
        mark.source_through,
        mark.target_end,
        mark.source_start,
        mark.source_end,
        mark.target_start,
        to_micros(mark.observed_at),
        micros_or_never(mark.behind_since),
        NOWHERE if mark.leader_epoch is None else mark.leader_epoch,
        *(mark.source_batch or _NO_BATCH),
        NOWHERE if waiting is None else waiting.until,
        NEVER if waiting is None else micros_or_never(waiting.since),
        int(waiting is not None and waiting.at_most),
    )


@_told
def read_watermark(
    topic: str,
    partition: int,
    epoch: int,
    source_through: int,
    target_end: int,
    source_start: int,
    source_end: int,
    target_start: int,
    observed_at: int,
    behind_since: int,
    leader_epoch: int,
    batch_offset: int,
    batch_crc: int,
    waiting_until: int,
    waiting_since: int,
    waiting_at_most: int,
) -> Watermark:
    """Inverse of `watermark_row`."""
    return Watermark(
        topic,
        partition,
        epoch,
        source_through,
        target_end,
        source_start,
        source_end,
        target_start,
        from_micros(observed_at),
        instant_or_none(behind_since),
        None if leader_epoch == NOWHERE else leader_epoch,
        None if batch_offset == NOWHERE else SourceBatch(batch_offset, batch_crc),
        None
        if waiting_until == NOWHERE
        else WaitingRecords(waiting_until, instant_or_none(waiting_since), bool(waiting_at_most)),
    )


def digest_row(each: RangeDigest) -> tuple[Any, ...]:
    """topic, partition, epoch, target_start … digest (16 bytes), batch_crc; without the generation."""
    return (
        each.topic,
        each.partition,
        each.epoch,
        each.target_start,
        each.target_end,
        each.source_start,
        each.batches,
        each.records,
        each.digest.to_bytes(_DIGEST_BYTES, "big"),
        each.batch_crc,
    )


@_told
def read_digest(
    tp: TopicPartition,
    epoch: int,
    target_start: int,
    target_end: int,
    source_start: int,
    batches: int,
    records: int,
    digest: bytes,
    batch_crc: int,
    generation: int,
) -> RangeDigest:
    """Inverse of `digest_row`, with the generation."""
    total = int.from_bytes(digest, "big")
    return RangeDigest(
        *tp, epoch, target_start, target_end, source_start, batches, records, total, batch_crc, generation
    )


def group_position_row(position: GroupPosition) -> tuple[Any, ...]:
    """group, topic, partition, offset, metadata, captured_at, topic_id."""
    return (
        position.group,
        position.topic,
        position.partition,
        position.offset,
        position.metadata,
        to_micros(position.captured_at),
        position.topic_id,
    )


@_told
def read_group_positions(rows: Iterable[Sequence[Any]]) -> list[GroupPosition]:
    """Inverse of `group_position_row`, for many rows: a large site has a million, with few capture times and topics."""
    instant = cache(from_micros)
    return [
        GroupPosition(group, topic, partition, offset, metadata, instant(captured_at), intern(topic_id))
        for group, topic, partition, offset, metadata, captured_at, topic_id in rows
    ]


def in_mirrored_topics(positions: Iterable[GroupPosition], topics: Mapping[str, TopicState]) -> list[GroupPosition]:
    """The positions, without those in another topic of that name than is mirrored (`topics`: their states)."""
    return [each for each in positions if each.topic not in topics or topics[each.topic].is_topic(each.topic_id)]


def link_control_row(control: LinkControl) -> tuple[Any, ...]:
    """direction, version, changed_at, reason, run, paused_topics."""
    return (
        control.direction.value,
        control.version,
        to_micros(control.changed_at),
        control.reason,
        control.run,
        _write_topics(control.paused_topics),
    )


@_told
def read_link_control(
    link: LinkId, direction: str, version: int, changed_at: int, reason: str, run: str | None, paused_topics: str
) -> LinkControl:
    """Inverse of `link_control_row`."""
    return LinkControl(
        link, Direction(direction), version, from_micros(changed_at), reason, run, frozenset(json.loads(paused_topics))
    )


def topic_state_row(state: TopicState) -> tuple[Any, ...]:
    """topic, target_topic, source_topic_id … reason."""
    return (
        state.topic,
        state.target_topic,
        state.source_topic_id,
        state.target_topic_id,
        state.epoch,
        state.partitions,
        int(state.created_by_drkit),
        state.reason,
    )


@_told
def read_topic_state(
    topic: str,
    target_topic: str,
    source_topic_id: str,
    target_topic_id: str,
    epoch: int,
    partitions: int,
    created_by_drkit: int,
    reason: str,
) -> TopicState:
    """Inverse of `topic_state_row`."""
    return TopicState(
        topic,
        target_topic,
        source_topic_id,
        target_topic_id,
        epoch,
        partitions,
        created_by_drkit=bool(created_by_drkit),
        reason=reason,
    )


def problem_row(problem: Problem) -> tuple[Any, ...]:
    """kind, topic, partition (`WHOLE_TOPIC` for none), reason, remedy, halted, since, unsure_from, unsure_until.

    `NOWHERE` means that no offset is named.
    """
    return (
        problem.kind,
        problem.topic,
        WHOLE_TOPIC if problem.partition is None else problem.partition,
        problem.reason,
        problem.remedy,
        int(problem.halted),
        to_micros(problem.since),
        NOWHERE if problem.unsure_from is None else problem.unsure_from,
        NOWHERE if problem.unsure_until is None else problem.unsure_until,
    )


@_told
def read_problem(
    kind: str,
    topic: str,
    partition: int,
    reason: str,
    remedy: str,
    halted: int,
    since: int,
    unsure_from: int,
    unsure_until: int,
) -> Problem:
    """Inverse of `problem_row`."""
    return Problem(
        kind,
        topic,
        None if partition == WHOLE_TOPIC else partition,
        reason,
        remedy,
        halted=bool(halted),
        since=from_micros(since),
        unsure_from=None if unsure_from == NOWHERE else unsure_from,
        unsure_until=None if unsure_until == NOWHERE else unsure_until,
    )


@_told
def read_kept_lease(name: str, owner: str | None, epoch: int, expires_at: int) -> KeptLease:
    """A lease as the backends store it."""
    return KeptLease(name, owner, epoch, from_micros(expires_at))


def entry_row(entry: JournalEntry) -> tuple[Any, ...]:
    """run, seq, at, stage, event, payload, previous, hash."""
    return (
        entry.run,
        entry.seq,
        to_micros(entry.at),
        entry.stage,
        entry.event,
        entry.payload,
        entry.previous,
        entry.hash,
    )


def read_entry(
    run: str, seq: int, at: int, stage: str, event: str, payload: str, previous: str, digest: str
) -> JournalEntry:
    """Inverse of `entry_row`."""
    return JournalEntry(run, seq, from_micros(at), stage, event, payload, previous, digest)


def run_row(summary: RunSummary) -> tuple[Any, ...]:
    """run, kind, state, started_at, updated_at, detail."""
    return (
        summary.run,
        summary.kind,
        summary.state,
        to_micros(summary.started_at),
        to_micros(summary.updated_at),
        summary.detail,
    )


@_told
def read_run(run: str, kind: str, state: str, started_at: int, updated_at: int, detail: str) -> RunSummary:
    """Inverse of `run_row`."""
    return RunSummary(run, kind, state, from_micros(started_at), from_micros(updated_at), detail)


def _write_topics(topics: Iterable[str]) -> str:
    return json.dumps(sorted(topics), ensure_ascii=False)
