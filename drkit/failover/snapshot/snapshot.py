"""A snapshot of all inputs of a failover's decision. Frozen values; `take_snapshot.py` fills them.

Topics and partitions have their names on the link's source. An unknown offset is None: the cluster didn't answer, or
the topic doesn't exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from drkit.failover.snapshot.past_positions import Key, PastPosition
from drkit.lag.partition_lag import NO_DOUBTS, Doubts, PartitionLag, partition_lag
from drkit.mapping.mapping_rows import Ranges
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts
from drkit.model.errors import Refused, unreached
from drkit.model.groups import TransactionHistory, UnmovableGroup
from drkit.model.link_state import STORE_OLDER, STORE_RECOVERED, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.model.totals import total


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster's answers. `reason`: why it isn't reachable; `denied`: it answers, and what to grant."""

    alias: str
    reachable: bool
    cluster_id: str | None = None
    brokers: int | None = None
    reason: str | None = None
    denied: str | None = None

    @property
    def unreached(self) -> str:
        """Why it isn't reachable, as a predicate: it is silent, or it answers but drkit can't work with it."""
        return unreached(refused=self.denied is not None)

    def refusal(self) -> Refused:
        """The refusal for an unreachable target."""
        if self.denied is not None:
            return Refused(
                f"drkit can't work with {self.alias}: {self.reason}",
                meaning=f"{self.alias} is up, but refuses what drkit needs to see or do there; nothing was changed",
                remedy=self.denied,
            )
        return Refused(
            f"{self.alias} does not answer: {self.reason}",
            meaning="There is nothing to fail over to",
            remedy=f"Bring {self.alias} up, or check its bootstrap_servers",
        )


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of the link on both sides.

    `rows` are the mapping rows of `epoch`, ascending, without those ahead of the target's log.
    `watermark` is the store's, advanced to the target's log end if the log is longer (the mirror
    died between an ack and its next save). `at_offset` is the first target offset with a timestamp at or
    after the requested moment, or None.
    `recreated`: the source's topic is another one than the mirror knew, so no recorded data applies.
    `remark`: what in the target's log could not be explained, or was lost.
    `problems`: those of the partition, or of its topic. `doubts`: open questions of this look at the clusters.
    `source_high`: the source's high watermark. It is beyond `source_end` (the last stable offset) while a
    transaction is open: nobody can read the records between yet.
    `former`: as in `drkit.mapping.translate`.
    `silent`: why the source, which answers, says nothing of this partition; None: it does, or doesn't answer at all;
    `target_silent`: the same of the target. `rows_in_doubt`: why it isn't known whether `rows` are all that the mirror
    wrote; None: it is, or none is needed but the first. `watermark` is then the store's.
    """

    topic: str
    partition: int
    target_topic: str
    epoch: int
    rows: tuple[OffsetMapping, ...] = ()
    watermark: Watermark | None = None
    source_start: int | None = None
    source_end: int | None = None
    target_start: int | None = None
    target_end: int | None = None
    at_offset: int | None = None
    recreated: bool = False
    remark: str | None = None
    problems: tuple[Problem, ...] = ()
    doubts: Doubts = NO_DOUBTS
    source_high: int | None = None
    former: Ranges = ()
    silent: str | None = None
    target_silent: str | None = None
    rows_in_doubt: str | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition, by its source topic."""
        return TopicPartition(self.topic, self.partition)

    @property
    def target_tp(self) -> TopicPartition:
        """The partition, by its target topic."""
        return TopicPartition(self.target_topic, self.partition)

    @property
    def on_target(self) -> bool:
        """Whether the target has it and answered."""
        return self.target_end is not None

    @property
    def unproven(self) -> bool:
        """Whether the store was lost, or is older, so that target records above the watermark are unknown."""
        return any(problem.kind in {STORE_RECOVERED, STORE_OLDER} for problem in self.problems)

    @property
    def missing(self) -> PartitionLag:
        """What of it isn't on the target, including records held back by an open transaction."""
        first = self.rows[0] if self.rows else None
        end = None if self.source_end is None else self.source_end + self.held
        mark = self.watermark
        if mark is not None and self.held:  # the source may not answer now
            mark = replace(mark, source_end=mark.source_end + mark.held_records)
        return partition_lag(
            self.tp,
            mark,
            self.problems,
            start=self.source_start,
            end=end,
            first=first,
            doubts=self.doubts,
        )

    @property
    def through(self) -> int | None:
        """The source offset up to which the target holds everything; None if the target's log doesn't end there."""
        if self.watermark is None or self.recreated or self.watermark.target_end != self.target_end:
            return None
        return self.missing.through

    @property
    def held(self) -> int:
        """Source offsets after the first record of an open transaction, which holds back all that follows; as last seen
        where the source doesn't answer."""
        if self.source_end is None:
            return 0 if self.watermark is None else self.watermark.held_records
        if self.source_high is None:
            return 0
        return max(0, self.source_high - self.source_end)

    @property
    def lag(self) -> int | None:
        """Source offsets not on the target; None if unknown (`missing.reason`)."""
        return self.missing.records


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One link, both its clusters, and the store's data, at one moment: from `begun_at` (None: not told) to
    `observed_at`.

    `positions` are the covered groups' on covered topics, refreshed from the source if it answered
    for all groups (`positions_live`), or for some (`read_groups`), with the reason (`unread_reason`; None: it wasn't
    asked for groups, or doesn't answer at all); `lacking`: those of the store that its answer doesn't have: they are as
    captured. `behind_captured`: where the source may have been set back, the further source offsets of
    groups that were captured before. `committed` and `members` are the target's; `source_members` the source's.
    `mirror` names the worker that holds the link's mirror lease, or None. `notes`: what could not be
    read. `past`: the groups' committed offsets at the requested moment, if any.
    `stamped`: by timestamp (ms) requested for single groups, the first target offset from it on.
    `stored`: the store's positions. `left`: topics that were mirrored once and no longer belong to the
    link; nothing else here concerns them. `unmovable`: groups of the source that commit no offsets; `unmovable_there`:
    the type of groups of the target that commit none.
    `rows_in_doubt`: what isn't known of the store's mapping rows.
    `transactions`: what the mirror knows of groups that commit in transactions, or None. `suspected`:
    groups that may commit in transactions; `transactions` may or may not know them.
    """

    link: Link
    observed_at: datetime
    source: ClusterView
    target: ClusterView
    control: LinkControl | None
    topics: Mapping[str, TopicState]
    partitions: Mapping[TopicPartition, PartitionView]
    positions: tuple[GroupPosition, ...]
    positions_live: bool
    committed: Mapping[tuple[str, TopicPartition], int]
    members: Mapping[str, int]
    source_members: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    mirror: str | None = None
    notes: tuple[str, ...] = ()
    past: Mapping[Key, PastPosition] = field(default_factory=dict)
    stamped: Mapping[int, Mapping[TopicPartition, int | None]] = field(default_factory=dict)
    stored: tuple[GroupPosition, ...] = ()
    left: tuple[str, ...] = ()
    unmovable: tuple[UnmovableGroup, ...] = ()
    transactions: TransactionHistory | None = None
    suspected: frozenset[str] = frozenset()
    read_groups: frozenset[str] = frozenset()
    unread_reason: str | None = None
    lacking: frozenset[Key] = frozenset()
    behind_captured: Mapping[Key, int] = field(default_factory=dict)
    unmovable_there: Mapping[str, str] = field(default_factory=dict)
    begun_at: datetime | None = None
    rows_in_doubt: RowDoubts = NO_ROW_DOUBTS

    def is_live(self, group: str, tp: TopicPartition) -> bool:
        """Whether the source itself answered where this group stands; else its position is as captured."""
        return (group, tp) not in self.lacking and (self.positions_live or group in self.read_groups)

    @property
    def vanished(self) -> set[str]:
        """Groups of which the source, which answered for all, has no committed offset any more."""
        return {group for group, _ in self.lacking} - self.read_groups if self.positions_live else set()

    def news(self) -> list[GroupPosition]:
        """Positions from the source's answer that the store doesn't have; none if it didn't answer, nor on topics that
        were made anew there: the store has the positions in those that are mirrored."""
        if not self.positions_live and not self.read_groups:
            return []
        known = {(p.group, p.topic, p.partition): (p.offset, p.metadata) for p in self.stored}
        return [
            p
            for p in self.positions
            if self.is_live(p.group, p.tp)
            and not (p.tp in self.partitions and self.partitions[p.tp].recreated)
            and known.get((p.group, p.topic, p.partition)) != (p.offset, p.metadata)
        ]

    @property
    def silent(self) -> list[PartitionView]:
        """Partitions of which the source, which answers, says nothing: mostly they have no leader there."""
        return [view for view in self.partitions.values() if view.silent is not None]

    @property
    def unjudged(self) -> list[PartitionView]:
        """Partitions of which it isn't known whether both sides, which answer, still hold what was mirrored."""
        return [view for view in self.partitions.values() if view.doubts.unjudged is not None]

    @property
    def lag(self) -> int | None:
        """Source offsets not on the target over all partitions; None if one is unknown."""
        return total(view.lag for view in self.partitions.values())
