"""The status of a link as values, and its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from drkit.model.clock import now
from drkit.model.errors import unreached
from drkit.model.groups import UnmovableGroup
from drkit.model.link_state import (
    Problem,
)
from drkit.model.offsets import Certainty
from drkit.model.statistics import WorkerStatistics
from drkit.model.topology import Link
from drkit.observe.drill_history import DrillKind, drills_document
from drkit.store.workers import WorkerNote


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a link. Offsets are exclusive ends; None means unknown. `lag_reason`: why the lag is None."""

    topic: str
    target_topic: str
    partition: int
    source_start: int | None
    source_end: int | None
    mirrored_through: int | None
    target_start: int | None
    target_end: int | None
    delta: int | None
    lag_records: int | None
    lag_seconds: float | None
    engine_reason: str | None = None
    lag_reason: str | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group's captured position on the source, and its translation on the target.

    `type`: the type of a group that commits no offsets and so can't be moved
    (`drkit.model.groups`), else None.
    """

    group: str
    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    translation: Certainty
    reason: str | None
    captured_at: datetime
    type: str | None = None


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """The loss of a failover now: records not on the target, and the age of the oldest.

    `lower_bound`: a cluster, or a partition of it, doesn't answer, or the source doesn't list one, so `records` is the
    count of the last check, or more. `reason`: why a value is unknown, or inexact.
    """

    records: int | None
    seconds: float | None
    lower_bound: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The status of one link. `worker`: the one that leads; `workers`: all that mirror it now, the leader first;
    `statistics`: their counters, a few seconds old. `refused`: clusters that answer but can't be used, and why;
    `source_unread`, `target_unread`: which partitions of a cluster that answers don't, and why; `store_compared_at`:
    when the store was compared with its copy, as exact positions need; None: it couldn't be, or the link has no
    copy."""

    link: Link
    state: str
    reason: str | None
    source_reachable: bool
    target_reachable: bool
    worker: str | None
    observed_at: datetime | None
    partitions: tuple[PartitionStatus, ...]
    groups: tuple[GroupStatus, ...]
    problems: tuple[Problem, ...]
    recovery_point: RecoveryPoint
    workers: tuple[WorkerNote, ...] = ()
    statistics: tuple[WorkerStatistics, ...] = ()
    unmovable: tuple[UnmovableGroup, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    source_unread: str | None = None
    target_unread: str | None = None
    store_compared_at: datetime | None = None

    def unreached(self, alias: str) -> str:
        """Why a cluster isn't reachable, as a predicate: it is silent, or it answers but drkit can't use it."""
        return unreached(refused=alias in self.refused)

    def silence(self, alias: str) -> str | None:
        """That a cluster of the link, or some of its partitions, isn't read now, and why; None: all of it is."""
        source = alias == self.link.id.source
        if not (self.source_reachable if source else self.target_reachable):
            return f"{alias} {self.unreached(alias)}"
        return self.source_unread if source else self.target_unread

    @property
    def failed_over(self) -> bool:
        """Whether its source was failed away from: nothing is mirrored, and there is no failover to prepare."""
        return self.state in {"sealed", "reversed"}

    @property
    def loss_means(self) -> str:
        """The meaning of the recovery point's number in the link's state."""
        if self.failed_over:
            left = f"on {self.link.id.source} and not on {self.link.id.target}"
            return left if self.state == "sealed" else f"{left} when it was failed away from"
        return "a failover now would lose"


def status_document(statuses: Sequence[LinkStatus], drills: Sequence[DrillKind] | None = None) -> dict[str, Any]:
    """`drkit status --output json`. `drills`: those in the store; None: it wasn't asked."""
    known = None if drills is None else drills_document(drills, now())
    return {"links": [_link_document(status) for status in statuses], "drills": known}


def _link_document(status: LinkStatus) -> dict[str, Any]:
    return {
        "source": status.link.id.source,
        "target": status.link.id.target,
        "state": status.state,
        "reason": status.reason,
        "source_reachable": status.source_reachable,
        "target_reachable": status.target_reachable,
        "worker": status.worker,
        "workers": [
            {"worker": each.owner, "leads": each.leads, "partitions": each.partitions, "seen_at": each.seen_at}
            for each in status.workers
        ],
        "statistics": [each.document() for each in status.statistics],
        "observed_at": status.observed_at,
        "store_compared_at": status.store_compared_at,
        "partitions": [asdict(partition) for partition in status.partitions],
        "groups": [asdict(group) for group in status.groups],
        "problems": [asdict(problem) for problem in status.problems],
        "recovery_point": asdict(status.recovery_point),
    }
