"""Commands of Kafka's own tools that set or delete a group's committed offsets. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from drkit.failover.positions.positions import PlannedPosition

CONSUMER_GROUPS = "kafka-consumer-groups.sh"
SHARE_GROUPS = "kafka-share-groups.sh"


def group_command(
    positions: Iterable[PlannedPosition], bootstrap_servers: str, *action: str, tool: str = CONSUMER_GROUPS
) -> str:
    """The command that does `action` to all of these positions of one group on the target, sorted by topic."""
    by_topic = {topic: list(each) for topic, each in groupby(positions, key=attrgetter("target_topic"))}
    group = next(each.group for mine in by_topic.values() for each in mine)
    words = [tool, "--bootstrap-server", bootstrap_servers, "--group", group]
    for topic, mine in by_topic.items():
        words += ["--topic", f"{topic}:{','.join(str(each.partition) for each in mine)}"]
    return shlex.join([*words, *action])
