"""Captures consumer groups' committed offsets on the source, within a second of each commit.

A look costs the coordinators little: the ends of their own log tell which groups can have changed since the last look
(`drkit.kafka.groups.offsets_topic`), and only these are requested, all groups of a coordinator in one request. Where
that log may not be read, every look requests all groups. As a safeguard, groups that moved are requested once more at
the next look (a coordinator may answer from just before the record that moved it), and every group now and then.

Only changes are written, plus each position again at least every `REFRESH_SECONDS` (longer where there are very many),
so that `captured_at` shows how fresh it is. The timeline gets the groups' positions over time
(`drkit.mirror.groups.history_thinning`). A group that was deleted on the source is forgotten, but only after a listing
by all coordinators, and where their log says so (`drkit.mirror.groups.deleted_groups`), and only its positions in
topics that the source still has: whoever deletes a topic deletes groups that read no other one. A group that the source
lost stays as captured, and so does a single offset that its group no longer has: its age shows, and a superfluous
position is harmless where a missing one is not. A commit that moved back is captured as it is, and how far the group
was is noted: the source may have been set back (`behind_captured` of `drkit.store.link_notes`).

**Topics made anew.** Kafka knows a committed offset by its topic's name. Each position gets the id of the topic that
had that name both before and after the look. As long as another topic is mirrored under that name (the new one isn't
accepted yet), only the positions in that one are kept: they are where groups are on the target. Once the store knows
the new topic (or has forgotten it), positions in the former one are removed, and all groups are requested.

`put_unmovable` of `drkit.store.link_notes` keeps the names of groups that commit no offsets (share groups).
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.groups.group_admin import FetchedOffsets, GroupAdmin, GroupInfo, GroupListing, read_unmovable
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, OffsetsTopicEnds, partition_of
from drkit.mirror.groups.deleted_groups import DeletedGroups
from drkit.mirror.groups.history_thinning import Series, Timeline
from drkit.model.clock import now
from drkit.model.errors import Refused, Unreachable
from drkit.model.groups import GroupState, UnmovableGroup
from drkit.model.link_state import TopicState
from drkit.model.offsets import GroupPosition
from drkit.model.topology import Link
from drkit.model.wording import and_more
from drkit.store.api import LinkStore, MappingStore
from drkit.store.link_notes import (
    check_source_cluster,
    forget_moved_back,
    forget_unmovable,
    put_unmovable,
    replace_positions,
    unmovable_groups,
)
from drkit.store.timeline import TimelineStore
from drkit.store.transactions import suspect

log = logging.getLogger(__name__)

CAPTURE_SECONDS = 0.8
"""The longest delay from a commit to its position in the store; clocks, brokers and store add less than a second."""
REFRESH_SECONDS = 5.0
SWEEP_SECONDS = 60.0
_ROWS_A_SECOND = 2_000
_PURGE_SECONDS = 60.0
_UNSAVED_STATES = 50_000
_DARK = "its coordinator is down"

Key = tuple[str, str, int]

_LOOK_SECONDS = 5.0


class CaptureStore(MappingStore, TimelineStore, LinkStore, Protocol):
    """What a capture needs from a store."""


class GroupCapture:
    """Captures positions of a link's groups and topics. Not thread-safe.

    Args:
        link: which groups and topics, and how much of their history is kept.
        source: the source's groups.
        topics: the source's topics.
        store: where positions are kept.
        deleted: tells which missing groups were deleted.
        clock: monotonic seconds.
        suspected: which of some groups may commit in transactions; called before their positions are stored.
    """

    def __init__(
        self,
        link: Link,
        source: GroupAdmin,
        topics: ClusterAdmin,
        store: CaptureStore,
        deleted: DeletedGroups,
        clock: Callable[[], float] = time.monotonic,
        suspected: Callable[[Collection[str]], set[str]] = lambda _: set(),
    ) -> None:
        self._suspected = suspected
        self._link = link
        self._source = source
        self._topics = topics
        self._store = store
        self._deleted = deleted
        self._clock = clock
        self._cluster_id = ""
        self._changes = _Changes(source, clock)
        self._timeline = Timeline(link.timeline)
        self._unmovable = UnmovableGroups(link, source, store, deleted, clock)
        self._unsaved: list[GroupState] = []
        self._purged_at: float | None = None
        self._kept: dict[Key, GroupPosition] = {}
        self._standing: dict[Series, dict[int, tuple[int, str]]] = defaultdict(dict)
        self._withdrawn: set[Key] = set()
        self._ids: dict[str, str] = {}
        self._mirrored: dict[str, TopicState] = {}
        self._listing = GroupListing({}, complete=False)
        self._looked_at: datetime | None = None
        self._unseen: dict[str, datetime] = {}
        self._again: set[str] = set()
        self._loaded = False
        self._said: dict[str, str] = {}
        self._covered: dict[str, bool] = {}

    def capture(self) -> int:
        """Look once; returns the groups' current number of positions.

        Raises:
            Unreachable: the source or the store doesn't answer.
            NotShown: another cluster answers at the source's address.
            Refused: groups that were captured before are hidden now; all others are captured.
        """
        self._load()
        begun = now()
        self._follow_topics()
        changes = self._changes.refresh()
        self._check_cluster(changes.cluster_id)
        if changes.any or not self._listing.complete:
            self._listing = self._source.list_reachable_groups()
            self._deleted.back(self._listing.groups, changes.log.ends, complete=self._listing.complete)
        due = self._unmovable.update(self._listing, self._covers)
        covered = self._wanted(self._listing.groups)
        asked = [group for group in covered if changes.may_have(group)]
        fetched = self._fetch(asked)
        fetched.failures.update((group, _DARK) for group in covered if changes.hides(group))
        ended = now()
        for group, why in fetched.failures.items():
            self._say_once(group, f"positions of group {group} can't be read: {why}")
        for group in fetched.offsets:
            self._said.pop(group, None)
        unasked = set(covered).difference(asked, fetched.failures)
        changed, stored = self._keep(fetched, begun, unasked)
        due.update(dict.fromkeys(stored, begun))
        seen = {*fetched.offsets, *unasked}
        again = self._note_unseen(seen, fetched.offsets, begun)
        if again:
            changed |= {series for series in self._standing if series[0] in again}
        self._unsaved += self._timeline.observe(begun, ended, self._standing, changed, self._unseen, seen)
        self._looked_at = begun
        asked_for = self._forget(set(self._listing.groups), ended) if self._listing.complete else FetchedOffsets()
        hidden = asked_for.failures
        self._note_log(due, asked_for.denied())
        self._save_states()
        self._changes.taken(again=fetched.failures)
        if hidden:
            group, why = next(iter(hidden.items()))
            raise Refused(
                f"positions of {and_more(sorted(hidden))} can't be captured any more: {why}",
                meaning="Their last captured positions stay",
                remedy=f"Grant drkit's principal DESCRIBE on group {group}, or leave it out (exclude_groups)",
            )
        return len(self._kept)

    def _note_log(self, due: Mapping[str, datetime], denied: set[str]) -> None:
        """Note what the coordinators' log holds behind what this look stored, when. `denied`: missing groups that drkit
        may not see. Whether they were deleted isn't awaited: no later deletion of others there would count."""
        kept = {group for group, _, _ in self._standing} | self._unmovable.names()
        missing = kept - self._listing.groups.keys() - denied
        try:
            self._deleted.note_log(due, self._changes.log, missing)
        except (Refused, Unreachable) as error:  # the next looks do; until then it shows no deletion
            log.debug("%s: %s", self._link.id, error)

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id not in {"", self._cluster_id}:
            check_source_cluster(self._store, self._link.id, cluster_id)
            self._cluster_id = cluster_id

    def _load(self) -> None:
        if self._loaded:
            return
        self._mirrored = dict(self._store.topic_states(self._link.id))
        for position in self._store.group_positions(self._link.id):
            self._stands(position)
        self._loaded = True

    def _stands(self, position: GroupPosition) -> None:
        before = self._kept.get(_key(position))
        if before is not None and before.topic_id != position.topic_id:  # it wasn't known in which topic it is
            del self._standing[_series(before)][position.partition]
            if not self._standing[_series(before)]:
                del self._standing[_series(before)]
                self._timeline.end([_series(before)])
        self._kept[_key(position)] = position
        self._standing[_series(position)][position.partition] = (position.offset, position.metadata)

    def _follow_topics(self) -> None:
        """Remove positions in topics that aren't mirrored any more. Where another topic is mirrored under that name,
        groups may have positions in it that weren't kept: all are requested."""
        before, states = self._mirrored, self._store.topic_states(self._link.id)
        ended = before.keys() - states.keys()
        ended |= {name for name in before.keys() & states if not states[name].is_topic(before[name].source_topic_id)}
        if ended:
            former = [
                (group, topic, topic_id)
                for group, topic, topic_id in self._standing
                if topic in ended and (topic not in states or not states[topic].is_topic(topic_id))
            ]
            self._timeline.end(former)
            self._drop(former)
            self._changes.sweep()
        self._mirrored = states

    def _fetch(self, groups: Collection[str]) -> FetchedOffsets:
        """Their committed offsets, on topics whose ids (`_ids`) were the same before and after."""
        if not self._ids:
            self._ids = _ids(self._topics.topics())
        fetched = self._source.fetch(groups) if groups else FetchedOffsets()
        changed: set[str] | None = None
        while changed is None or changed:
            named = {offset.topic for offsets in fetched.offsets.values() for offset in offsets}
            ids = _ids(self._topics.topics([name for name in named if self._covers(name)], denied=set()))
            changed = {name for name, topic_id in ids.items() if self._ids.get(name) != topic_id}
            self._ids.update(ids)
            again = [g for g, offsets in fetched.offsets.items() if any(each.topic in changed for each in offsets)]
            if again:
                more = self._source.fetch(again)
                for group in again:
                    del fetched.offsets[group]
                fetched.offsets.update(more.offsets)
                fetched.failures.update(more.failures)
        return fetched

    def _drop(self, ended: Collection[Series]) -> None:
        """Forget these positions, also in the store."""
        groups: dict[str, list[str]] = defaultdict(list)
        for group, topic, _ in ended:
            groups[topic].append(group)
        for topic, its in groups.items():
            self._store.forget_group_positions(self._link.id, its, topic)
        forget_moved_back(self._store, self._link.id, {(group, topic) for group, topic, _ in ended})
        for series in ended:
            group, topic, _ = series
            for partition in self._standing.pop(series):
                del self._kept[group, topic, partition]
                self._withdrawn.discard((group, topic, partition))

    def _wanted(self, groups: dict[str, GroupInfo]) -> list[str]:
        return [name for name, info in groups.items() if info.commits_offsets and self._link.covers_group(name)]

    def _covers(self, topic: str) -> bool:
        covered = self._covered.get(topic)
        if covered is None:
            covered = self._covered[topic] = self._link.covers_topic(topic)
        return covered

    def _keep(self, fetched: FetchedOffsets, at: datetime, unasked: set[str]) -> tuple[set[Series], set[str]]:
        """Store changes, and positions that are due again; groups that weren't requested keep their positions.

        Returns the series that moved, and the groups of which something was stored.
        """
        kept, withdrawn = self._kept, self._withdrawn
        oldest = at - timedelta(seconds=max(REFRESH_SECONDS, len(kept) / _ROWS_A_SECOND))
        due: list[GroupPosition] = []
        changed: set[Series] = set()
        there: set[Key] = set()
        for offsets in fetched.offsets.values():
            for group, topic, partition, offset, metadata in offsets:
                topic_id = self._ids.get(topic)
                if topic_id is None or not self._covers(topic) or not self._is_mirrored(topic, topic_id):
                    continue
                there.add((group, topic, partition))
                known = kept.get((group, topic, partition))
                if known is None or (known.offset, known.metadata, known.topic_id) != (offset, metadata, topic_id):
                    changed.add((group, topic, topic_id))
                elif known.captured_at > oldest:
                    continue
                due.append(GroupPosition(group, topic, partition, offset, metadata, at, topic_id))
        if fetched.offsets:
            withdrawn.difference_update(there)
            withdrawn.update(key for key in kept if key[0] in fetched.offsets and key not in there)
        due += [
            p._replace(captured_at=at)
            for key, p in kept.items()
            if p.captured_at <= oldest and p.group in unasked and key not in withdrawn
        ]
        moved = {group for group, _, _ in changed}
        if moved and (found := self._suspected(moved)):
            suspect(self._store, self._link.id, found)
        if due:
            before = [kept[key] for key in map(_key, due) if key in kept]
            replace_positions(self._store, self._link.id, before, due)
            for position in due:
                self._stands(position)
        return changed, {position.group for position in due}

    def _is_mirrored(self, topic: str, topic_id: str) -> bool:
        """Whether this is the topic that is mirrored under that name, or none is yet."""
        state = self._mirrored.get(topic)
        return state is None or state.is_topic(topic_id)

    def _note_unseen(self, seen: Collection[str], asked: Collection[str], at: datetime) -> set[str]:
        """Record when groups that this look doesn't see were last seen (they can't be read, their coordinator is down,
        the source lost them): what they did since is unknown. Returns those that are seen again; after missed looks
        also those that had to be asked."""
        last = self._looked_at or at
        self._unseen = {group: since for group, since in self._unseen.items() if group not in self._again}
        self._again = {group for group in self._unseen if group in seen}
        for group in {group for group, _, _ in self._standing}.difference(seen):
            self._unseen.setdefault(group, last)
        if (at - last).total_seconds() > REFRESH_SECONDS:
            self._unseen = {**dict.fromkeys(asked, last), **self._unseen}
            self._again.update(asked)
        return self._again

    def _forget(self, existing: set[str], at: datetime) -> FetchedOffsets:
        """Forget deleted groups. Returns what requests by name say of missing ones: a listing omits what drkit's
        principal may not see, but those fail with the reason."""
        missing = {group for group, _, _ in self._standing} - existing - self._deleted.lost()
        asked = self._source.fetch(missing) if missing else FetchedOffsets()
        seen: dict[str, datetime] = {}
        for key, position in self._kept.items() if missing else ():
            if key[0] in missing and key[0] not in asked.failures and not asked.offsets.get(key[0]):
                seen[key[0]] = max(position.captured_at, seen.get(key[0], position.captured_at))
        deleted = self._deleted.among(seen) if seen else set()
        if deleted:
            self._forget_deleted(deleted, at)
        for group in sorted((seen.keys() - deleted) & self._deleted.lost()):
            self._say_once(
                group,
                f"group {group} is gone on {self._link.id.source}, and nothing in its {OFFSETS_TOPIC} shows that it "
                "was deleted (the log was lost or set back, its cleaner worked there since, or drkit may not read it): "
                "its positions stay as captured. If it was deleted, exclude_groups leaves it out",
            )
        return asked

    def _forget_deleted(self, groups: set[str], at: datetime) -> None:
        """Forget positions of deleted groups. Those in a topic that is gone on the source too, or anew, stay: its
        deletion may have been what removed the group."""
        theirs = [series for series in self._standing if series[0] in groups]
        topics = {topic for _, topic, _ in theirs}
        ids = self._topics.ids_everywhere(topics)  # a coordinator follows a deletion before other brokers may
        there = {topic for topic in topics if topic in ids and self._is_mirrored(topic, ids[topic])}
        kept: dict[str, list[str]] = defaultdict(list)
        for group, topic, _ in theirs:
            if topic not in there and topic in self._mirrored:
                kept[group].append(topic)
        ended = [(group, topic, topic_id) for group, topic, topic_id in theirs if topic not in kept.get(group, ())]
        self._unsaved += self._timeline.gone(at, ended, self._unseen)
        self._drop(ended)
        self._deleted.keep(kept)
        if forgotten := sorted(groups - kept.keys()):
            log.info("%s: forgot groups deleted on the source: %s", self._link.id, ", ".join(forgotten))
        for group, names in sorted(kept.items()):
            self._say_once(
                group,
                f"group {group} is gone on {self._link.id.source}, as is {and_more(sorted(names))}, whose deletion may "
                f"have removed it: its positions there stay as captured, as the topic does on {self._link.id.target}",
            )

    def _save_states(self) -> None:
        if self._unsaved:
            self._store.put_group_states(self._link.id, self._unsaved)
            self._unsaved.clear()
        at = self._clock()
        if self._purged_at is None or at - self._purged_at >= _PURGE_SECONDS:
            self._store.forget_expired_states(self._link.id, now())
            self._purged_at = at
        del self._unsaved[:-_UNSAVED_STATES]

    def _say_once(self, group: str, message: str) -> None:
        if self._said.get(group) != message:
            self._said[group] = message
            log.warning("%s: %s", self._link.id, message)


class _Changes:
    """Which groups can have changed since the last complete look."""

    def __init__(self, source: GroupAdmin, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._seen: dict[int, int] = {}
        self._log = OffsetsTopicEnds()
        self._moved: set[int] = set()
        self._settling: set[int] = set()
        self._again: set[str] = set()
        self._looked_at = 0.0
        self._swept_at: float | None = None
        self._all = True

    def sweep(self) -> None:
        """Request all groups at the next look."""
        self._swept_at = None

    def refresh(self) -> _Changes:
        """Look at the coordinators' log."""
        self._looked_at = self._clock()
        self._log = self._source.offsets_log()
        blind = not self._log.partitions
        self._all = blind or self._swept_at is None or self._looked_at - self._swept_at >= SWEEP_SECONDS
        ends = self._log.ends
        self._moved = {partition for partition, end in ends.items() if end != self._seen.get(partition)}
        return self

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that answered; empty if that isn't known."""
        return self._log.cluster_id

    @property
    def log(self) -> OffsetsTopicEnds:
        """Where the partitions of the coordinators' log ended at the last look; not of those that didn't answer."""
        return self._log

    @property
    def any(self) -> bool:
        """Whether any group can have changed, or been created."""
        return self._all or bool(self._moved or self._settling or self._again)

    def may_have(self, group: str) -> bool:
        """Whether this group can have changed, and can be requested."""
        if not self._log.partitions:
            return True
        partition = partition_of(group, self._log.partitions)
        if partition not in self._log.ends:
            return False
        return self._all or group in self._again or partition in self._moved or partition in self._settling

    def hides(self, group: str) -> bool:
        """Whether this group can't be requested, because its coordinator is down."""
        return bool(self._log.partitions) and partition_of(group, self._log.partitions) not in self._log.ends

    def taken(self, again: Iterable[str]) -> None:
        """Everything that `may_have` named was read and stored, except the groups to request `again`."""
        self._seen.update(self._log.ends)
        self._settling = self._moved
        self._again = set(again)
        if self._all:
            self._swept_at = self._looked_at


def _key(position: GroupPosition) -> Key:
    return (position.group, position.topic, position.partition)


def _series(position: GroupPosition) -> Series:
    return (position.group, position.topic, position.topic_id)


def _ids(topics: Mapping[str, TopicInfo]) -> dict[str, str]:
    return {name: info.topic_id for name, info in topics.items()}


class UnmovableGroups:
    """Keeps the notes of a link's groups that can't be moved. Not thread-safe.

    Args:
        link: the link.
        source: the source's groups.
        store: where the notes are kept.
        deleted: tells which missing groups were deleted.
        clock: monotonic seconds.
    """

    def __init__(
        self, link: Link, source: GroupAdmin, store: LinkStore, deleted: DeletedGroups, clock: Callable[[], float]
    ) -> None:
        self._link = link
        self._source = source
        self._store = store
        self._deleted = deleted
        self._clock = clock
        self._kept: dict[str, UnmovableGroup] | None = None
        self._looked_at: float | None = None

    def names(self) -> set[str]:
        """Those that are kept."""
        return set(self._kept or ())

    def update(self, listing: GroupListing, covers_topic: Callable[[str], bool]) -> dict[str, datetime]:
        """Store what the listing shows; start offsets are read every few seconds. Returns what was stored, and when it
        was captured."""
        at = self._clock()
        stored: dict[str, datetime] = {}
        names = {each.group for each in listing.groups.values() if not each.commits_offsets}
        if self._kept is None:
            self._kept = {each.group: each for each in unmovable_groups(self._store, self._link.id)}
        new = {name for name in names - self._kept.keys() if self._link.covers_group(name)}
        due = self._looked_at is None or at - self._looked_at >= _LOOK_SECONDS
        if new or (due and names):
            self._looked_at = at
            found = read_unmovable(self._link, self._source, listing, covers_topic)
            self._keep(found)
            stored = {each.group: each.captured_at for each in found}
        gone = (self._kept.keys() - names) & listing.groups.keys()  # groups of another type by now
        missing = self._kept.keys() - listing.groups.keys() - self._deleted.lost() if listing.complete else set()
        if missing:
            gone |= self._deleted.among({name: self._kept[name].captured_at for name in missing})
        if gone:
            forget_unmovable(self._store, self._link.id, gone)
            for name in gone:
                del self._kept[name]
        return stored

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
