"""The protocols that every store backend keeps; `tests/contract/test_store.py` runs on each.

All calls are synchronous and durable on return: what `append_mappings` was given survives a
SIGKILL or a power cut after it returned. Every call raises `Unreachable` when the store doesn't
answer in its timeout (transient, the outcome of a write is then unknown and may be repeated: every
write here is idempotent) and `DrkitError` for what trying again can't correct. A store object may be
shared by threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from drkit.model.digests import RangeDigest
from drkit.model.groups.group_history import GroupState
from drkit.model.link_state import Lease, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.runs.journal import JournalEntry, RunSummary
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.timeline import TimelineStore
from drkit.store.version import Migration

Claims = Mapping[TopicPartition, int]
"""The generation with which a writer holds each partition that it writes of."""


class MappingStore(Protocol):
    """Offsets of links: mapping rows, watermarks, range digests, group positions.

    Each partition (in each epoch) is held by the newest **generation** that claimed it. A write names
    the generations it holds its partitions with (`claims`) and is refused (`Fenced`) where a newer one
    has claimed, in the same atomic step that would have kept it: a worker that was stopped, and wakes
    up after another has taken over, changes nothing. Without `claims` the writer takes the partitions
    over with a generation of its own first: that is for what has the link for itself (a failover, a
    test), never beside a running mirror.
    """

    def next_generation(self, link: LinkId) -> int:
        """A number greater than every one given out for the link before. Linearizable."""

    def claim(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]], generation: int) -> None:
        """Take partitions, each in an epoch. Durable and linearizable; claiming again changes nothing.

        Raises:
            Fenced: a newer generation holds some, which are named; the others are claimed.
        """

    def append_mappings(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims | None = None) -> None:
        """Keep rows; a row of the same place (epoch, topic, partition, source offset) replaces it.

        Raises:
            Fenced: partitions that a newer generation holds (or `claims` doesn't name): no row of theirs
                was kept. Rows of others may have been.
        """

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[OffsetMapping]:
        """All rows of a partition in an epoch, ascending by source offset."""

    def floor_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        """The newest row at or below `source_offset`."""

    def next_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        """The first row strictly above `source_offset`."""

    def last_valid_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int) -> OffsetMapping | None:
        """The row with the greatest `target_offset` <= `target_end` (ties: greatest source offset).

        Rows above it are ahead of the log after a crash.
        """

    def supersede_mappings(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int, claims: Claims | None = None
    ) -> int:
        """Remove the rows whose `target_offset` > `target_end`; returns how many there were.

        Raises:
            Fenced: a newer generation holds the partition; nothing was removed. (A backend may not notice where
                there is nothing to remove.)
        """

    def put_watermarks(self, link: LinkId, watermarks: Sequence[Watermark], claims: Claims | None = None) -> None:
        """Replace the watermark of each partition named.

        A newer generation's watermark is never replaced by an older one's. A backend may leave it at that
        and not raise.

        Raises:
            Fenced: a newer generation holds partitions; none of the watermarks was kept.
        """

    def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:
        """The newest watermark of every partition of the link, by source topic."""

    def put_range_digests(self, link: LinkId, digests: Sequence[RangeDigest], claims: Claims | None = None) -> None:
        """Keep digests of ranges; one of the same place (epoch, topic, partition, target start) is replaced.

        A newer generation's is never replaced by an older one's. A backend may leave it at that and not raise;
        each is kept with its writer's generation.

        Raises:
            Fenced: a newer generation holds partitions; none of the digests was kept.
        """

    def range_digests(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[RangeDigest]:
        """All digests of a partition in an epoch, ascending by target start. They may overlap."""

    def forget_range_digests(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_start: int, claims: Claims | None = None
    ) -> None:
        """Remove a partition's digests of earlier epochs, and those of this epoch that begin below a target offset.

        Raises:
            Fenced: a newer generation holds the partition. (A backend may not notice.)
        """

    def put_group_positions(self, link: LinkId, positions: Sequence[GroupPosition]) -> None:
        """Replace the captured position of each (group, topic, partition) named."""

    def group_positions(self, link: LinkId) -> list[GroupPosition]:
        """The newest captured positions, sorted by group, topic, partition."""

    def forget_group_positions(self, link: LinkId, groups: Sequence[str]) -> None:
        """Remove the captured positions of these groups (deleted on the source)."""


class LinkStore(Protocol):
    """State of links besides offsets."""

    def link_control(self, link: LinkId) -> LinkControl | None:
        """The decided state, or None where none was ever decided (then: active)."""

    def set_link_control(self, control: LinkControl, *, expected_version: int | None) -> bool:
        """Compare-and-set: keeps `control` if the kept version is `expected_version` (None: none is
        kept). Returns whether it was kept. Linearizable."""

    def put_topic_states(self, link: LinkId, states: Sequence[TopicState]) -> None:
        """Replace the state of each topic named."""

    def topic_states(self, link: LinkId) -> dict[str, TopicState]:
        """States by source topic."""

    def forget_link_data(self, link: LinkId) -> None:
        """Remove mapping rows, watermarks, range digests, group positions, topic states and problems of a link (its
        control and notes stay). Used when a link's data is re-seeded."""

    def forget_topic(self, link: LinkId, topic: str) -> None:
        """Remove mapping rows, watermarks, range digests, group positions, the state and the problems of one topic (its
        deletion was mirrored). Notes stay: their names are their writers' matter."""

    def put_notes(self, link: LinkId, kind: str, notes: Mapping[str, str]) -> None:
        """Keep small texts about a link by kind and name; one of the same name is replaced."""

    def notes(self, link: LinkId, kind: str) -> dict[str, str]:
        """Texts of a kind by name, sorted."""

    def note_kinds(self, link: LinkId) -> set[str]:
        """The kinds of which there are notes."""

    def forget_notes(self, link: LinkId, kind: str, names: Sequence[str]) -> None:
        """Remove notes by name; absent ones are fine."""

    def put_problem(self, link: LinkId, problem: Problem) -> None:
        """Keep a problem; one per (kind, topic, partition), the earliest `since` stays."""

    def problems(self, link: LinkId) -> list[Problem]:
        """All kept problems, oldest first."""

    def clear_problem(self, link: LinkId, problem: Problem) -> None:
        """Remove the problem of this kind, topic and partition; an absent one is fine."""

    def clear_problems(self, link: LinkId, topic: str | None = None, kind: str | None = None) -> int:
        """Remove problems (of a topic, of a kind); returns how many."""


class LeaseStore(Protocol):
    """Named leases. Linearizable; expiry is judged at `at`: by the store's clock (`time`), so that no holder's or
    taker's own clock matters."""

    def time(self) -> datetime:
        """The store's own clock: one for all who use it."""

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float, at: datetime) -> Lease:
        """Take or renew. Returns the lease as it now stands: it is the caller's where `owner`
        matches, else it is somebody else's and still valid. `epoch` grows when the owner changes."""

    def release_lease(self, name: str, owner: str) -> None:
        """Give up a lease if `owner` holds it."""

    def break_lease(self, name: str, owner: str) -> bool:
        """Remove the lease if it is held by exactly `owner` (known to be dead)."""

    def lease(self, name: str) -> Lease | None:
        """The lease as kept, expired or not."""


class RunJournal(Protocol):
    """Journals of runs (failover, failback, audit, drill), hash-chained by `JournalEntry`."""

    def append_entry(self, entry: JournalEntry) -> bool:
        """Keep an entry unless its (run, seq) exists; returns whether it was kept. Linearizable."""

    def entries(self, run: str) -> list[JournalEntry]:
        """Entries of a run in order of seq."""

    def put_run(self, summary: RunSummary) -> None:
        """Replace the listing of a run."""

    def runs(self) -> list[RunSummary]:
        """All runs, newest first."""


class Store(MappingStore, TimelineStore, LinkStore, LeaseStore, RunJournal, Protocol):
    """Everything drkit remembers, in one place."""

    def close(self) -> None:
        """Release connections. The object isn't used afterwards."""


class StoreContents(Protocol):
    """What a store holds, all of it: for a copy, and for filling a new one from a copy."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Within the block every read sees one moment, where the backend can (SQLite)."""

    def links(self) -> list[LinkId]:
        """Every link of which anything is kept, sorted."""

    def places(self, link: LinkId) -> list[tuple[TopicPartition, int]]:
        """Every partition in each epoch that was ever claimed, sorted."""

    def generation(self, link: LinkId) -> int:
        """The greatest generation that was given out for the link; 0: none was."""

    def raise_generation(self, link: LinkId, value: int) -> None:
        """Have every generation that is given out from now on be greater than `value`."""

    def group_states(self, link: LinkId) -> Iterator[GroupState]:
        """Every state of the timeline, by group, topic and time."""

    def journals(self) -> list[str]:
        """Every run that has an entry, sorted; its listing may be missing."""

    def remove_all(self) -> None:
        """Remove everything that is kept; the tables stay."""


class StoreSchema(Protocol):
    """A store of whatever schema version, for `drkit store migrate`."""

    where: str
    """The store, for people."""

    def version(self) -> int:
        """Its version, as `check_version` takes it."""

    def users(self) -> list[str]:
        """Who works with it now, in words: holders of leases, and workers."""

    def changed_at(self) -> datetime | None:
        """When a mirror or a run last changed something; None: never."""

    def runs(self) -> list[tuple[str, str, str]]:
        """Name, kind and state of each run."""

    def counts(self) -> dict[str, int]:
        """How many rows there are of the kinds of a backup that only mirrors and runs change."""

    def apply(self, steps: Sequence[Migration]) -> None:
        """Bring it to the version of the last step.

        Raises:
            Refused: somebody works with it; nothing was changed.
            Unreachable: it doesn't answer; the same command continues.
        """

    def close(self) -> None:
        """Release connections."""


class WholeStore(Store, StoreContents, Protocol):
    """A backend: everything drkit remembers, and a way to copy all of it."""
