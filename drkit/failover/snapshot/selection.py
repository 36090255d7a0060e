"""An operator's selection of positions and destinations: `--group`, `--topic`, `--to-earliest`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import attrgetter

from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.model.errors import ConfigError
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more


class Edge(StrEnum):
    """An end of the target's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


Where = Moment | Edge
GROUP_TOPIC_PARTITION = attrgetter("group", "topic", "partition")
"""The sort key of positions."""
_PARTITIONS = 2**31


@dataclass(frozen=True, slots=True)
class TopicSelector:
    """`--topic t` or `--topic t:0,1`; no partitions: all of them."""

    topic: str
    partitions: tuple[int, ...] = ()

    def covers(self, tp: TopicPartition) -> bool:
        """Whether the partition is selected."""
        return tp.topic == self.topic and (not self.partitions or tp.partition in self.partitions)

    def __str__(self) -> str:
        return self.topic + (":" + ",".join(map(str, self.partitions)) if self.partitions else "")


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """`--group NAME=WHERE`: a destination for this group alone."""

    group: str
    where: Where

    def __str__(self) -> str:
        return f"{self.group}={self.where.local if isinstance(self.where, Moment) else self.where}"


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected positions (`groups` and `topics` empty: all of the link's) and their destinations.

    `places` are the groups with their own destination, `edge` (`--to-earliest`, `--to-latest`) is that of the others;
    None: by mapping, or by the run's moment.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[TopicSelector, ...] = ()
    places: tuple[GroupTarget, ...] = ()
    edge: Edge | None = None

    def covers(self, group: str, tp: TopicPartition) -> bool:
        """Whether this group's position on this partition is selected."""
        return (not self.groups or group in self.groups) and (
            not self.topics or any(selector.covers(tp) for selector in self.topics)
        )

    @property
    def everything(self) -> bool:
        """Whether everything is selected."""
        return not self.groups and not self.topics

    @property
    def named(self) -> tuple[str, ...]:
        """Every named group."""
        return tuple(dict.fromkeys((*self.groups, *(place.group for place in self.places))))

    @property
    def moments(self) -> frozenset[int]:
        """The timestamps (ms) of groups with a moment of their own."""
        return frozenset(place.where.millis for place in self.places if isinstance(place.where, Moment))

    def where(self) -> dict[str, Where]:
        """The destination of each group with one of its own."""
        return {place.group: place.where for place in self.places}


def parse_topic_selector(text: str) -> TopicSelector:
    """Read `t` or `t:0,1`, as Kafka's own tools write it.

    Raises:
        ConfigError: not of that form.
    """
    topic, colon, listed = text.partition(":")
    numbers = [part.strip() for part in listed.split(",")] if colon else []
    partitions = tuple(sorted({int(each) if re.fullmatch("[0-9]{1,10}", each) else -1 for each in numbers}))
    if not topic or any(not 0 <= partition < _PARTITIONS for partition in partitions):
        raise ConfigError(f"--topic {text!r} is not a topic", remedy="Write it as NAME or NAME:0,1")
    return TopicSelector(topic, partitions)


class UnknownNames(ConfigError):
    """Groups and topics of a selection that a link doesn't know; another link of the run may know them.

    `known_groups`, `known_topics`: what may be named instead.
    """

    def __init__(
        self,
        what: str,
        *,
        meaning: str = "",
        remedy: str = "",
        groups: Collection[str],
        topics: Collection[str],
        known_groups: Collection[str],
        known_topics: Collection[str],
    ) -> None:
        super().__init__(what, meaning=meaning, remedy=remedy)
        self.groups, self.topics = frozenset(groups), frozenset(topics)
        self.known_groups, self.known_topics = frozenset(known_groups), frozenset(known_topics)


def check_names(snapshot: Snapshot, selection: Selection) -> None:
    """Raise `UnknownNames` for an unknown group or topic, `ConfigError` for an unknown partition."""
    known_groups = {position.group for position in snapshot.positions} | {each.group for each in snapshot.unmovable}
    on_target = {group for group, _ in snapshot.committed}
    known_topics = (
        {tp.topic for tp in snapshot.partitions} | set(snapshot.topics) | {p.topic for p in snapshot.positions}
    )
    groups = [group for group in selection.named if group not in known_groups]
    topics = [selector.topic for selector in selection.topics if selector.topic not in known_topics]
    unknown = partial(
        UnknownNames,
        groups=groups,
        topics=topics,
        known_groups=known_groups | on_target,
        known_topics=known_topics,
    )
    for group in groups:
        if group in on_target:
            raise unknown(
                f"group {group} has no position on {snapshot.source.alias}",
                meaning=f"It has committed only on {snapshot.target.alias}, where it stays",
                remedy=f"Leave it out; groups to move: {known_names(known_groups)}",
            )
        raise unknown(f"no group {group} is known", remedy=f"Known groups: {known_names(known_groups | on_target)}")
    for topic in topics:
        raise unknown(
            f"the link {snapshot.link.id} carries no topic {topic}", remedy=f"Known topics: {known_names(known_topics)}"
        )
    for selector in selection.topics:
        there = {tp.partition for tp in snapshot.partitions if tp.topic == selector.topic}
        absent = [partition for partition in selector.partitions if partition not in there]
        if absent:
            raise ConfigError(
                f"topic {selector.topic} has no partition {', '.join(map(str, absent))}",
                remedy=f"Known partitions: {', '.join(map(str, sorted(there)))}",
            )


def known_names(names: Iterable[str]) -> str:
    """Names in their order, as many as fit on a screen."""
    return and_more(sorted(names), shown=20) or "none"
