"""Groups that a move leaves without a position, and the commands of Kafka's own tools that give them one. Pure.

drkit never guesses a position. A consumer that finds none begins where its `auto.offset.reset` says, which by default
is the log's end: it skips what it had not read. So each command puts the group at the log's begin, which skips nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from drkit.failover.positions.positions import GROUP_TOPIC_PARTITION, NoReset, PlannedPosition

_TOOLS = {None: "kafka-consumer-groups.sh", NoReset.SHARE_GROUP: "kafka-share-groups.sh"}


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
            command = _command(_TOOLS[way], group, together, bootstrap_servers) if way in _TOOLS else None
            found.append(GroupWithoutPlace(group, tuple(together), command))
    return found


def _command(tool: str, group: str, positions: Iterable[PlannedPosition], bootstrap_servers: str) -> str:
    words = [tool, "--bootstrap-server", bootstrap_servers, "--group", group]
    for topic, parts in groupby(positions, key=attrgetter("target_topic")):
        words += ["--topic", f"{topic}:{','.join(str(each.partition) for each in parts)}"]
    return shlex.join([*words, "--reset-offsets", "--to-earliest", "--execute"])
