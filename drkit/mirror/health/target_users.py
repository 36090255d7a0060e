"""Detects whether anybody else uses the target: then a backlog is copied without disturbing them.

Others' writes show in the logs: the end of a partition that isn't this link's moves. So do commits of consumers, in
`__consumer_offsets`. A consumer that commits nothing isn't detected on a cluster where nobody else writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import islice

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.model.topology import Link, TopicPartition, is_canary, worker_group

_REMEMBERED_SECONDS = 60.0
_MOST_AT_ONCE = 2_000
_STATE_TOPICS = "__drkit_state."


class TargetUsers:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link.
        target: its target.
        topics: the link's topics, by the source's name, as far as they are known.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterAdmin,
        topics: Callable[[], Collection[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._target = target
        self._group = worker_group(link.id)
        self._topics = topics
        self._clock = clock
        self._ends: dict[TopicPartition, int] = {}
        self._looks = 0
        self._seen_at: float | None = None

    @property
    def known(self) -> bool:
        """Whether two looks could be compared."""
        return self._link.shares_target or self._looks > 1

    @property
    def in_use(self) -> bool:
        """Whether others used the target within the last minute."""
        if self._link.shares_target:
            return True  # its own topics have other writers, who can't be told apart
        return self._seen_at is not None and self._clock() - self._seen_at < _REMEMBERED_SECONDS

    def look(self) -> None:
        """Look at the ends of partitions that aren't the link's.

        Raises:
            Unreachable: the target doesn't answer.
        """
        if self._link.shares_target:
            return
        ends = self._target.end_offsets(self._chosen(), committed=False, partial=True, recent_leaders=True)
        if any(end > self._ends.get(tp, end) for tp, end in ends.items()):
            self._seen_at = self._clock()
        self._ends.update(ends)
        self._looks += 1

    def _chosen(self) -> list[TopicPartition]:
        """Partitions that aren't the link's; of very many only some at each look, in turns."""
        own = {self._link.target_topic(topic) for topic in self._topics()}
        found = []
        for name, info in self._target.topics().items():
            if name in own or is_canary(name) or name.startswith(_STATE_TOPICS):
                continue
            left_out = partition_of(self._group, info.partitions) if name == OFFSETS_TOPIC else None
            found += [TopicPartition(name, number) for number in range(info.partitions) if number != left_out]
        if len(found) <= _MOST_AT_ONCE:
            return found
        begin = self._looks // 2 * _MOST_AT_ONCE % len(found)  # each part twice in a row, so that it can be compared
        return list(islice([*found, *found], begin, begin + _MOST_AT_ONCE))
