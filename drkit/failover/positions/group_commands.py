"""Commands of Kafka's own tools for committed offsets, and the groups that a move leaves without a position. Pure.

drkit never guesses a position. A consumer that finds none begins where its `auto.offset.reset` says, which by default
is the log's end: it skips what it had not read. So each command puts the group at the log's begin, which skips nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from drkit.failover.positions.positions import NoReset, PlannedPosition
from drkit.failover.snapshot.selection import GROUP_TOPIC_PARTITION

CONSUMER_GROUPS = "kafka-consumer-groups.sh"
SHARE_GROUPS = "kafka-share-groups.sh"


def group_command(
    positions: Iterable[PlannedPosition], bootstrap_servers: str, *action: str, tool: str = CONSUMER_GROUPS
) -> str:
    """The command that does `action` to all of these positions of one group on the target, sorted by topic."""
    by_topic = {topic: list(each) for topic, each in groupby(positions, key=attrgetter("target_topic"))}
    group = next(each.group for mine in by_topic.values() for each in mine)
    places = [f"{topic}:{','.join(str(each.partition) for each in mine)}" for topic, mine in by_topic.items()]
    return _command(tool, bootstrap_servers, group, places, action)


def reset_command(group: str, place: str, bootstrap_servers: str) -> str:
    """The command that puts a group at the begin of a partition, given as `topic:partition`."""
    return _command(CONSUMER_GROUPS, bootstrap_servers, group, [place], _TO_EARLIEST)


def _command(tool: str, bootstrap_servers: str, group: str, places: Iterable[str], action: Iterable[str]) -> str:
    words = [tool, "--bootstrap-server", bootstrap_servers, "--group", group]
    for place in places:
        words += ["--topic", place]
    return shlex.join([*words, *action])


_TOOLS = {None: CONSUMER_GROUPS, NoReset.SHARE_GROUP: SHARE_GROUPS}
_TO_EARLIEST = ("--reset-offsets", "--to-earliest", "--execute")


@dataclass(frozen=True, slots=True)
class GroupWithoutPlace:
    """Positions of one group that one command places.

    `positions`: those without a place, by topic and partition. `command`: what gives all of them one on the target
    while the group has no members there; None: nothing can yet, the reasons of the positions say why.
    """

    group: str
    positions: tuple[PlannedPosition, ...]
    command: str | None


def without_place(positions: Iterable[PlannedPosition], bootstrap_servers: str) -> list[GroupWithoutPlace]:
    """The groups without a position on some partition, by name; once for each way to place them.

    Args:
        positions: of a plan or a run.
        bootstrap_servers: those of the cluster that groups move to.
    """
    left = sorted((each for each in positions if each.target_offset is None), key=GROUP_TOPIC_PARTITION)
    found = []
    for group, mine in groupby(left, key=attrgetter("group")):
        by_way: dict[NoReset | None, list[PlannedPosition]] = {}
        for position in mine:
            by_way.setdefault(position.no_reset, []).append(position)
        for way, together in by_way.items():
            tool = _TOOLS.get(way)
            command = None if tool is None else group_command(together, bootstrap_servers, *_TO_EARLIEST, tool=tool)
            found.append(GroupWithoutPlace(group, tuple(together), command))
    return found
