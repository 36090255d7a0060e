"""The rows of the page's tables, made from a status snapshot and from a decision. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from drkit.model.clock import iso
from drkit.model.offsets import Certainty
from drkit.model.runs.journal import RunSummary
from drkit.model.totals import greatest, total
from drkit.observe import formatting
from drkit.observe.page.decision import Decision, PlannedRow
from drkit.observe.page.tables import Row, Table
from drkit.observe.status import GroupStatus, LinkStatus, PartitionStatus

TOPICS = Table(
    ("topic", "link", "target_topic", "partitions", "lag_records", "lag_seconds", "unknown", "problems"),
    ("topic", "target_topic", "reason"),
    ("link", "topic"),
    ("lag_records", True),
)
PARTITIONS = Table(
    (
        *("topic", "link", "partition", "source_end", "mirrored_through", "target_end", "delta"),
        *("lag_records", "lag_seconds"),
    ),
    ("topic", "target_topic", "reason"),
    ("link", "topic"),
    ("lag_records", True),
)
GROUPS = Table(
    ("group", "link", "topics", "positions", "exact", "conservative", "unavailable", "age_seconds", "worst"),
    ("group", "reason"),
    ("link", "group"),
    ("worst", True),
)
POSITIONS = Table(
    ("group", "link", "topic", "partition", "source_offset", "target_offset", "translation", "age_seconds", "worst"),
    ("group", "topic", "reason"),
    ("link", "group", "topic"),
    ("worst", True),
)
PLAN = Table(
    ("group", "link", "positions", "unplaced", "reread_at_most", "lost", "skipped", "translation", "worst"),
    ("group", "reason"),
    ("to", "link", "group"),
    ("worst", True),
)
PLANNED = Table(
    (
        *("group", "link", "topic", "partition", "source_offset", "target_offset", "strategy", "translation"),
        *("reread_at_most", "lost", "skipped", "worst"),
    ),
    ("group", "topic", "reason"),
    ("to", "link", "group", "topic"),
    ("worst", True),
)
WORKERS = Table(
    ("worker", "link", "state", "partitions", "records_per_second", "bytes_per_second", "latency_p99", "at"),
    ("worker", "state", "reason"),
    ("link",),
    ("worker", False),
)
RUNS = Table(
    ("run", "kind", "state", "started_at", "updated_at", "detail"),
    ("run", "kind", "state", "detail"),
    ("kind",),
    ("started_at", True),
)
DRILLS = Table(
    ("run", "title", "verdict", "started_at", "seconds", "rpo_records", "rto_seconds"),
    ("run", "title", "verdict", "reason"),
    (),
    ("started_at", True),
)

_GRAVITY = {Certainty.EXACT: 0, Certainty.CONSERVATIVE: 1, Certainty.UNAVAILABLE: 2}
_BY_VALUE = {certainty.value: gravity for certainty, gravity in _GRAVITY.items()}


def topic_rows(statuses: Sequence[LinkStatus]) -> list[Row]:
    """One row per topic: sums over its partitions; an unknown value makes the sum unknown."""
    found: list[Row] = []
    for status in statuses:
        by_topic: dict[str, list[PartitionStatus]] = defaultdict(list)
        for each in status.partitions:
            by_topic[each.topic].append(each)
        problems: dict[str, int] = defaultdict(int)
        for problem in status.problems:
            problems[problem.topic] += 1
        for topic, partitions in by_topic.items():
            unknown = [each for each in partitions if each.lag_records is None]
            found.append(
                {
                    "link": str(status.link.id),
                    "topic": topic,
                    "target_topic": partitions[0].target_topic,
                    "partitions": len(partitions),
                    "lag_records": total(each.lag_records for each in partitions),
                    "lag_seconds": greatest(each.lag_seconds for each in partitions),
                    "unknown": len(unknown),
                    "problems": problems[topic],
                    "reason": next((each.lag_reason for each in unknown if each.lag_reason), None),
                }
            )
    return found


def partition_rows(statuses: Sequence[LinkStatus]) -> list[Row]:
    """One row per partition."""
    return [
        {
            "link": str(status.link.id),
            "topic": each.topic,
            "target_topic": each.target_topic,
            "partition": each.partition,
            "source_start": each.source_start,
            "source_end": each.source_end,
            "mirrored_through": each.mirrored_through,
            "target_start": each.target_start,
            "target_end": each.target_end,
            "delta": each.delta,
            "lag_records": each.lag_records,
            "lag_seconds": each.lag_seconds,
            "reason": each.lag_reason or each.engine_reason,
        }
        for status in statuses
        for each in status.partitions
    ]


def group_rows(statuses: Sequence[LinkStatus], at: datetime) -> list[Row]:
    """One row per group: how many of its positions translate, and the age of the oldest."""
    found: list[Row] = []
    for status in statuses:
        by_group: dict[str, list[GroupStatus]] = defaultdict(list)
        for each in status.groups:
            by_group[each.group].append(each)
        for group, positions in by_group.items():
            counts = dict.fromkeys(Certainty, 0)
            for each in positions:
                counts[each.translation] += 1
            worst = max(positions, key=lambda each: _GRAVITY[each.translation])
            found.append(
                {
                    "link": str(status.link.id),
                    "group": group,
                    "type": positions[0].type,
                    "topics": len({each.topic for each in positions}),
                    "positions": len(positions),
                    "exact": counts[Certainty.EXACT],
                    "conservative": counts[Certainty.CONSERVATIVE],
                    "unavailable": counts[Certainty.UNAVAILABLE],
                    "age_seconds": age_seconds(min(each.captured_at for each in positions), at),
                    "translation": worst.translation.value,
                    "worst": _worst(_GRAVITY[worst.translation], len(positions) - counts[Certainty.EXACT]),
                    "reason": worst.reason,
                }
            )
    return found


def position_rows(statuses: Sequence[LinkStatus], at: datetime) -> list[Row]:
    """One row for each group and partition."""
    return [
        {
            "link": str(status.link.id),
            "group": each.group,
            "topic": each.topic,
            "partition": each.partition,
            "source_offset": each.source_offset,
            "target_offset": each.target_offset,
            "translation": each.translation.value,
            "age_seconds": age_seconds(each.captured_at, at),
            "worst": _GRAVITY[each.translation],
            "reason": each.reason,
        }
        for status in statuses
        for each in status.groups
    ]


def plan_rows(decisions: Iterable[Decision]) -> list[Row]:
    """One row for each group that a failover would move: records that it reads again, loses, skips.

    `reread`: what is known, so many at least; `reread_at_most`: with the bounds of what isn't, None without one.
    """
    found: list[Row] = []
    for decision in decisions:
        by_group: dict[tuple[str, str], list[PlannedRow]] = defaultdict(list)
        for each in decision.positions:
            by_group[each.link, each.group].append(each)
        for (link, group), positions in by_group.items():
            worst = max(positions, key=_planned_gravity)
            unplaced = sum(each.target_offset is None for each in positions)
            lost = total(each.lost for each in positions)
            found.append(
                {
                    "to": decision.to,
                    "link": link,
                    "group": group,
                    "positions": len(positions),
                    "unplaced": unplaced,
                    "reread": sum(each.reread or 0 for each in positions),
                    "reread_at_most": total(p.reread_at_most for p in positions if p.target_offset is not None),
                    "lost": lost,
                    "skipped": total(each.skipped for each in positions),
                    "translation": worst.translation,
                    "worst": _worst(_planned_gravity(worst), unplaced + (1 if lost else 0)),
                    "reason": worst.reason,
                }
            )
    return found


def planned_rows(decisions: Iterable[Decision]) -> list[Row]:
    """One row for each position of the plan."""
    return [
        {**each._asdict(), "to": decision.to, "worst": _planned_gravity(each)}
        for decision in decisions
        for each in decision.positions
    ]


def worker_rows(statuses: Sequence[LinkStatus]) -> list[Row]:
    """One row per worker, from its last report."""
    return [
        {
            "link": str(status.link.id),
            "worker": formatting.short(each.worker),
            "state": each.state,
            "reason": each.reason,
            "partitions": each.partitions,
            "records_per_second": round(each.records_per_second, 1),
            "bytes_per_second": round(each.bytes_per_second, 1),
            "in_flight": formatting.in_flight(each.statistics),
            "latency": formatting.latency(each.latency),
            "latency_p99": None if each.latency is None else each.latency.p99,
            "batches": formatting.treatment(each.statistics),
            "catching_up": formatting.catching_up(each.statistics),
            "at": iso(each.at),
        }
        for status in statuses
        for each in status.statistics
    ]


def run_rows(runs: Iterable[RunSummary]) -> list[Row]:
    """One row per run in the journal."""
    return [
        {
            "run": each.run,
            "kind": each.kind,
            "state": each.state,
            "started_at": iso(each.started_at),
            "updated_at": iso(each.updated_at),
            "detail": each.detail,
        }
        for each in runs
    ]


def _planned_gravity(row: PlannedRow) -> int:
    if row.target_offset is None:
        return 3
    return _BY_VALUE.get(row.translation, 2)


def _worst(gravity: int, count: int) -> int:
    """Sorts by the gravest, then by how many."""
    return gravity * 1_000_000_000 + count


def age_seconds(then: datetime, at: datetime) -> float:
    """How long ago it was at `at`, as the page's rows have it."""
    return round(max(0.0, (at - then).total_seconds()), 1)
