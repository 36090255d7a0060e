"""Clusters, links and partitions: which topics flow from where to where, and under which name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition, named by its topic on the link's *source* unless said otherwise."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


class OffsetMode(StrEnum):
    """How a link treats offsets: keep them equal where Kafka allows it, or only translate."""

    PRESERVE = "preserve"
    TRANSLATE = "translate"


class TopicPolicy(StrEnum):
    """How a topic is called on the target."""

    IDENTITY = "identity"
    PREFIX = "prefix"


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


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to the broker itself (`__consumer_offsets` …) and is never mirrored."""
    return topic.startswith("__")


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of mirroring between two clusters.

    `inverse` is true for the way back of a configured link (failback's re-seed): its source holds
    the topics under the names that the configured link gave them.
    """

    id: LinkId
    topics: tuple[str, ...]
    exclude_topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = (".*",)
    exclude_groups: tuple[str, ...] = ()
    offsets: OffsetMode = OffsetMode.PRESERVE
    policy: TopicPolicy = TopicPolicy.IDENTITY
    inverse: bool = False

    def covers_topic(self, topic: str) -> bool:
        """Whether the link mirrors this topic of its source (whole-name match, internals never)."""
        if is_internal(topic):
            return False
        name = topic
        if self.policy is TopicPolicy.PREFIX:
            if self.inverse:
                prefix = f"{self.id.target}."
                if not topic.startswith(prefix):
                    return False
                name = topic.removeprefix(prefix)
            elif topic.startswith(f"{self.id.target}."):
                return False  # came from the target: mirroring it back would loop
        return _matches(name, self.topics) and not _matches(name, self.exclude_topics)

    def covers_group(self, group: str) -> bool:
        """Whether the link carries this consumer group's positions."""
        return _matches(group, self.groups) and not _matches(group, self.exclude_groups)

    def target_topic(self, topic: str) -> str:
        """The name on the target of a source topic."""
        if self.policy is TopicPolicy.IDENTITY:
            return topic
        if self.inverse:
            return topic.removeprefix(f"{self.id.target}.")
        return f"{self.id.source}.{topic}"

    def source_topic(self, target_topic: str) -> str | None:
        """The source topic that a target topic stands for, or None where it isn't of this link."""
        if self.policy is TopicPolicy.IDENTITY:
            topic = target_topic
        elif self.inverse:
            topic = f"{self.id.target}.{target_topic}"
        elif target_topic.startswith(f"{self.id.source}."):
            topic = target_topic.removeprefix(f"{self.id.source}.")
        else:
            return None
        return topic if self.covers_topic(topic) else None

    def reversed(self) -> Link:
        """The way back: target to source, names turned round."""
        return replace(self, id=self.id.reversed(), inverse=not self.inverse)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)
