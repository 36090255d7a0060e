"""Tells groups that were deleted on the source from those that it lost.

A source that lost its `__consumer_offsets`, or was set back to an older copy of its disks, lacks groups as if
somebody had deleted them, and their captured positions are all that is left. But whoever deletes a group, and a
coordinator that lets it expire, writes so into that log, behind all that the group committed: a tombstone of an offset,
or of the group. Nothing else counts as a deletion. So positions stay where drkit may not read the log.

The log is read from where it ended a look before a listing last had the group (a coordinator may list it for a moment
after its end): an earlier tombstone, of one of its offsets say, was not its end. Where this process has not seen it
listed, the log is read from a minute before the group was last captured on (its brokers' clocks and this one may
differ). It is read for `_LOOK_FOR_SECONDS` after the group was missed: a coordinator may tell a moment before the log
does.

While a partition has parted from its source, nothing is taken for a deletion: a source that was set back lets groups
expire by commits that are as old as its disks.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.groups.commit_reader import batches_of
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.kafka.protocol.records import Damaged
from drkit.kafka.protocol.transaction_log import removed_groups
from drkit.model.clock import to_millis
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more

log = logging.getLogger(__name__)

_EARLIER = timedelta(seconds=60)
_LOOK_FOR_SECONDS = 30.0
_READ_SECONDS = 1.0
"""How long one look reads; the next one continues."""
_ANSWER_SECONDS = 2.0


@dataclass(slots=True)
class _Missed:
    """A group that the source doesn't list: since when, and from which offset of its partition of the log on to read
    (-1: drkit may not read it). `over`: it isn't looked for any more."""

    part: int
    at: float
    begin: int
    over: bool = False


class DeletedGroups:
    """See the module docstring. Not thread-safe.

    Args:
        alias: the source's name in messages.
        cluster: how to reach it.
        topics: its topics.
        parted: the partitions that have parted from their source.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        alias: str,
        cluster: ClusterConfig,
        topics: ClusterAdmin,
        parted: Callable[[], Sequence[TopicPartition]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parted = parted
        self._held = False
        self._alias = alias
        self._cluster = cluster
        self._topics = topics
        self._clock = clock
        self._missed: dict[str, _Missed] = {}
        self._listed: dict[str, Mapping[int, int]] = {}
        self._recent: set[str] = set()  # those that the last complete listing had, or one since
        self._ends: Mapping[int, int] = {}

    def lost(self) -> set[str]:
        """The missing groups that nothing says were deleted, or that are kept (`keep`): they aren't looked for any more
        until they come back."""
        return {group for group, missed in self._missed.items() if missed.over}

    def back(self, listed: Collection[str], ends: Mapping[int, int], *, complete: bool) -> None:
        """The source lists these groups: none of them is missing. `ends`: where the log's partitions ended before;
        `complete`: it lists no others."""
        for group in self._missed.keys() & set(listed):
            del self._missed[group]
        kept = {group: at for group, at in self._listed.items() if group in self._missed or group in self._recent}
        self._recent = set(listed) if complete else self._recent | set(listed)
        before, self._ends = self._ends, ends
        floor = {part: min(end, before[part]) for part, end in ends.items() if part in before}
        self._listed = kept | dict.fromkeys(listed, floor)

    def keep(self, groups: Iterable[str]) -> None:
        """These missing groups were deleted, but not all that was captured of them is forgotten: until they are back,
        they aren't looked for any more."""
        for group in groups:
            self._missed[group] = _Missed(-1, self._clock(), 0, over=True)

    def among(self, missing: Mapping[str, datetime]) -> set[str]:
        """Those of these missing groups, with when each was last seen, that were deleted; none while a partition has
        parted from its source.

        Raises:
            Unreachable: the source doesn't answer.
        """
        parted = self._parted()
        if parted and not self._held:
            log.warning(
                "%s no longer has %s, but %s may hold other records there than were mirrored (see its problem): %s may "
                "have been restored from an older copy of its disks, so until that is settled no group is forgotten",
                self._alias,
                and_more(sorted(missing)),
                and_more([str(tp) for tp in parted]),
                self._alias,
            )
        self._held = bool(parted)
        if parted:
            return set()
        try:
            self._begin({group: at for group, at in missing.items() if group not in self._missed})
            deleted, unread = self._read(missing)
        except Unreachable:
            raise
        except (DrkitError, Damaged):  # drkit may not read the log, or some of it can't be read
            deleted, unread = set(), set()
        for group in missing:
            each = self._missed.setdefault(group, _Missed(-1, self._clock(), 0))
            each.over = each.part not in unread and self._clock() - each.at >= _LOOK_FOR_SECONDS
        for group in deleted:
            del self._missed[group]
        return deleted

    def _begin(self, missing: Mapping[str, datetime]) -> None:
        """Note where in the log each group's deletion may be."""
        info = self._topics.topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC) if missing else None
        if info is None:
            return
        homes: dict[TopicPartition, list[str]] = defaultdict(list)
        for group in missing:
            homes[TopicPartition(OFFSETS_TOPIC, partition_of(group, info.partitions))].append(group)
        since = {tp: to_millis(min(missing[each] for each in its) - _EARLIER) for tp, its in homes.items()}
        begins = self._topics.offsets_for_times(since)
        ends = self._topics.end_offsets(homes, committed=False, partial=True)
        for tp, its in homes.items():
            begin = begins.get(tp)
            begin = ends.get(tp) if begin is None else begin
            for group in its:
                first = self._listed.get(group, {}).get(tp.partition, begin)
                if first is not None:
                    self._missed[group] = _Missed(tp.partition, self._clock(), first)

    def _read(self, missing: Collection[str]) -> tuple[set[str], set[int]]:
        """Those of these groups that were deleted by what was read now, and the partitions that aren't read to their
        end."""
        wanted: dict[int, set[str]] = defaultdict(set)
        for group in missing:
            if (missed := self._missed.get(group)) is not None and missed.part >= 0 and not missed.over:
                wanted[missed.part].add(group)
        if not wanted:
            return set(), set()
        parts = [TopicPartition(OFFSETS_TOPIC, part) for part in wanted]
        ends = self._topics.end_offsets(parts, committed=False, partial=True)
        deleted: set[str] = set()
        until = self._clock() + _READ_SECONDS
        with LogReader(self._alias, self._cluster, timeout_seconds=_ANSWER_SECONDS, committed=False) as reader:
            for tp, end in ends.items():
                its = {group: self._missed[group] for group in wanted[tp.partition]}
                for removed, after in self._removed(reader, tp.partition, min(e.begin for e in its.values()), end):
                    deleted |= {group for group in its.keys() & removed if its[group].begin < after}
                    for each in its.values():
                        each.begin = max(each.begin, after)
                    if self._clock() >= until:
                        break
        unread = {tp.partition for tp in parts if self._behind(wanted[tp.partition], ends.get(tp))}
        return deleted, unread

    def _behind(self, groups: Collection[str], end: int | None) -> bool:
        return end is None or any(self._missed[group].begin < end for group in groups)

    @staticmethod
    def _removed(reader: LogReader, part: int, begin: int, end: int) -> Iterator[tuple[set[str], int]]:
        """The groups that each batch removes something of, and the offset behind it."""
        for batch in batches_of(reader, part, begin, end):
            yield (set() if batch.is_control else set(removed_groups(batch))), batch.last_offset + 1
