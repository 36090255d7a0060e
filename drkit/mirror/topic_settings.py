"""Which settings a standby's topic has: the source's effective ones, but for those that would harm a mirror. Pure.

Effective values are compared, broker defaults included: a source whose brokers keep records for a
month must not meet a target whose brokers keep them for a week.

- `message.timestamp.type` is CreateTime and the limits on timestamps are wide open on the standby,
  or records would get another stamp or be refused. (At the switch the source's values are due.)
- `min.insync.replicas` is never above what the target topic has replicas.
- Settings about where a cluster keeps replicas and tiers, or how it throttles them, stay its own.
"""

from __future__ import annotations

from collections.abc import Mapping

FOLLOWED = (
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "flush.messages",
    "flush.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.jitter.ms",
    "segment.ms",
)
"""Settings whose effective values follow the source."""

_WIDE_OPEN = str(2**63 - 1)
STANDBY = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": _WIDE_OPEN,
    "message.timestamp.before.max.ms": _WIDE_OPEN,
}
"""Settings that a topic has while it is a standby."""

READ = (*FOLLOWED, *STANDBY)
"""What is to be read of both sides' topics."""


def standby_settings(
    source: Mapping[str, str], target: Mapping[str, str] | None, *, target_replicas: int
) -> dict[str, str]:
    """The settings to put on the target topic so that it follows its source.

    Args:
        source: effective settings of the source topic (those of `READ`).
        target: effective settings of the target topic, None where it is to be created.
        target_replicas: the target topic's replication factor.

    Returns:
        Those that differ; for a topic to be created, all. A setting that the source's brokers don't
        know is left as it is; one that the target's don't know can't be set.
    """
    wanted = {name: source[name] for name in FOLLOWED if name in source}
    if "min.insync.replicas" in wanted:
        wanted["min.insync.replicas"] = str(min(int(wanted["min.insync.replicas"]), target_replicas))
    wanted.update(STANDBY)
    if target is None:
        return wanted
    return {name: value for name, value in wanted.items() if name in target and target[name] != value}


def is_compacted(settings: Mapping[str, str]) -> bool:
    """Whether the log cleaner may remove records from the middle of the topic."""
    return "compact" in settings.get("cleanup.policy", "delete")
