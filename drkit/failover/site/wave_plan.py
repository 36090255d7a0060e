"""Which groups move in which wave. Pure.

A group is committed as a whole, on all links that have it, in one wave: Kafka accepts offsets from outside only while
a group has no members, so consumers may start once all of their group is committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drkit.config.schema.config import WaveConfig
from drkit.failover.plan.failover_plan import FailoverPlan
from drkit.model.topology import LinkId

REST = "the rest"
"""The last wave: groups that no configured wave matches."""


@dataclass(frozen=True, slots=True)
class Wave:
    """A wave as it was configured when the plan was made; see `drkit.config.schema.config`."""

    name: str
    links: tuple[str, ...] = (".*",)
    groups: tuple[str, ...] = (".*",)
    topics: tuple[str, ...] = (".*",)
    after: tuple[tuple[str, ...], ...] = ()
    pause_seconds: float = 0.0
    timeout_seconds: float = 60.0
    stops: bool = True
    max_loss_records: int | None = None
    max_loss_seconds: float | None = None

    @classmethod
    def of(cls, configured: WaveConfig) -> Wave:
        """A wave from the configuration."""
        values = configured.model_dump(exclude={"on_failure"})
        return cls(**values, stops=configured.on_failure == "stop")

    def takes(self, link: LinkId, group: str, topics: Iterable[str]) -> bool:
        """Whether a group that reads these topics of the link's source matches, unless an earlier wave has it."""
        reads = any(_any(self.topics, topic) for topic in topics)
        return reads and _any(self.links, str(link)) and _any(self.groups, group)


def waves_of(configured: Sequence[WaveConfig]) -> tuple[Wave, ...]:
    """The waves in order, the rest last; none: all groups move as they can."""
    return (*(Wave.of(each) for each in configured), Wave(REST)) if configured else ()


class WaveAssignment:
    """The wave of each group, by number.

    Args:
        waves: in order.
        plans: of all links. A group on several links belongs to the last of the waves that they give it.
    """

    def __init__(self, waves: Sequence[Wave], plans: Iterable[FailoverPlan]) -> None:
        self._waves = waves
        self._of: dict[str, int] = {}
        self._groups: dict[LinkId, frozenset[str]] = {}
        for plan in plans:
            topics: dict[str, set[str]] = {}
            for position in plan.placed:
                topics.setdefault(position.group, set()).add(position.topic)
            self._groups[plan.link] = frozenset(topics)
            for group, read in topics.items():
                self._of[group] = max(self._of.get(group, 0), self._by_pattern(plan.link, group, read))

    def wave(self, link: LinkId, group: str, topics: Iterable[str]) -> int:
        """The wave of a group; one that was not planned is matched by the patterns alone."""
        found = self._of.get(group)
        return self._by_pattern(link, group, topics) if found is None else found

    def groups(self, link: LinkId) -> dict[int, list[str]]:
        """The groups that a link's plan places, by wave, sorted."""
        found: dict[int, list[str]] = {}
        for group in sorted(self._groups[link]):
            found.setdefault(self._of[group], []).append(group)
        return dict(sorted(found.items()))

    def first(self, link: LinkId) -> int:
        """The wave in which a link's run begins: that of its first groups, or the last one."""
        return min(self.groups(link), default=len(self._waves) - 1)

    def _by_pattern(self, link: LinkId, group: str, topics: Iterable[str]) -> int:
        read = list(topics)
        taking = (number for number, wave in enumerate(self._waves) if wave.takes(link, group, read))
        return next(taking, len(self._waves) - 1)


def _any(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)
