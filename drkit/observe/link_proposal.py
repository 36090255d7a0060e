"""Proposes a link between two clusters: topics, groups, exclusions, obstacles. Reads only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drkit.config.template import Excluded
from drkit.kafka.admin.clusters import Clusters
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition, is_canary, is_internal
from drkit.model.wording import and_more, counted

_TOPICS_OF_TOOLS = (
    Excluded(r"mm2-.*[.]internal|.*[.]checkpoints[.]internal|heartbeats", "MirrorMaker 2's own"),
    Excluded(r"connect-(configs|offsets|status)", "a Connect cluster's own: another Connect cluster needs its own"),
)
_GROUPS_OF_TOOLS = (
    Excluded(r"console-consumer-\d+", "kafka-console-consumer: nobody continues there"),
    Excluded(r"drkit[.]mirror[.].*", "the workers of a `drkit mirror` towards this cluster"),
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The findings, and the proposed exclusions.

    `occupied`: topics of the source that hold records on the target already; offsets can't be preserved there.
    """

    topics: tuple[str, ...]
    partitions: int
    groups: tuple[str, ...]
    exclude_topics: tuple[Excluded, ...]
    exclude_groups: tuple[Excluded, ...]
    occupied: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def remarks(self) -> tuple[str, ...]:
        """The findings, for the file."""
        found = f"{counted(len(self.topics), 'topic')} with {counted(self.partitions, 'partition')}"
        return (
            f"Found when this was written: {found}: {and_more(self.topics)}" if self.topics else "Found: no topic yet",
            f"Found: {counted(len(self.groups), 'consumer group')}: {and_more(self.groups)}"
            if self.groups
            else "Found: no consumer group yet",
            *(f"Check this: {warning}" for warning in self.warnings),
        )


def propose(clusters: Clusters, source: str, target: str) -> Proposal:
    """Inspect both clusters.

    Raises:
        Refused: both are one cluster, or drkit lacks rights to read it.
        Unreachable, ConfigError: a cluster doesn't answer, or refuses drkit's credentials.
    """
    here, there = clusters.admin(source), clusters.admin(target)
    if here.cluster_id() == there.cluster_id():
        raise Refused(
            f"{source} and {target} are one cluster: both answer as {here.cluster_id()}",
            remedy="Correct one of the two addresses",
        )
    found = {name: info for name, info in here.topics().items() if not is_internal(name) and not is_canary(name)}
    listed = clusters.groups(source).list_groups()
    groups = sorted(name for name, info in listed.items() if info.commits_offsets)
    others = sorted(set(listed) - set(groups))
    exclude_topics = _that_match(_TOPICS_OF_TOOLS, found)
    exclude_groups = _that_match(_GROUPS_OF_TOOLS, groups)
    topics = sorted(_without(exclude_topics, found))
    occupied = _occupied(clusters, target, topics)
    warnings = []
    if occupied:
        warnings.append(f"{target} holds records of {and_more(occupied)} already: their offsets can't be preserved")
    if others:
        warnings.append(
            f"{and_more([repr(name) for name in others])} commit no offsets (share groups): their positions don't move"
        )
    return Proposal(
        tuple(topics),
        sum(found[name].partitions for name in topics),
        tuple(sorted(_without(exclude_groups, groups))),
        exclude_topics,
        exclude_groups,
        tuple(occupied),
        tuple(warnings),
    )


def _occupied(clusters: Clusters, target: str, topics: Sequence[str]) -> list[str]:
    """Those of these topics that have, or had, records on the target."""
    admin = clusters.admin(target)
    there = admin.topics(topics)
    tps = [TopicPartition(name, number) for name, info in there.items() for number in range(info.partitions)]
    ends = admin.log_ends(tps, partial=True)
    return sorted({tp.topic for tp, end in ends.items() if end > 0})


def _that_match(patterns: Sequence[Excluded], names: Iterable[str]) -> tuple[Excluded, ...]:
    listed = list(names)
    return tuple(each for each in patterns if any(re.fullmatch(each.pattern, name) for name in listed))


def _without(excluded: Sequence[Excluded], names: Iterable[str]) -> list[str]:
    return [name for name in names if not any(re.fullmatch(each.pattern, name) for each in excluded)]
