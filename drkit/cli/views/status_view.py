"""The status as a person reads it: what matters first, the worst first, and no more rows than one looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from drkit.cli.views.layout import Column, FittingTable, Hanging, alike
from drkit.model.clock import age_seconds, now
from drkit.model.offsets import Certainty
from drkit.model.wording import counted
from drkit.observe import formatting
from drkit.observe.drill_history import PASSED, DrillKind, age_in_words

if TYPE_CHECKING:
    from drkit.model.link_state import Problem
    from drkit.model.statistics import WorkerStatistics
    from drkit.observe.link_status import GroupStatus, LinkStatus, PartitionStatus

_STATE_STYLE = {
    "mirroring": "bold green",
    "stopped": "bold yellow",
    "paused": "bold yellow",
    "degraded": "bold red",
    "sealed": "bold magenta",
    "reversed": "bold magenta",
}
_MOST_ROWS = 12
"""So many rows are shown whatever they say; of more, only those that are not as they should be, so many at most."""
_COMPARED_NOW_SECONDS = 5.0
"""An older comparison of the store with its copy isn't this look's own (`--watch`)."""


@dataclass(frozen=True, slots=True)
class GroupStatusSummary:
    """All positions of a group together. `captured_at`: of the one that is least fresh."""

    group: str
    positions: int
    topics: tuple[str, ...]
    exact: int
    conservative: int
    unavailable: int
    captured_at: datetime

    @property
    def severity(self) -> tuple[int, int, str]:
        """Those with positions that can't be placed first, then those that would read again."""
        return (-self.unavailable, -self.conservative, self.group)


@dataclass(slots=True)
class _Counts:
    caught_up: int = 0
    behind: int = 0
    records: int = 0
    unknown: int = 0
    bad: list[PartitionStatus] = field(default_factory=list)


def render_statuses(statuses: Sequence[LinkStatus], *, every: bool = False) -> RenderableType:
    """Several links: a line for each, then each with its partitions and groups (`every`: all of these)."""
    parts: list[RenderableType] = []
    if len(statuses) > 1:
        parts += [_links(statuses), Text()]
    parts += [render_link(each, every=every) for each in statuses]
    return Group(*parts)


def render_drills(drills: Sequence[DrillKind]) -> list[RenderableType]:
    """A line for each kind of drill that the store knows: how old the last passed one is."""
    at = now()
    lines: list[RenderableType] = []
    for each in drills:
        age = each.age_seconds(at)
        when = "never passed" if each.passed_at is None else "last passed in the future: clocks differ"
        passed = Text(when, "yellow") if age is None else Text(f"last passed {age_in_words(age)} ago")
        newest = Text() if each.verdict == PASSED else Text(f"  the newest: {each.verdict}", "yellow")
        changed = Text(f"  changed since: {', '.join(each.changes)}", "yellow") if each.changes else Text()
        lines.append(Text.assemble(("drill  ", "dim"), each.title, "  ", passed, newest, changed))
    return lines


def render_link(status: LinkStatus, *, every: bool = False) -> RenderableType:
    """One link: a headline, partitions, groups, problems; `every`: each row of them."""
    parts: list[RenderableType] = [_headline(status)]
    if status.partitions:
        parts += _partitions(status.partitions, every=every, seen=status.source_reachable)
    if status.groups:
        parts += _groups(status.groups, every=every)
    parts += _problems(status, every=every)
    return Group(*parts, Text())


def group_sums(groups: Sequence[GroupStatus]) -> list[GroupStatusSummary]:
    """The groups, the worst first."""
    ordered = sorted(groups, key=attrgetter("group"))
    return sorted((_sum(name, list(found)) for name, found in groupby(ordered, attrgetter("group"))), key=_severity)


def _severity(group: GroupStatusSummary) -> tuple[int, int, str]:
    return group.severity


def _sum(name: str, found: Sequence[GroupStatus]) -> GroupStatusSummary:
    certain = [each.translation for each in found]
    return GroupStatusSummary(
        group=name,
        positions=len(found),
        topics=tuple(sorted({each.topic for each in found})),
        exact=certain.count(Certainty.EXACT),
        conservative=certain.count(Certainty.CONSERVATIVE),
        unavailable=certain.count(Certainty.UNAVAILABLE),
        captured_at=min(each.captured_at for each in found),
    )


def _links(statuses: Sequence[LinkStatus]) -> FittingTable:
    """A line for each link; one whose loss isn't known first, then by what would be lost."""
    table = FittingTable(
        (
            Column("link", name=True),
            Column("state"),
            Column("at stake", right=True),
            Column("oldest", right=True),
            Column("groups not exact", right=True),
            Column("problems", right=True),
        )
    )

    def loss_order(status: LinkStatus) -> tuple[bool, int, str]:
        point = status.recovery_point
        return (point.records is not None, -(point.records or 0), str(status.link.id))

    for each in sorted(statuses, key=loss_order):
        point = each.recovery_point
        sums = group_sums(each.groups)
        inexact = sum(1 for group in sums if group.exact < group.positions)
        table.add(
            str(each.link.id),
            Text(each.state, _STATE_STYLE.get(each.state, "bold")),
            formatting.loss(point.records, lower_bound=point.lower_bound),
            _seconds(point.seconds),
            f"{inexact:,} of {len(sums):,}",
            f"{len(each.problems):,}" if each.problems else "-",
        )
    return table


def _headline(status: LinkStatus) -> Hanging:
    point = status.recovery_point
    line = Text.assemble(
        (str(status.link.id), "bold"), "  ", (status.state, _STATE_STYLE.get(status.state, "bold")), "  "
    )
    if point.records is None:
        line.append(f"recovery point unknown: {point.reason}", "dim")
    else:
        lost = formatting.loss(point.records, lower_bound=point.lower_bound)
        line.append(f"{status.loss_means}: {lost}, {_seconds(point.seconds)}")
    for alias, reachable in (
        (status.link.id.source, status.source_reachable),
        (status.link.id.target, status.target_reachable),
    ):
        if not reachable:
            line.append(f"\n  {alias} {status.unreached(alias)}: its offsets are as last seen", "red")
    if status.reason:
        line.append(f"\n  {status.reason}", "yellow")
    if len(status.workers) > 1:
        for each in status.workers:
            line.append(
                f"\n  worker {each.owner}: {counted(each.partitions, 'partition')}{', leads' if each.leads else ''}",
                "dim",
            )
    for worker in status.statistics:
        _add_worker(line, worker)
    at, compared_at = now(), status.store_compared_at
    if compared_at is not None and (at - compared_at).total_seconds() > _COMPARED_NOW_SECONDS:
        line.append(
            f"\n  the store was compared with its copy on {status.link.id.target} {_age(compared_at, at)}", "dim"
        )
    return Hanging(line, 4)


def _add_worker(line: Text, worker: WorkerStatistics) -> None:
    line.append(
        f"\n  {formatting.short(worker.worker)}: {formatting.throughput(worker)}, "
        f"{formatting.in_flight(worker.statistics)} in flight; batches: {formatting.treatment(worker.statistics)}",
        "dim",
    )
    if (catching_up := formatting.catching_up(worker.statistics)) is not None:
        line.append(f"\n  catching up: {catching_up}", "dim")
    if worker.latency is not None:
        line.append(f"\n  end to end: {formatting.latency(worker.latency)}", "dim")


def _partitions(partitions: Sequence[PartitionStatus], *, every: bool, seen: bool) -> list[RenderableType]:
    """How many lag; then those that lag most, or all."""
    counts = _Counts()
    for each in partitions:
        if each.lag_records is None:
            counts.unknown += 1
        elif each.lag_records:
            counts.behind += 1
            counts.records += each.lag_records
        else:
            counts.caught_up += 1
            continue
        counts.bad.append(each)
    parts: list[RenderableType] = [_partition_counts(len(partitions), counts, seen=seen)]
    all_rows = every or len(partitions) <= _MOST_ROWS
    worst = sorted(counts.bad, key=lambda p: (p.lag_records is not None, -(p.lag_records or 0), p.topic, p.partition))
    shown = sorted(partitions, key=attrgetter("topic", "partition")) if all_rows else worst[:_MOST_ROWS]
    if shown:
        parts.append(_partition_table(shown))
    if not all_rows:
        parts += _left_out(len(worst) - len(shown), "more of them")
        parts += [Padding(Text(line, "dim"), (0, 0, 0, 1)) for line in _lag_reasons(worst)]
    return parts


def _partition_counts(total: int, counts: _Counts, *, seen: bool) -> Text:
    line = Text(f"{counted(total, 'partition')}: ")
    if not seen:  # what the source got since nobody has looked is in none of these counts
        line.append("as last seen, ", "red")
    if counts.caught_up == total:
        return line.append("all caught up", "green" if seen else "")
    said = [(f"{counts.unknown:,} with a lag that isn't known", "bold yellow")] if counts.unknown else []
    said += [(f"{counts.behind:,} behind by {counted(counts.records, 'record')}", "yellow")] if counts.behind else []
    said += [(f"{counts.caught_up:,} caught up", "green")] if counts.caught_up else []
    return line.append_text(Text(", ").join(Text(*each) for each in said))


def _partition_table(shown: Sequence[PartitionStatus]) -> FittingTable:
    table = FittingTable(
        (
            Column("partition", name=True),
            Column("source end", right=True, needed=3),
            Column("mirrored", right=True, needed=4),
            Column("target end", right=True, needed=1),
            Column("delta", right=True, needed=2),
            Column("lag", right=True),
            Column("seconds", right=True),
        )
    )
    for each in shown:
        style = "yellow" if each.lag_records else "green" if each.lag_seconds == 0 else ""
        table.add(
            f"{each.topic}:{each.partition}",
            _count(each.source_end),
            _count(each.mirrored_through),
            _count(each.target_end),
            _count(each.delta),
            Text(_count(each.lag_records), style),
            _seconds(each.lag_seconds),
        )
    return table


def _groups(groups: Sequence[GroupStatus], *, every: bool) -> list[RenderableType]:
    """How many would read again or have no place; then a line for each of those, or for each position."""
    sums = group_sums(groups)
    parts: list[RenderableType] = [_group_counts(sums)]
    if every or len(groups) <= _MOST_ROWS:
        parts.append(_position_table(groups))
    else:
        worst = [each for each in sums if each.exact < each.positions]
        if worst:
            parts.append(_group_table(worst[:_MOST_ROWS]))
        parts += _left_out(len(worst) - _MOST_ROWS, "more of them")
    parts.extend(Padding(Text(f"· {line}", "dim"), (0, 0, 0, 1)) for line in _reasons(groups))
    return parts


def _group_counts(sums: Sequence[GroupStatusSummary]) -> Text:
    positions = sum(each.positions for each in sums)
    line = Text(f"{counted(len(sums), 'group')}, {counted(positions, 'position')}: ")
    lost = sum(1 for each in sums if each.unavailable)
    again = sum(1 for each in sums if each.conservative and not each.unavailable)
    exact = len(sums) - lost - again
    if exact == len(sums):
        return line.append("all exact", "green")
    said = [(f"{lost:,} with a position that has no place on the target", "bold red")] if lost else []
    said += [(f"{again:,} would read records again", "yellow")] if again else []
    said += [(f"{exact:,} exact", "green")] if exact else []
    return line.append_text(Text(", ").join(Text(*each) for each in said))


def _group_table(shown: Sequence[GroupStatusSummary]) -> FittingTable:
    table = FittingTable(
        (
            Column("group", name=True),
            Column("of", name=True, needed=1, least=9),
            Column("exact", right=True, needed=2),
            Column("conservative", right=True),
            Column("unavailable", right=True),
            Column("captured", right=True, needed=3),
        )
    )
    at = now()
    for each in shown:
        table.add(
            each.group,
            each.topics[0] if len(each.topics) == 1 else f"{len(each.topics)} topics",
            f"{each.exact:,}",
            Text(f"{each.conservative:,}" if each.conservative else "-", "yellow"),
            Text(f"{each.unavailable:,}" if each.unavailable else "-", "red"),
            _age(each.captured_at, at),
        )
    return table


def _position_table(groups: Sequence[GroupStatus]) -> FittingTable:
    table = FittingTable(
        (
            Column("group", name=True),
            Column("partition", name=True),
            Column("source", right=True, needed=2),
            Column("target", right=True),
            Column("translation"),
            Column("captured", right=True, needed=1),
        )
    )
    at = now()
    order = list(Certainty)
    for each in sorted(groups, key=lambda g: (-order.index(g.translation), g.group, g.topic, g.partition)):
        exact = each.translation is Certainty.EXACT
        table.add(
            each.group,
            f"{each.topic}:{each.partition}",
            _count(each.source_offset),
            _count(each.target_offset),
            Text(each.translation.value, "" if exact else "yellow"),
            _age(each.captured_at, at),
        )
    return table


def _problems(status: LinkStatus, *, every: bool) -> list[RenderableType]:
    """Each problem with its remedy: those that halt first; no more than one reads, unless all are wanted."""
    ordered = sorted(status.problems, key=lambda problem: not problem.halted)
    found = [[each] for each in ordered] if every else alike(ordered, _problem_text, apart=_problem_kind)
    parts: list[RenderableType] = []
    for first, *others in found if every else found[:_MOST_ROWS]:
        line = Text("! ", "red")
        if where := formatting.place_unless_named(first):
            line.append(f"{where} ", "red")
        line.append("halted: " if first.halted else "", "bold red").append(first.reason)
        line.append(f" ({first.kind})", "dim")
        if others:
            line.append(f" and {counted(len(others), 'problem')} alike: --all shows each", "yellow")
        if first.remedy:
            line.append(f"\n  → {first.remedy}")
        parts.append(Hanging(line, 4))
    if not every:
        parts += _left_out(sum(map(len, found[_MOST_ROWS:])), "more problems")
    return parts


def _problem_text(problem: Problem) -> str:
    return f"{problem.reason} {problem.remedy}"


def _problem_kind(problem: Problem) -> tuple[str, str, bool]:
    return (problem.kind, problem.topic, problem.halted)


def _left_out(count: int, what: str) -> list[RenderableType]:
    return [Text(f"… {count:,} {what}: --all shows every row, --topic and --group choose", "dim")] if count > 0 else []


def _lag_reasons(partitions: Sequence[PartitionStatus]) -> Iterator[str]:
    """Why lags are not known; those that differ in numbers only as one of them."""
    groups = alike((each for each in partitions if each.lag_reason), lambda each: each.lag_reason or "")
    for found in sorted(groups, key=len, reverse=True)[:_MOST_ROWS]:
        first = found[0]
        more = "" if len(found) == 1 else f" (and {counted(len(found) - 1, 'partition')} alike)"
        yield f"· {first.topic}:{first.partition}{more}: {first.lag_reason}"


def _reasons(groups: Sequence[GroupStatus]) -> Iterator[str]:
    """Why positions are not exact, the commonest first; those that differ in numbers only as one of them."""
    found_alike = alike((each for each in groups if each.reason), lambda each: each.reason or "")
    ordered = sorted(found_alike, key=len, reverse=True)
    for found in ordered[:_MOST_ROWS]:
        first = found[0]
        more = "" if len(found) == 1 else f" (and {counted(len(found) - 1, 'position')} alike)"
        yield f"{first.group} {first.topic}:{first.partition}{more}: {first.reason}"
    if len(ordered) > _MOST_ROWS:
        yield f"and {counted(len(ordered) - _MOST_ROWS, 'other reason')}: --output json has all"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "? s" if value is None else f"{value:,.1f} s"


def _age(then: datetime, at: datetime) -> str:
    seconds = age_seconds(then, at)
    return "in the future: clocks differ" if seconds is None else f"{seconds:,.1f} s ago"
