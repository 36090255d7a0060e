"""Checks that groups and topics named by an operator exist; the error lists the known ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from drkit.failover.plan.snapshot import Snapshot
from drkit.failover.positions.selection import Selection
from drkit.model.errors import ConfigError


class UnknownNames(ConfigError):
    """Groups and topics of a selection that a link doesn't know; another link of the run may know them."""

    def __init__(
        self, what: str, *, meaning: str = "", remedy: str = "", groups: Collection[str], topics: Collection[str]
    ) -> None:
        super().__init__(what, meaning=meaning, remedy=remedy)
        self.groups = frozenset(groups)
        self.topics = frozenset(topics)


def check_names(snapshot: Snapshot, selection: Selection) -> None:
    """Raise `UnknownNames` for an unknown group or topic, `ConfigError` for an unknown partition."""
    known_groups = {position.group for position in snapshot.positions} | {each.group for each in snapshot.unmovable}
    on_target = {group for group, _ in snapshot.committed}
    known_topics = (
        {tp.topic for tp in snapshot.partitions} | set(snapshot.topics) | {p.topic for p in snapshot.positions}
    )
    groups = [group for group in selection.named if group not in known_groups]
    topics = [selector.topic for selector in selection.topics if selector.topic not in known_topics]
    for group in groups:
        if group in on_target:
            raise UnknownNames(
                f"group {group} has no position on {snapshot.source.alias}",
                meaning=f"It has committed only on {snapshot.target.alias}, where it stays",
                remedy=f"Leave it out; groups to move: {_list(known_groups)}",
                groups=groups,
                topics=topics,
            )
        raise UnknownNames(
            f"no group {group} is known",
            remedy=f"Known groups: {_list(known_groups | on_target)}",
            groups=groups,
            topics=topics,
        )
    for topic in topics:
        raise UnknownNames(
            f"the link {snapshot.link.id} carries no topic {topic}",
            remedy=f"Known topics: {_list(known_topics)}",
            groups=groups,
            topics=topics,
        )
    for selector in selection.topics:
        there = {tp.partition for tp in snapshot.partitions if tp.topic == selector.topic}
        absent = [partition for partition in selector.partitions if partition not in there]
        if absent:
            raise ConfigError(
                f"topic {selector.topic} has no partition {', '.join(map(str, absent))}",
                remedy=f"Known partitions: {', '.join(map(str, sorted(there)))}",
            )


def _list(names: Iterable[str]) -> str:
    known: Sequence[str] = sorted(names)
    shown = ", ".join(known[:20]) or "none"
    return shown + (f" and {len(known) - 20} more" if len(known) > 20 else "")  # noqa: PLR2004 - a screenful
