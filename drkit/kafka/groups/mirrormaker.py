"""MirrorMaker 2's offset records: reads its checkpoint and offset-sync topics.

    SOURCE.checkpoints.internal         on the target
      key    group, topic (strings), partition (int32); the topic by its name on the target
      value  version 0 (int16), upstream and downstream offset (int64), metadata (string)

    mm2-offset-syncs.TARGET.internal    on the source, or mm2-offset-syncs.SOURCE.internal on the target
      key    topic (string), partition (int32); the topic by its name on the source
      value  upstream and downstream offset (int64) of one and the same record

Strings have their length before them (int16); everything is big-endian. Both topics are compacted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.small_topic import SmallTopicRecord, read_topic
from drkit.model.errors import AuthenticationError, DrkitError, Refused, Unreachable
from drkit.model.topology import TopicPartition

_STRING = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_PAIR = struct.Struct(">qq")
_Kept = TypeVar("_Kept")


class Checkpoint(NamedTuple):
    """A group's offset on the source, and MirrorMaker 2's translation. `tp` by its name on the target."""

    group: str
    tp: TopicPartition
    upstream: int
    downstream: int
    metadata: str
    at: datetime


class OffsetSync(NamedTuple):
    """One record's offset on both sides. `tp` by its name on the source."""

    tp: TopicPartition
    upstream: int
    downstream: int


@dataclass(frozen=True, slots=True)
class MirrorMakerOffsets:
    """The content of both topics. `checkpoints`: the newest of each group and partition; `syncs`: all available, by
    partition, ascending. `notes`: what could not be read, and the consequences.
    """

    checkpoints: tuple[Checkpoint, ...]
    syncs: dict[TopicPartition, tuple[OffsetSync, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def checkpoints_topic(source: str) -> str:
    """On the target, by MirrorMaker 2's alias of the source."""
    return f"{source}.checkpoints.internal"


def syncs_topic(other: str) -> str:
    """On one cluster, by MirrorMaker 2's alias of the other."""
    return f"mm2-offset-syncs.{other}.internal"


def decode_checkpoint(key: bytes, value: bytes, at: datetime) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        ValueError: another version, or no checkpoint at all.
    """
    try:
        group, here = _string(key, 0)
        topic, here = _string(key, here)
        (partition,) = _PARTITION.unpack_from(key, here)
        (version,) = _STRING.unpack_from(value, 0)
        if version != 0:
            raise ValueError(f"a checkpoint of version {version}; drkit knows version 0")
        upstream, downstream = _PAIR.unpack_from(value, _STRING.size)
        metadata, _ = _string(value, _STRING.size + _PAIR.size)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no checkpoint of MirrorMaker 2: {error}") from None
    return Checkpoint(group, TopicPartition(topic, partition), upstream, downstream, metadata, at)


def decode_sync(key: bytes, value: bytes) -> OffsetSync:
    """Read an offset sync.

    Raises:
        ValueError: it isn't one.
    """
    try:
        topic, here = _string(key, 0)
        (partition,) = _PARTITION.unpack_from(key, here)
        return OffsetSync(TopicPartition(topic, partition), *_PAIR.unpack(value))
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no offset sync of MirrorMaker 2: {error}") from None


def newest(checkpoints: Iterable[Checkpoint]) -> tuple[Checkpoint, ...]:
    """The last one of each group and partition, sorted."""
    found = {(each.group, each.tp): each for each in checkpoints}
    return tuple(found[key] for key in sorted(found))


def by_partition(syncs: Iterable[OffsetSync]) -> dict[TopicPartition, tuple[OffsetSync, ...]]:
    """Syncs in the order of their source offsets.

    They come in the log's order. One whose offsets are at or below an earlier one's on either side shows that the topic
    was recreated (or that MirrorMaker started over): those before it say nothing about the current logs.
    """
    found: dict[TopicPartition, list[OffsetSync]] = {}
    for sync in syncs:
        kept = found.setdefault(sync.tp, [])
        if kept and (sync.upstream < kept[-1].upstream or sync.downstream < kept[-1].downstream):
            kept.clear()
        if kept and (sync.upstream == kept[-1].upstream or sync.downstream == kept[-1].downstream):
            kept.pop()
        kept.append(sync)
    return {tp: tuple(kept) for tp, kept in found.items()}


def read_offsets(
    source: ClusterConfig,
    target: ClusterConfig,
    names: tuple[str, str],
    *,
    timeout_seconds: float,
    patience_seconds: float,
) -> MirrorMakerOffsets:
    """Read both topics to their current ends.

    Args:
        source: the source cluster, which may be gone.
        target: the target cluster.
        names: MirrorMaker 2's aliases of both, source first.
        timeout_seconds: of each topic of the target.
        patience_seconds: of the source's.

    Raises:
        DrkitError: there is no checkpoint topic, or it holds something else.
        Unreachable: the target doesn't answer.
        Refused: drkit may not see the checkpoint topic: whether there is one is unknown.
    """
    here, there = names
    topic = checkpoints_topic(here)
    read = _read(there, target, topic, timeout_seconds, decode_checkpoint)
    if read is None:
        raise DrkitError(
            f"{there} has no topic {topic}",
            meaning=f"MirrorMaker 2 keeps its checkpoints of {here} there (emit.checkpoints.enabled)",
            remedy="Name the source as MirrorMaker 2's configuration does: --positions-from mm2:ALIAS",
        )
    reasons = []
    for alias, cluster, other, seconds, may_fail in (
        (there, target, here, timeout_seconds, (Refused,)),
        (here, source, there, patience_seconds, (Refused, Unreachable, AuthenticationError)),
    ):
        try:
            found = _read(alias, cluster, syncs_topic(other), seconds, _decode_sync)
        except may_fail as error:
            reasons.append(error.what)
            continue
        if found is not None:
            return MirrorMakerOffsets(newest(read), by_partition(found))
    note = (
        f"no offset-sync topic of MirrorMaker 2 can be read ({'; '.join(reasons) or 'there is none'}): positions are "
        "its checkpoints', which fall back the further the older they are; offset-syncs.topic.location = target keeps "
        "the syncs on the target"
    )
    return MirrorMakerOffsets(newest(read), notes=(note,))


def _read(
    alias: str,
    cluster: ClusterConfig,
    topic: str,
    timeout_seconds: float,
    decode: Callable[[bytes, bytes, datetime], _Kept],
) -> list[_Kept] | None:
    """All records of the topic that aren't tombstones, decoded; None: there is no such topic."""
    found: list[_Kept] = []

    def take(record: SmallTopicRecord) -> None:
        if record.value is not None:
            found.append(decode(record.key, record.value, datetime.fromtimestamp(record.at_millis / 1000, UTC)))

    try:
        return found if read_topic(alias, cluster, topic, timeout_seconds, take) else None
    except ValueError as error:
        raise DrkitError(f"{topic} holds {error}", remedy="Check that MirrorMaker 2 writes it") from None


def _decode_sync(key: bytes, value: bytes, _: datetime) -> OffsetSync:
    return decode_sync(key, value)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _STRING.unpack_from(data, at)
    start = at + _STRING.size
    if size < 0 or start + size > len(data):
        raise ValueError("no text of MirrorMaker 2: it ends too early")
    return data[start : start + size].decode(), start + size
