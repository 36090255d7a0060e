"""The protocols of a store backend; `tests/contract/test_store.py` runs on each.

All calls are synchronous and durable on return: `append_mappings` rows survive a SIGKILL or a power cut
after it returned. Every call raises `Unreachable` when the store doesn't answer within its timeout
(transient; the outcome of a write is then unknown, and it may be repeated, because every write here is
idempotent) and `DrkitError` for errors that a retry can't correct. Threads may share a store object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from drkit.model.digests import RangeDigest
from drkit.model.groups import GroupState
from drkit.model.link_state import Lease, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.timeline import TimelineStore
from drkit.store.version import Migration

Claims = Mapping[TopicPartition, int]
"""The generation under which a writer holds each partition that it writes."""


class MappingStore(Protocol):
    """Offsets of links: mapping rows, watermarks, range digests, group positions.

    The newest **generation** that claimed a partition (in an epoch) holds it. A write names the generations
    of its partitions (`claims`). Where a newer one has claimed a partition, the same atomic step refuses the
    write (`Fenced`): a worker that was stopped and wakes up after a takeover changes nothing. Without
    `claims` the writer first takes the partitions over with a new generation of its own: for users that have
    the link to themselves (a failover, a test), never beside a running mirror.
    """

    def next_generation(self, link: LinkId) -> int:
        """A number greater than all earlier ones of the link. Linearizable."""

    def claim(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]], generation: int) -> None:
        """Claim partitions, each in an epoch. Durable, linearizable and idempotent.

        Raises:
            Fenced: a newer generation holds the partitions that it names; the others are claimed.
        """

    def append_mappings(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims | None = None) -> None:
        """Store rows; a row with the same key (epoch, topic, partition, source offset) replaces the old one.

        Raises:
            Fenced: names partitions that a newer generation holds (or that `claims` lacks): none of their rows
                was stored. Rows of other partitions may have been.
        """

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[OffsetMapping]:
        """All rows of a partition in an epoch, ascending by source offset."""

    def mappings_of(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]]) -> Iterator[list[OffsetMapping]]:
        """`mappings` of many partitions, each in an epoch, in the order of `places`; many are asked at once, a bounded
        number is held at once."""

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
        """Remove the rows whose `target_offset` > `target_end`; returns their number.

        Raises:
            Fenced: a newer generation holds the partition; nothing was removed. (A backend may not raise this where
                there is nothing to remove.)
        """

    def put_watermarks(self, link: LinkId, watermarks: Sequence[Watermark], claims: Claims | None = None) -> None:
        """Replace the watermark of each partition named.

        An older generation never replaces a newer one's watermark. A backend may ignore such a write without
        raising.

        Raises:
            Fenced: a newer generation holds partitions; none of the watermarks was stored.
        """

    def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:
        """The newest watermark of every partition of the link, by source topic. One of an earlier epoch than its
        topic's state has is left out: it says nothing about the current topic of that name."""

    def put_range_digests(self, link: LinkId, digests: Sequence[RangeDigest], claims: Claims | None = None) -> None:
        """Store digests of ranges; one with the same key (epoch, topic, partition, target start) is replaced.

        An older generation never replaces a newer one's digest. A backend may ignore such a write without raising.
        Each digest is stored with its writer's generation.

        Raises:
            Fenced: a newer generation holds partitions; none of the digests was stored.
        """

    def range_digests(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[RangeDigest]:
        """All digests of a partition in an epoch, ascending by target start. They may overlap."""

    def forget_range_digests(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_start: int, claims: Claims | None = None
    ) -> None:
        """Remove a partition's digests of earlier epochs, and those of this epoch that begin below a target offset.

        Raises:
            Fenced: a newer generation holds the partition. (A backend may not raise this.)
        """

    def put_group_positions(self, link: LinkId, positions: Sequence[GroupPosition]) -> None:
        """Replace the captured position of each (group, topic, partition) named, whatever its topic id."""

    def group_positions(self, link: LinkId) -> list[GroupPosition]:
        """The newest captured positions, sorted by group, topic, partition. One in another topic of that name than the
        topic's state has is left out: it is no position in what is mirrored now."""

    def forget_group_positions(self, link: LinkId, groups: Sequence[str], topic: str | None = None) -> None:
        """Remove the captured positions of these groups (deleted on the source), or only those on one topic."""


class LinkStore(Protocol):
    """State of links besides offsets."""

    def link_control(self, link: LinkId) -> LinkControl | None:
        """The decided state; None where none was ever decided (then: active)."""

    def set_link_control(self, control: LinkControl, *, expected_version: int | None) -> bool:
        """Compare-and-set: store `control` if the stored version is `expected_version` (None: nothing is stored).
        Returns whether it was stored. Linearizable."""

    def put_topic_states(self, link: LinkId, states: Sequence[TopicState]) -> None:
        """Replace the state of each topic named."""

    def topic_states(self, link: LinkId) -> dict[str, TopicState]:
        """States by source topic."""

    def forget_link_data(self, link: LinkId) -> None:
        """Remove mapping rows, watermarks, range digests, group positions, topic states and problems of a link that is
        re-seeded. Its control and notes stay."""

    def forget_topic(self, link: LinkId, topic: str) -> None:
        """Remove mapping rows, watermarks, range digests, group positions, the state and the problems of one topic
        whose deletion was mirrored. Notes stay: their writers remove them."""

    def put_notes(self, link: LinkId, kind: str, notes: Mapping[str, str]) -> None:
        """Store small texts about a link by kind and name; one with the same name is replaced."""

    def notes(self, link: LinkId, kind: str) -> dict[str, str]:
        """Texts of a kind by name, sorted."""

    def note_kinds(self, link: LinkId) -> set[str]:
        """The kinds that have notes."""

    def forget_notes(self, link: LinkId, kind: str, names: Sequence[str]) -> None:
        """Remove notes by name; absent ones are fine."""

    def put_problem(self, link: LinkId, problem: Problem) -> None:
        """Store a problem; one per (kind, topic, partition), the earliest `since` stays."""

    def problems(self, link: LinkId) -> list[Problem]:
        """All stored problems, oldest first."""

    def clear_problem(self, link: LinkId, problem: Problem) -> None:
        """Remove the problem of this kind, topic and partition; an absent one is fine."""

    def clear_problems(self, link: LinkId, topic: str | None = None, kind: str | None = None) -> int:
        """Remove problems (of a topic, of a kind); returns how many."""


class LeaseStore(Protocol):
    """Named leases. Linearizable. `at` decides about expiry; take it from the store's clock (`time`), because the
    clocks of holders may differ."""

    def time(self) -> datetime:
        """The store's own clock, the same for all its users."""

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float, at: datetime) -> Lease:
        """Acquire or renew a lease. Returns the lease as it is now: the caller's where `owner` matches, else another
        owner's valid one. `epoch` grows when the owner changes."""

    def release_lease(self, name: str, owner: str) -> None:
        """Give up a lease if `owner` holds it."""

    def break_lease(self, name: str, owner: str) -> bool:
        """Remove the lease if exactly `owner` (known to be dead) holds it."""

    def lease(self, name: str) -> Lease | None:
        """The lease as stored, expired or not."""


class RunJournal(Protocol):
    """Journals of runs (failover, failback, audit, drill), hash-chained by `JournalEntry`."""

    def append_entry(self, entry: JournalEntry) -> bool:
        """Append an entry unless its (run, seq) exists; returns whether it was appended. Linearizable."""

    def entries(self, run: str) -> list[JournalEntry]:
        """Entries of a run in order of seq."""

    def put_run(self, summary: RunSummary) -> None:
        """Store or replace the summary of a run."""

    def runs(self) -> list[RunSummary]:
        """All runs, newest first."""


class Store(MappingStore, TimelineStore, LinkStore, LeaseStore, RunJournal, Protocol):
    """All of drkit's durable state."""

    def replicas(self) -> dict[str, int] | None:
        """How many nodes keep each row, by data centre; the name is empty where data centres don't count. None: the
        store is a file."""

    def close(self) -> None:
        """Release connections. Don't use the object afterwards."""


class StoreContents(Protocol):
    """The whole content of a store: for a copy, and for filling a new store from a copy."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Within the block all reads see one consistent snapshot, where the backend can (SQLite)."""

    def links(self) -> list[LinkId]:
        """Every link with stored data, sorted."""

    def places(self, link: LinkId) -> list[tuple[TopicPartition, int]]:
        """Every partition in each epoch that was ever claimed, sorted."""

    def generation(self, link: LinkId) -> int:
        """The greatest generation given out for the link; 0: none was."""

    def raise_generation(self, link: LinkId, value: int) -> None:
        """Make all future generations greater than `value`."""

    def group_states(self, link: LinkId) -> Iterator[GroupState]:
        """Every state of the timeline, by group, topic and time."""

    def journals(self) -> list[str]:
        """Every run that has an entry, sorted; its summary may be missing."""

    def remove_all(self) -> None:
        """Remove all data; the tables stay."""


class StoreSchema(Protocol):
    """A store of any schema version, for `drkit store migrate`."""

    where: str
    """The store, for people."""

    def version(self) -> int:
        """Its schema version, as `check_version` takes it."""

    def users(self) -> list[str]:
        """Descriptions of its current users: holders of leases, and workers."""

    def changed_at(self) -> datetime | None:
        """When a mirror or a run last changed something, or None."""

    def runs(self) -> list[tuple[str, str, str]]:
        """Name, kind and state of each run."""

    def counts(self) -> dict[str, int]:
        """Numbers of rows, for the backup's kinds that only mirrors and runs change."""

    def apply(self, steps: Sequence[Migration]) -> None:
        """Migrate to the version of the last step.

        Raises:
            Refused: the store is in use; nothing was changed.
            Unreachable: it doesn't answer; the same command continues.
        """

    def close(self) -> None:
        """Release connections."""


class WholeStore(Store, StoreContents, Protocol):
    """A backend: all of drkit's state, and a way to copy it."""
