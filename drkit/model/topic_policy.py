"""A link's policy for its target's topics: settings that follow the source, overrides, deletions, ACLs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

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

OPTIONAL = (
    "file.delete.delay.ms",
    "index.interval.bytes",
    "preallocate",
    "segment.index.bytes",
    "unclean.leader.election.enable",
)
"""Settings that follow only where the policy's `include` names them: they concern brokers more than data."""

Settings = tuple[tuple[str, str], ...]
"""Names and values of topic settings, in order."""


class Deletions(StrEnum):
    """What happens to a target topic whose source topic was deleted."""

    KEEP = "keep"
    MIRROR = "mirror"


class AclMode(StrEnum):
    """Which of the source's ACLs the target gets.

    `STANDBY`: read permissions at once, the others at the switch. `COPY`: all at once.
    """

    OFF = "off"
    STANDBY = "standby"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class TopicOverride:
    """Settings of the topics whose source name matches `match` (a regular expression, whole name)."""

    match: str
    settings: Settings = ()
    replication_factor: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Which settings of a topic follow its source, and which are overridden.

    `include`, `exclude`: regular expressions over names of settings; an empty `include` means all that can
    follow. `overrides`: settings of every target topic; those of `topics` win, a later one over an earlier
    one. `replication_factor`: of topics that drkit creates; None: the source's.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    overrides: Settings = ()
    replication_factor: int | None = None
    topics: tuple[TopicOverride, ...] = ()

    def follows(self, setting: str) -> bool:
        """Whether a setting follows the source, where nothing overrides it."""
        wanted = not self.include or _matches(setting, self.include)
        return wanted and not _matches(setting, self.exclude)

    def overrides_of(self, topic: str) -> dict[str, str]:
        """The overrides for a topic (by its source name)."""
        found = dict(self.overrides)
        for each in self.topics:
            if re.fullmatch(each.match, topic):
                found.update(each.settings)
        return found

    def replicas_of(self, topic: str) -> int | None:
        """The replication factor with which a topic is created; None: the source's."""
        found = self.replication_factor
        for each in self.topics:
            if each.replication_factor is not None and re.fullmatch(each.match, topic):
                found = each.replication_factor
        return found


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)
