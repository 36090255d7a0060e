"""Finds records that the source still holds, the target lacks, and retention would not have removed there.

Both sides of a mirrored topic have the same retention, but not the same segments: a segment is deleted when its newest
record is too old, or when the log is large enough without it. So a target may start further on than its source, for up
to a segment's time. Not normal: a record is gone that is younger than the retention, or the log is smaller than
retention would have left it. Then it was purged (DeleteRecords, another retention).

The result comes from the logs, not from a waiting time: the source's first record that is young enough (ListOffsets by
time), the target's log size if retention.bytes is set, and the first record that the source really holds. A purge of
records that retention may remove anyway can't be told from retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import NOTHING, LogPosition, OffsetRange
from drkit.model.errors import Refused, Unreachable
from drkit.model.topic_policy import TopicSettings
from drkit.model.topics.removing import CLEANUP
from drkit.model.topology import TopicPartition

RETENTION = (CLEANUP, "retention.ms", "retention.bytes")
"""Settings that decide what a broker removes from a log's start."""

CLOCKS_MS = 60_000
"""The tolerated difference between brokers' clocks."""

_PEEK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Retention:
    """What retention may remove from a log's start: records older than `ms`, bytes beyond `size`; None: nothing."""

    ms: int | None
    size: int | None


def retention_of(source: Mapping[str, str], target: Mapping[str, str], policy: TopicSettings, topic: str) -> Retention:
    """The shorter of the source's retention and the one that the link sets on its target.

    Args:
        source: the source topic's effective settings (those of `RETENTION`).
        target: the target topic's.
        policy: the link's policy: overrides, and settings that don't follow the source.
        topic: the topic's name on the source.
    """
    overrides = policy.overrides_of(topic)
    meant = {
        name: overrides.get(name, source.get(name) if policy.follows(name) else target.get(name)) for name in RETENTION
    }
    sides = [source, {name: value for name, value in meant.items() if value is not None}]
    deleting = [each for each in sides if "delete" in each.get(CLEANUP, "delete")]
    return Retention(
        _shortest(each.get("retention.ms") for each in deleting),
        _shortest(each.get("retention.bytes") for each in deleting),
    )


def _shortest(values: Iterable[str | None]) -> int | None:
    return min((int(value) for value in values if value is not None and int(value) >= 0), default=None)


@dataclass(frozen=True, slots=True)
class Missing:
    """Source offsets that a target lacks: `target` is its partition; `emptied`: it holds nothing mirrored at all."""

    stretch: OffsetRange
    target: TopicPartition
    emptied: bool


def find_purged(
    source: ClusterAdmin,
    target: ClusterAdmin,
    missing: Mapping[TopicPartition, Missing],
    policy: TopicSettings,
    *,
    at_ms: int,
    sized: bool = True,
    unknown: dict[TopicPartition, str] | None = None,
    by_size: set[TopicPartition] | None = None,
) -> dict[TopicPartition, OffsetRange]:
    """The parts of these ranges that the source still holds and retention would have kept on the target.

    Args:
        source: the cluster that still holds them.
        target: the cluster that lacks them.
        missing: by source partition.
        policy: the link's.
        at_ms: when they went.
        sized: whether the target's log is still as large as then; else a retention by size explains all that it may.
        by_size: collects those, if not `sized`.
        unknown: collects those of which that can't be found out, with the reason; None: the first one raises.

    Raises:
        Unreachable: a cluster doesn't answer (`unknown` None: for one of them).
        Refused: the source may not be read.
    """
    retentions = _retentions(source, target, missing, policy, unknown)
    young = _young(source, {tp: each for tp, each in missing.items() if tp in retentions}, retentions, at_ms)
    found = _as_small(target if sized else None, {tp: missing[tp] for tp in young}, retentions)
    left = {tp: young[tp] for tp in found}
    if by_size is not None and not sized:
        by_size |= young.keys() - found
    # last: ranges that both sides have removed meanwhile, or without records, aren't missing
    first = source.probe_records(
        [LogPosition(tp, stretch.begin) for tp, stretch in left.items()], seconds=_PEEK_SECONDS
    )
    starts = source.start_offsets(left, partial=unknown is not None)
    kept: dict[TopicPartition, OffsetRange] = {}
    for tp, stretch in left.items():
        if tp not in starts:
            if unknown is not None:
                unknown[tp] = f"nobody on {source.alias} says where it starts"
            continue
        seen = first[LogPosition(tp, stretch.begin)]
        if seen == NOTHING:
            continue  # the log ends there
        if seen.offset is None and not seen.outside:
            why = f"{tp} on {source.alias} can't be read at {stretch.begin}: {seen.reason}"
            if unknown is None:
                raise Unreachable(why)
            unknown[tp] = why
            continue
        begin = max(stretch.begin, starts[tp], seen.offset or 0)
        if begin < stretch.end:
            kept[tp] = OffsetRange(begin, stretch.end)
    return kept


def _retentions(
    source: ClusterAdmin,
    target: ClusterAdmin,
    missing: Mapping[TopicPartition, Missing],
    policy: TopicSettings,
    unknown: dict[TopicPartition, str] | None,
) -> dict[TopicPartition, Retention]:
    denied = [None if unknown is None else set[str]() for _ in (source, target)]
    ours = source.topic_configs({tp.topic for tp in missing}, keys=RETENTION, denied=denied[0])
    theirs = target.topic_configs({each.target.topic for each in missing.values()}, keys=RETENTION, denied=denied[1])
    for tp, each in missing.items():
        for cluster, topic, hidden in zip((source, target), (tp.topic, each.target.topic), denied, strict=True):
            if unknown is not None and hidden and topic in hidden:
                unknown[tp] = f"drkit may not read the retention of {topic} on {cluster.alias} (grant DESCRIBE_CONFIGS)"
        if unknown is not None and tp not in unknown and not (tp.topic in ours and each.target.topic in theirs):
            unknown[tp] = f"no broker tells the retention of {tp.topic} on both sides"
    return {
        tp: retention_of(ours[tp.topic], theirs[each.target.topic], policy, tp.topic)
        for tp, each in missing.items()
        if tp.topic in ours and each.target.topic in theirs
    }


def _young(
    source: ClusterAdmin,
    missing: Mapping[TopicPartition, Missing],
    retentions: Mapping[TopicPartition, Retention],
    at_ms: int,
) -> dict[TopicPartition, OffsetRange]:
    """The range from the first record that retention by age would have kept."""
    since: dict[TopicPartition, int] = {}
    for tp in missing:
        limit = retentions[tp].ms
        if limit is not None:
            since[tp] = max(0, at_ms - limit + CLOCKS_MS)
    first = source.offsets_for_times(since) if since else {}
    found: dict[TopicPartition, OffsetRange] = {}
    for tp, each in missing.items():
        begin: int | None = each.stretch.begin
        if tp in since:
            begin = first.get(tp)  # None: all are older
        if begin is not None and begin < each.stretch.end:
            found[tp] = OffsetRange(max(begin, each.stretch.begin), each.stretch.end)
    return found


def _as_small(
    target: ClusterAdmin | None,
    missing: Mapping[TopicPartition, Missing],
    retentions: Mapping[TopicPartition, Retention],
) -> set[TopicPartition]:
    """Those whose logs are smaller than retention by size would have left them. `target` None: they were large
    enough, unless they were emptied."""
    sized = {tp: limit for tp in missing if (limit := retentions[tp].size) is not None}
    sizes: Mapping[TopicPartition, int] = {}
    if target is not None and sized:
        with suppress(Refused):  # an unknown size explains nothing
            sizes = target.log_sizes(missing[tp].target for tp in sized)
    large = {tp for tp, limit in sized.items() if target is None or sizes.get(missing[tp].target, 0) >= limit}
    return {tp for tp, each in missing.items() if tp not in large or (each.emptied and sized[tp] > 0)}
