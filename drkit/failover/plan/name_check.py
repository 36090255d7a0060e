"""Whether groups and topics that an operator names exist; an unknown one is refused and the known ones are listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drkit.failover.plan.snapshot import Snapshot
from drkit.failover.positions.selection import Selection
from drkit.model.errors import ConfigError


def check_names(world: Snapshot, selection: Selection) -> None:
    """Raise `ConfigError` where a group, topic or partition of the selection is nowhere."""
    known_groups = {position.group for position in world.positions} | {each.group for each in world.unmovable}
    on_target = {group for group, _ in world.committed}
    for group in selection.named:
        if group in known_groups:
            continue
        if group in on_target:
            raise ConfigError(
                f"group {group} has no position on {world.source.alias}",
                meaning=f"It has committed on {world.target.alias} only, where it stays as it is",
                remedy=f"Leave it out; groups to move: {_list(known_groups)}",
            )
        raise ConfigError(f"no group {group} is known", remedy=f"Known groups: {_list(known_groups | on_target)}")
    known_topics = {tp.topic for tp in world.partitions} | set(world.topics) | {p.topic for p in world.positions}
    for selector in selection.topics:
        if selector.topic not in known_topics:
            raise ConfigError(
                f"the link {world.link.id} carries no topic {selector.topic}",
                remedy=f"Known topics: {_list(known_topics)}",
            )
        there = {tp.partition for tp in world.partitions if tp.topic == selector.topic}
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
