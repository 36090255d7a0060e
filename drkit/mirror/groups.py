"""Capturing where consumer groups stand on the source, about once a second.

One request per coordinator, however many groups. Only what changed is written, and each position
again at least every `REFRESH_SECONDS` (longer where there are very many), so that `captured_at`
shows how fresh it is. A group that was deleted on the source is forgotten, but only after a listing
that all coordinators took part in. A single offset that its group no longer has stays as captured:
its age shows, and a position too many is harmless where one too few is not.

Share groups keep their positions elsewhere: they can't be read as offsets and are named in the log.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from drkit.kafka.groups import CommittedOffset, FetchedOffsets, GroupAdmin, GroupInfo
from drkit.model.clock import now
from drkit.model.offsets import GroupPosition
from drkit.model.topology import Link
from drkit.store.api import MappingStore

log = logging.getLogger(__name__)

REFRESH_SECONDS = 5.0
_ROWS_A_SECOND = 2_000
_SHARE = "share"

Key = tuple[str, str, int]


class GroupCapture:
    """Captures positions of the groups and topics that a link covers. Used by one thread.

    Args:
        link: which groups and topics.
        source: the source's groups.
        store: where positions are kept.
    """

    def __init__(self, link: Link, source: GroupAdmin, store: MappingStore) -> None:
        self._link = link
        self._source = source
        self._store = store
        self._kept: dict[Key, GroupPosition] = {}
        self._loaded = False
        self._said: dict[str, str] = {}
        self._covered: dict[str, bool] = {}

    def capture(self) -> int:
        """Look once; returns how many positions the groups have now.

        Raises:
            Unreachable: the source or the store doesn't answer.
        """
        if not self._loaded:
            self._kept = {_key(position): position for position in self._store.group_positions(self._link.id)}
            self._loaded = True
        listing = self._source.list_reachable_groups()
        wanted = self._wanted(listing.groups)
        at = now()
        fetched = self._source.fetch(wanted) if wanted else FetchedOffsets()
        for group, why in fetched.failures.items():
            self._say_once(group, f"positions of group {group} can't be read: {why}")
        for group in fetched.offsets:
            self._said.pop(group, None)
        seen = [offset for group in fetched.offsets.values() for offset in group if self._covers(offset)]
        self._keep(seen, at)
        if listing.complete:
            self._forget(set(listing.groups))
        return len(seen)

    def _wanted(self, groups: dict[str, GroupInfo]) -> list[str]:
        wanted = []
        for name, info in groups.items():
            if not self._link.covers_group(name):
                continue
            if info.type == _SHARE:
                self._say_once(name, f"group {name} is a share group: its position is unavailable, it isn't captured")
            else:
                wanted.append(name)
        return wanted

    def _covers(self, offset: CommittedOffset) -> bool:
        covered = self._covered.get(offset.topic)
        if covered is None:
            covered = self._covered[offset.topic] = self._link.covers_topic(offset.topic)
        return covered

    def _keep(self, seen: list[CommittedOffset], at: datetime) -> None:
        kept = self._kept
        oldest = at - timedelta(seconds=max(REFRESH_SECONDS, len(seen) / _ROWS_A_SECOND))
        due = []
        for offset in seen:
            known = kept.get((offset.group, offset.topic, offset.partition))
            if (
                known is None
                or known.offset != offset.offset
                or known.metadata != offset.metadata
                or known.captured_at <= oldest
            ):
                due.append(
                    GroupPosition(offset.group, offset.topic, offset.partition, offset.offset, offset.metadata, at)
                )
        if due:
            self._store.put_group_positions(self._link.id, due)
            kept.update((_key(position), position) for position in due)

    def _forget(self, existing: set[str]) -> None:
        kept = self._kept
        gone = sorted({group for group, _, _ in kept} - existing)
        if gone:
            self._store.forget_group_positions(self._link.id, gone)
            log.info("%s: forgot groups deleted on the source: %s", self._link.id, ", ".join(gone))
            for key in [key for key in kept if key[0] in gone]:
                del kept[key]

    def _say_once(self, group: str, message: str) -> None:
        if self._said.get(group) != message:
            self._said[group] = message
            log.warning("%s: %s", self._link.id, message)


def _key(position: GroupPosition) -> Key:
    return (position.group, position.topic, position.partition)
