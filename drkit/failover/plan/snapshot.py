"""A snapshot of everything a failover decides on. Frozen values; `take_snapshot.py` fills them.

Topics and partitions go by their names on the link's source. An offset that isn't known is None:
the cluster didn't answer, or the topic isn't there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from drkit.failover.positions.past_positions import Key, PastPosition
from drkit.lag.partition_lag import NO_DOUBTS, Doubts, PartitionLag, partition_lag
from drkit.model.errors import Refused, unreached
from drkit.model.groups.transactions import TransactionHistory
from drkit.model.groups.unmovable_groups import UnmovableGroup
from drkit.model.link_state import STORE_RECOVERED, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster as it answered. `reason` says why it isn't reachable; `denied`: it answers, and what to grant."""

    alias: str
    reachable: bool
    cluster_id: str | None = None
    brokers: int | None = None
    reason: str | None = None
    denied: str | None = None

    @property
    def unreached(self) -> str:
        """Why it isn't reachable, as a predicate: it is silent, or it answers and drkit can't work with it."""
        return unreached(refused=self.denied is not None)

    def refusal(self) -> Refused:
        """Why nothing can be done with a target that isn't reachable."""
        if self.denied is not None:
            return Refused(
                f"drkit can't work with {self.alias}: {self.reason}",
                meaning=f"{self.alias} is up, but drkit may not see or do there what it has to; nothing was changed",
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
    `watermark` is the store's, moved on to the target's log end where the log is further (the mirror
    died between an ack and its next save). `at_offset` is the first target offset stamped at or after
    the moment asked for; None where there is none, or no moment was asked for.
    `recreated`: the source's topic is another one than the mirror knew, so nothing recorded applies.
    `remark` says what of the target's log could not be explained, or was lost.
    `problems`: those of the partition, or of its topic. `doubts`: what the look at the clusters left open about it.
    `source_high`: the source's high watermark. Beyond `source_end` where that is the last stable offset and a
    transaction is open: nobody can read what lies between yet.
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
        """Whether the target has it and could be asked."""
        return self.target_end is not None

    @property
    def unproven(self) -> bool:
        """Whether the store was lost, and what landed on the target behind the watermark isn't known."""
        return any(problem.kind == STORE_RECOVERED for problem in self.problems)

    @property
    def missing(self) -> PartitionLag:
        """What of it isn't on the target, what an open transaction holds back included."""
        first = self.rows[0] if self.rows else None
        end = None if self.source_end is None else self.source_end + self.held
        return partition_lag(
            self.tp,
            self.watermark,
            self.problems,
            start=self.source_start,
            end=end,
            first=first,
            doubts=self.doubts,
        )

    @property
    def through(self) -> int | None:
        """The source offset up to which all is on the target; None where the target's log doesn't end there."""
        if self.watermark is None or self.recreated or self.watermark.target_end != self.target_end:
            return None
        return self.missing.through

    @property
    def held(self) -> int:
        """Source offsets behind the first record of an open transaction: it holds back all that follows it."""
        if self.source_high is None or self.source_end is None:
            return 0
        return max(0, self.source_high - self.source_end)

    @property
    def lag(self) -> int | None:
        """Source offsets not on the target; None where that isn't known (`missing.reason`)."""
        return self.missing.records


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One link, both its clusters, and what the store knows, at one moment.

    `positions` are the covered groups' on covered topics, refreshed from the source if it answered
    (`positions_live`). `committed` and `members` are the target's; `source_members` the source's.
    `mirror` names the worker that holds the link's mirror lease, None where nobody does. `notes` say
    what could not be read. `past`: where groups had committed at the moment asked for, where one was.
    `stamped`: by timestamp (ms) that some group alone goes by, the first target offset stamped from it on.
    `stored`: the positions that the store holds. `left`: topics that were mirrored once and are no longer among the
    link's; nothing else here is about them. `unmovable`: groups of the source that commit no offsets.
    `transactions`: what the mirror saw of groups that commit in transactions; None: there were none. `suspected`:
    groups that may commit in transactions; `transactions` says what the mirror knows of these, if it knows anything.
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

    def news(self) -> list[GroupPosition]:
        """Positions that the source answered with and the store doesn't hold so; none where it didn't answer."""
        if not self.positions_live:
            return []
        known = {(p.group, p.topic, p.partition): (p.offset, p.metadata) for p in self.stored}
        return [p for p in self.positions if known.get((p.group, p.topic, p.partition)) != (p.offset, p.metadata)]

    @property
    def lag(self) -> int | None:
        """Source offsets not on the target over all partitions; None where one isn't known."""
        return lag_of(self.partitions.values())


def lag_of(views: Iterable[PartitionView]) -> int | None:
    """Source offsets of these partitions that are not on the target; None where one isn't known."""
    lags = [view.lag for view in views]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None
