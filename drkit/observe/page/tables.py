"""The page's tables: their rows, from a status snapshot and a decision, and any length of them a page at a time. Pure.

Search, sort order and page come from the request's query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drkit.model.clock import iso
from drkit.model.errors import ConfigError
from drkit.model.offsets import Certainty
from drkit.model.runs import RunSummary
from drkit.model.totals import greatest, total
from drkit.observe import formatting
from drkit.observe.link_status import GroupStatus, LinkStatus, PartitionStatus
from drkit.observe.page.decision import Decision, PlannedRow, rounded_age

Row = Mapping[str, Any]
"""One line: plain values by column."""

DEFAULT_SIZE = 50
MAX_SIZE = 200
MAX_SEARCH = 200
_MAX_PAGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Table:
    """The allowed queries of a table.

    Args:
        columns: those that it can be sorted by.
        searched: those whose text is searched for `q`.
        filters: those that a query may filter by a whole value.
        sort: the default order, and whether that is descending.
    """

    columns: tuple[str, ...]
    searched: tuple[str, ...]
    filters: tuple[str, ...] = ()
    sort: tuple[str, bool] = ("", False)


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `page` counts from 1."""

    search: str
    filters: tuple[tuple[str, str], ...]
    sort: str
    descending: bool
    page: int
    size: int


def query_of(table: Table, parameters: Mapping[str, str]) -> Query:
    """The query of a request.

    Raises:
        ConfigError: a parameter is unknown or its value is invalid; the message names both.
    """
    known = {"q", "sort", "order", "page", "size", *table.filters}
    for name in parameters:
        if name not in known:
            raise _bad(name, parameters[name], f"known parameters are {', '.join(sorted(known))}")
    search = parameters.get("q", "")
    if len(search) > MAX_SEARCH:
        raise _bad("q", f"{search[:20]}…", f"at most {MAX_SEARCH} characters")
    sort, descending = table.sort
    if "sort" in parameters:
        sort, descending = parameters["sort"], False
        if sort not in table.columns:
            raise _bad("sort", sort, f"one of {', '.join(table.columns)}")
    if "order" in parameters:
        if parameters["order"] not in {"asc", "desc"}:
            raise _bad("order", parameters["order"], "asc or desc")
        descending = parameters["order"] == "desc"
    return Query(
        search=search.strip().casefold(),
        filters=tuple((name, parameters[name]) for name in table.filters if parameters.get(name)),
        sort=sort,
        descending=descending,
        page=_number("page", parameters.get("page", "1"), _MAX_PAGE),
        size=_number("size", parameters.get("size", str(DEFAULT_SIZE)), MAX_SIZE),
    )


def page_of(rows: Sequence[Row], table: Table, query: Query) -> dict[str, Any]:
    """The page of rows that a query asks for, and how many there are.

    Unknown values sort as the greatest, so that they are never hidden at the end of the worst. A page beyond the last
    is the last.
    """
    found = [row for row in rows if _matches(row, table, query)]
    if query.sort:
        found.sort(key=lambda row: _order(row[query.sort]), reverse=query.descending)
    pages = max(1, -(-len(found) // query.size))
    page = min(query.page, pages)
    begin = (page - 1) * query.size
    return {
        "total": len(rows),
        "matched": len(found),
        "page": page,
        "pages": pages,
        "size": query.size,
        "sort": query.sort,
        "order": "desc" if query.descending else "asc",
        "rows": found[begin : begin + query.size],
    }


def _matches(row: Row, table: Table, query: Query) -> bool:
    if any(str(row[name]) != value for name, value in query.filters):
        return False
    if not query.search:
        return True
    return any(query.search in str(row[name]).casefold() for name in table.searched if row[name] is not None)


def _order(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (2, 0.0, "")
    if isinstance(value, bool | int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value).casefold())


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise _bad(name, text, f"a whole number from 1 to {most:,}")
    return int(text)


def _bad(name: str, value: str, expected: str) -> ConfigError:
    return ConfigError(f"{name}={value[:80]!r} is not understood", remedy=f"Give {expected}")


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
                    "age_seconds": rounded_age(min(each.captured_at for each in positions), at),
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
            "age_seconds": rounded_age(each.captured_at, at),
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
