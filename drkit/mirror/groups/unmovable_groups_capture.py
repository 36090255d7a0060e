"""Records the source's groups that can't be moved, so that a failover names them when the source is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from drkit.kafka.groups.group_admin import GroupAdmin, GroupListing
from drkit.kafka.groups.unmovable_groups_reader import read_unmovable
from drkit.model.groups.unmovable_groups import UnmovableGroup
from drkit.model.topology import Link
from drkit.store.api import LinkStore
from drkit.store.unmovable_groups import forget_unmovable, put_unmovable, unmovable_groups

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class UnmovableGroups:
    """Keeps the notes of a link's groups that can't be moved. Used by one thread.

    Args:
        link: whose groups.
        source: the source's groups.
        store: where the notes are kept.
        clock: monotonic seconds.
    """

    def __init__(self, link: Link, source: GroupAdmin, store: LinkStore, clock: Callable[[], float]) -> None:
        self._link = link
        self._source = source
        self._store = store
        self._clock = clock
        self._kept: dict[str, UnmovableGroup] | None = None
        self._looked_at: float | None = None

    def update(self, listing: GroupListing, covers_topic: Callable[[str], bool]) -> None:
        """Keep what the listing shows; start offsets are read every few seconds."""
        at = self._clock()
        names = {each.group for each in listing.groups.values() if not each.commits_offsets}
        if self._kept is None:
            self._kept = {each.group: each for each in unmovable_groups(self._store, self._link.id)}
        new = {name for name in names - self._kept.keys() if self._link.covers_group(name)}
        due = self._looked_at is None or at - self._looked_at >= _LOOK_SECONDS
        if new or (due and names):
            self._looked_at = at
            self._keep(read_unmovable(self._link, self._source, listing, covers_topic))
        gone = self._kept.keys() - names if listing.complete else set()
        if gone:
            forget_unmovable(self._store, self._link.id, gone)
            for name in gone:
                del self._kept[name]

    def _keep(self, found: list[UnmovableGroup]) -> None:
        kept = self._kept or {}
        for each in found:
            if each.group not in kept:
                log.warning("%s: group %s is %s", self._link.id, each.group, each.why(self._link.id.target))
        known = [
            replace(each, starts={**kept[each.group].starts, **each.starts}) if each.group in kept else each
            for each in found
        ]
        put_unmovable(self._store, self._link.id, known)
        self._kept = {**kept, **{each.group: each for each in known}}
