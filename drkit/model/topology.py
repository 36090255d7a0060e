"""Clusters, links and partitions: which topics flow from where to where, and under which name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Self

from drkit.model.topic_policy import AclMode, Deletions, TopicSettings

OWN_GROUPS = "drkit."
"""Groups whose names begin so are drkit's own: the workers of a link meet in one. They are no business groups."""
REHEARSAL_GROUPS = f"{OWN_GROUPS}rehearsal."
"""Groups that a rehearsed failover makes and removes again."""


class TopicPartition(NamedTuple):
    """A partition, named by its topic on the link's *source* unless said otherwise."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The partition that `str` wrote as `topic:partition`."""
        topic, _, number = text.rpartition(":")
        return cls(topic, int(number))


class Isolation(StrEnum):
    """Which records of the source count: without those of open and aborted transactions, or all of them."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class OffsetMode(StrEnum):
    """How a link treats offsets: keep them equal where Kafka allows it, or only translate."""

    PRESERVE = "preserve"
    TRANSLATE = "translate"


class TopicPolicy(StrEnum):
    """How a topic is called on the target."""

    IDENTITY = "identity"
    PREFIX = "prefix"


DEFAULT_BUFFER_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LinkId:
    """A link's name: ``source->target`` by cluster alias."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def parse(cls, text: str) -> LinkId:
        """Read ``source->target``; raises ValueError where it isn't of that form."""
        source, arrow, target = text.partition("->")
        if not arrow or not source.strip() or not target.strip():
            raise ValueError(f"{text!r} is not a link; write it as source->target, e.g. primary->dr")
        return cls(source.strip(), target.strip())

    def reversed(self) -> LinkId:
        """The same pair of clusters in the other direction."""
        return LinkId(self.target, self.source)


def worker_group(link: LinkId) -> str:
    """The group in which the workers of a link meet, on its target."""
    return f"{OWN_GROUPS}mirror.{link.source}-{link.target}"


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to the broker itself (`__consumer_offsets` …) and is never mirrored."""
    return topic.startswith("__")


_CANARY = re.compile(r"(.*[.])?drkit[.]canary[.].*")


def is_canary(topic: str) -> bool:
    """Whether a topic is a link's canary (see `Link.canary_topic`), also as mirrored onward by another link."""
    return _CANARY.fullmatch(topic) is not None


@dataclass(frozen=True, slots=True)
class TimelinePolicy:
    """How much of the timeline a link keeps.

    Args:
        recent_seconds: how long every change is kept, as captured.
        keep_seconds: how long one state a minute is kept; 0: no timeline.
        max_rows: the bound on states kept of one link, over all groups and topics.
    """

    recent_seconds: float = 600.0
    keep_seconds: float = 86_400.0
    max_rows: int = 1_000_000

    @property
    def on(self) -> bool:
        """Whether anything is kept."""
        return self.keep_seconds > 0


@dataclass(frozen=True, slots=True)
class CatchUpPolicy:
    """How a link copies a backlog.

    Args:
        adaptive: where others use the target, no faster than they don't feel it.
        max_bytes_per_second: the bound for all workers together; None: there is none.
        max_latency_seconds, latency_factor: how slow the target's answers may become by it, in all and in parts of what
            they take without it.
    """

    adaptive: bool = True
    max_bytes_per_second: int | None = None
    max_latency_seconds: float = 0.01
    latency_factor: float = 2.0


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of mirroring between two clusters.

    `inverse` is true for the way back of a configured link (failback's re-seed): its source holds
    the topics under the names that the configured link gave them, and records go back unaltered:
    neither `filter` and `transform` (``module:function``) nor `provenance` act on it.

    `renames`: pairs of a source topic and its name on the target, instead of its own (identity
    policy only). `aliases`: all clusters of the configuration, whose names may stand as prefixes
    before a topic's name. `shares_target`: the target's topics have other writers too, since links
    of a cycle carry the same topics both ways (active-active under one name, told apart by
    provenance). `max_bytes_per_second` (None: unlimited) is of all workers together, `buffer_bytes` of each.
    `catch_up`: how a backlog is copied.

    `timeline`: how much of its groups' past is kept. `canary`: whether drkit sends itself a record a
    second through the link, to measure how long it takes. `range_digests`: whether digests of what was forwarded are
    kept, for `drkit audit --from-digests`.

    `deletion_limit`: how many topics may be deleted on the target without an operator's word.
    """

    id: LinkId
    topics: tuple[str, ...]
    exclude_topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = (".*",)
    exclude_groups: tuple[str, ...] = ()
    offsets: OffsetMode = OffsetMode.PRESERVE
    policy: TopicPolicy = TopicPolicy.IDENTITY
    inverse: bool = False
    isolation: Isolation = Isolation.READ_COMMITTED
    topic_settings: TopicSettings = field(default_factory=TopicSettings)
    deletions: Deletions = Deletions.KEEP
    deletion_limit: int = 5
    acls: AclMode = AclMode.OFF
    filter: str | None = None
    transform: str | None = None
    provenance: bool = False
    renames: tuple[tuple[str, str], ...] = ()
    aliases: tuple[str, ...] = ()
    shares_target: bool = False
    max_bytes_per_second: int | None = None
    catch_up: CatchUpPolicy = field(default_factory=CatchUpPolicy)
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    timeline: TimelinePolicy = field(default_factory=TimelinePolicy)
    canary: bool = False
    range_digests: bool = True

    @property
    def keeps_range_digests(self) -> bool:
        """Whether the mirror keeps digests of what it forwards. Not where aborted records go along: an audit reads
        what is committed; nor where records are altered: nothing is forwarded as it is."""
        return self.range_digests and self.committed and not self.alters

    @property
    def committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation is Isolation.READ_COMMITTED

    @property
    def canary_topic(self) -> str | None:
        """The topic on the source that carries the canary; None without one, and on the way back."""
        return f"drkit.canary.{self.id.source}.{self.id.target}" if self.canary and not self.inverse else None

    @property
    def alters(self) -> bool:
        """Whether records on the target may differ from the source's: filtered, transformed or with provenance."""
        return not self.inverse and (self.filter is not None or self.transform is not None or self.provenance)

    @property
    def settings_policy(self) -> TopicSettings:
        """What is said about the settings of topics on this direction's target: nothing, on the way back."""
        return TopicSettings() if self.inverse else self.topic_settings

    @property
    def mirrors_deletions(self) -> bool:
        """Whether topics deleted on the source are deleted on the target; never on the way back, and
        never where the target's topics are somebody else's too."""
        return self.deletions is Deletions.MIRROR and not self.inverse and not self.shares_target

    @property
    def marks(self) -> bool:
        """Whether the link marks records with their provenance, and sends none back where it has been."""
        return self.provenance and not self.inverse

    def covers_topic(self, topic: str) -> bool:
        """Whether the link mirrors this topic of its source (whole-name match, internals and canaries never)."""
        if is_internal(topic) or is_canary(topic):
            return False
        name = topic
        if self.policy is TopicPolicy.PREFIX:
            if self.inverse:
                prefix = f"{self.id.target}."
                if not topic.startswith(prefix):
                    return False
                name = topic.removeprefix(prefix)
            elif re.fullmatch(self.passed_target, topic):
                return False  # came from the target or through it: mirroring it back would loop
        elif self.inverse:
            original = self._original(topic)
            if original is None:
                return False
            name = original
        return _matches(name, self.topics) and not _matches(name, self.exclude_topics)

    def mirrors_topic(self, topic: str) -> bool:
        """Whether records of this topic are carried: those it covers, and its canary."""
        return self.covers_topic(topic) or topic == self.canary_topic

    def covers_group(self, group: str) -> bool:
        """Whether the link carries this consumer group's positions (drkit's own groups never)."""
        if group.startswith(OWN_GROUPS):
            return False
        return _matches(group, self.groups) and not _matches(group, self.exclude_groups)

    def target_topic(self, topic: str) -> str:
        """The name on the target of a source topic."""
        if self.policy is TopicPolicy.IDENTITY:
            return self._original(topic) or topic if self.inverse else dict(self.renames).get(topic, topic)
        if self.inverse:
            return topic.removeprefix(f"{self.id.target}.")
        return f"{self.id.source}.{topic}"

    def source_topic(self, target_topic: str) -> str | None:
        """The source topic that a target topic stands for, or None where it isn't of this link."""
        topic: str | None
        if self.policy is TopicPolicy.IDENTITY:
            topic = dict(self.renames).get(target_topic, target_topic) if self.inverse else self._original(target_topic)
        elif self.inverse:
            topic = f"{self.id.target}.{target_topic}"
        elif target_topic.startswith(f"{self.id.source}."):
            topic = target_topic.removeprefix(f"{self.id.source}.")
        else:
            return None
        return topic if topic is not None and self.covers_topic(topic) else None

    def reversed(self) -> Link:
        """The way back: target to source, with reversed names."""
        return replace(self, id=self.id.reversed(), inverse=not self.inverse)

    @property
    def passed_target(self) -> str:
        """A regular expression for topics whose prefixes say that they passed through the target (prefix policy)."""
        known = "|".join(re.escape(alias) for alias in sorted({*self.aliases, self.id.source, self.id.target}))
        return rf"(?:(?:{known})[.])*{re.escape(self.id.target)}[.].*"

    def _original(self, renamed: str) -> str | None:
        """What a topic is called where the configured link reads it; None: it is not of the link."""
        originals = {there: here for here, there in self.renames}
        if renamed in originals:
            return originals[renamed]
        return None if renamed in dict(self.renames) else renamed


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    plain, others = _compiled(patterns)
    return name in plain or any(pattern.fullmatch(name) for pattern in others)


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Patterns that are names as they are, and the others: a link may list hundreds of topics."""
    plain = {pattern: re.sub(r"\[\.\]|\\\.", ".", pattern) for pattern in patterns}
    names = {pattern for pattern in patterns if re.fullmatch(r"(?:[\w-]|\[\.\]|\\\.)+", pattern)}
    others = tuple(re.compile(pattern) for pattern in patterns if pattern not in names)
    return frozenset(plain[pattern] for pattern in names), others
