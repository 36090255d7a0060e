"""Tells groups that were deleted on the source from those that it lost.

A source that lost its `__consumer_offsets`, or was set back to an older copy of its disks, lacks groups as if
somebody had deleted them, and their captured positions are all that is left. But whoever deletes a group, and a
coordinator that lets it expire, writes so into that log, behind all that the group committed: a tombstone of an offset,
or of the group. Nothing else counts as a deletion. So positions stay where drkit may not read the log.

Nor does a tombstone count in a log that was set back since: there groups expire by commits as old as the disks. So
whenever positions are captured, the last batch of their partition of the log is noted in the store (`note_log`), for
mirrors that start later, too: by then the log holds all that was captured. A tombstone counts where the log still
holds that batch; a cleaner that wrote it anew only takes the evidence away.

The log is read from where it ended a look before a listing last had the group (a coordinator may list it for a moment
after its end): an earlier tombstone, of one of its offsets say, was not its end. Where this process has not seen it
listed, the log is read from where it ended before the batch was noted. It is read for `_LOOK_FOR_SECONDS` after the
group was missed: a coordinator may tell a moment before the log does.

While a partition has parted from its source, nothing is taken for a deletion at all.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.groups.commit_reader import batches_of
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, OffsetsTopicEnds, partition_of
from drkit.kafka.protocol.records import Damaged
from drkit.kafka.protocol.transaction_log import removed_groups
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.offsets import SourceBatch
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more
from drkit.store.api import LinkStore

log = logging.getLogger(__name__)

GROUPS_LOG = "groups_log"
"""Kind of the notes that say, by partition of the log, what it held when positions were last captured (`_Held`)."""
_LOOK_FOR_SECONDS = 30.0
_READ_SECONDS = 1.0
"""How long one look reads; the next one continues."""
_ANSWER_SECONDS = 2.0


class _Held(NamedTuple):
    """A batch of a partition of the log, which by then held all that had been captured at `at` or before. `first`:
    where it had ended before that look."""

    first: int
    batch: SourceBatch
    at: datetime

    def note(self) -> str:
        """As it is stored."""
        return f"{self.first} {self.batch.last_offset} {self.batch.crc} {self.at.isoformat()}"

    @classmethod
    def of(cls, note: str) -> _Held:
        """From its note."""
        first, last, crc, at = note.split()
        return cls(int(first), SourceBatch(int(last), int(crc)), datetime.fromisoformat(at))


@dataclass(slots=True)
class _Missed:
    """A group that the source doesn't list: since when, and from which offset of its partition of the log on to read
    (-1: nothing shows yet that it is the log that its positions were captured from). `over`: it isn't looked for any
    more."""

    part: int
    at: float
    begin: int
    over: bool = False


class DeletedGroups:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link.
        cluster: how to reach its source.
        topics: the source's topics.
        store: where the log's batches are noted.
        parted: the partitions that have parted from their source.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: LinkId,
        cluster: ClusterConfig,
        topics: ClusterAdmin,
        store: LinkStore,
        parted: Callable[[], Sequence[TopicPartition]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parted = parted
        self._told = False
        self._link = link
        self._alias = link.source
        self._store = store
        self._cluster = cluster
        self._topics = topics
        self._clock = clock
        self._missed: dict[str, _Missed] = {}
        self._listed: dict[str, Mapping[int, int]] = {}
        self._recent: set[str] = set()  # those that the last complete listing had, or one since
        self._ends: Mapping[int, int] = {}
        self._floor: Mapping[int, int] = {}
        self._noted: dict[int, _Held] | None = None

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
        self._floor = {part: min(end, before[part]) for part, end in ends.items() if part in before}
        self._listed = kept | dict.fromkeys(listed, self._floor)

    def keep(self, groups: Iterable[str]) -> None:
        """These missing groups were deleted, but not all that was captured of them is forgotten: until they are back,
        they aren't looked for any more."""
        for group in groups:
            self._missed[group] = _Missed(-1, self._clock(), 0, over=True)

    def note_log(self, captured: Mapping[str, datetime], ends: OffsetsTopicEnds, missing: Collection[str]) -> None:
        """Note what the log holds behind positions that were captured and stored just now.

        Args:
            captured: their groups, and when.
            ends: where the log ended before that.
            missing: groups that this look did not see: until it is known whether they were deleted, the log is read
                from where it ended before.

        Raises:
            Unreachable: the source or the store doesn't answer.
        """
        if not captured or not ends.partitions:
            return
        kept = {partition_of(group, ends.partitions) for group in set(missing) - self.lost()}
        parts = {partition_of(group, ends.partitions) for group in captured} - kept
        at = max(captured.values())
        where = [TopicPartition(OFFSETS_TOPIC, part) for part in parts & ends.ends.keys()]
        now = self._topics.end_offsets(where, committed=False, partial=True, recent_leaders=True) if where else {}
        known = self._known()
        same = {tp for tp, end in now.items() if (had := known.get(tp.partition)) and had.batch.last_offset + 1 == end}
        found = self._topics.batches_at({tp: end - 1 for tp, end in now.items() if tp not in same and end > 0})
        batches = {tp.partition: SourceBatch(b.last_offset, b.crc) for tp, b in found.items() if b is not None}
        batches |= {tp.partition: known[tp.partition].batch for tp in same}
        first = {part: self._floor.get(part, ends.ends[part]) for part in batches}
        fresh = {part: _Held(first[part], batch, at) for part, batch in batches.items()}
        self._store.put_notes(self._link, GROUPS_LOG, {str(part): held.note() for part, held in fresh.items()})
        known.update(fresh)

    def _known(self) -> dict[int, _Held]:
        if self._noted is None:
            notes = self._store.notes(self._link, GROUPS_LOG)
            self._noted = {int(part): _Held.of(note) for part, note in notes.items()}
        return self._noted

    def among(self, missing: Mapping[str, datetime]) -> set[str]:
        """Those of these missing groups, with when each was last seen, that were deleted; none while a partition has
        parted from its source.

        Raises:
            Unreachable: the source doesn't answer.
        """
        parted = self._parted()
        if parted and not self._told:
            log.warning(
                "%s no longer has %s, but %s may hold other records there than were mirrored (see its problem): %s may "
                "have been restored from an older copy of its disks, so until that is settled no group is forgotten",
                self._alias,
                and_more(sorted(missing)),
                and_more([str(tp) for tp in parted]),
                self._alias,
            )
        self._told = bool(parted)
        if parted:
            return set()
        try:
            self._begin(missing)
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
        """Note where in the log each group's deletion may be, if it is the log that its positions were captured from
        (or may be: whoever doesn't answer is asked again)."""
        new = [group for group in missing if (m := self._missed.get(group)) is None or (m.part < 0 and not m.over)]
        info = self._topics.topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC) if new else None
        if info is None:
            return
        homes = {group: partition_of(group, info.partitions) for group in new}
        known = {part: held for part, held in self._known().items() if part in homes.values()}
        asked = {TopicPartition(OFFSETS_TOPIC, part): held.batch.last_offset for part, held in known.items()}
        there = {tp.partition: batch for tp, batch in self._topics.batches_at(asked).items()} if asked else {}
        for group, part in homes.items():
            held, batch = known.get(part), there.get(part)
            if held is None or batch is None or missing[group] > held.at:
                continue
            if (batch.last_offset, batch.crc) == held.batch:
                since = self._missed[group].at if group in self._missed else self._clock()
                self._missed[group] = _Missed(part, since, self._listed.get(group, {}).get(part, held.first))

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
