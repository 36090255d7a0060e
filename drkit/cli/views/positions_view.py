"""Positions of groups as people see them: each one where there are few, by group where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from drkit.cli.views.layout import Column, FittingTable, Hanging, alike
from drkit.failover.positions.group_commands import GroupWithoutPlace
from drkit.failover.positions.positions import PlannedPosition, Strategy
from drkit.model.offsets import Certainty
from drkit.model.totals import total
from drkit.model.wording import and_more, counted

_ROWS = 20
_MANY = 2 * _ROWS
_PLACES = 3
_COMMANDS = 10
_CERTAINTY = {
    Certainty.EXACT: "green",
    Certainty.CONSERVATIVE: "yellow",
    Certainty.UNAVAILABLE: "red",
}
_NOT_PLACED = "not placed"
_EXACT_BY_TIME = (
    "by timestamp, exact is about where a group had got to, so about what it reads again or skips: it continues at the "
    "moment or the log's end that was asked for, not at its own next record"
)


@dataclass(frozen=True, slots=True)
class GroupMoveSummary:
    """All positions of a group together. `again`, `skipped`, `lost`: what is known; `again_at_most`: with the bounds of
    what isn't, None where there is none; `unplaced`: without a place."""

    group: str
    positions: int
    topics: tuple[str, ...]
    by: str
    again: int
    again_at_most: int | None
    skipped: int
    lost: int
    unplaced: int

    @property
    def severity(self) -> tuple[int, int, int, int, str]:
        """Unplaced first, then by what is lost, then what is skipped, then what is read again."""
        return (-self.unplaced, -self.lost, -self.skipped, -self.again, self.group)


def print_positions(console: Console, positions: Sequence[PlannedPosition]) -> None:
    """The worst first: single positions, or groups where there are too many to look at."""
    if not positions:
        console.print("[dim]no group has a position to move[/]")
    elif len(positions) > _MANY:
        _print_groups(console, positions)
    else:
        _print_each(console, positions)
    if any(each.strategy is Strategy.TIMESTAMP and each.translation is Certainty.EXACT for each in positions):
        console.print(Padding(f"[dim]·[/] {_EXACT_BY_TIME}", (0, 0, 0, 1)))


def print_without_place(console: Console, found: Sequence[GroupWithoutPlace], target: str) -> None:
    """What a move left without a position on `target`: which partitions, why, and the commands that place them."""
    if not found:
        return
    groups = len({each.group for each in found})
    have = "has" if groups == 1 else "have"
    count = sum(len(each.positions) for each in found)
    what = f"{counted(groups, 'group')} {have} no position from this move on {counted(count, 'partition')} of {target}"
    console.print(Hanging.markup(f"[bold yellow]no place[/]    {escape(what)}", 12))
    for each in found[:_COMMANDS]:
        for reason in _reasons(each.positions):
            console.print(Hanging.markup(f"[dim]·[/] {escape(reason)}", 2))
        for line in _kept(each.positions, target):
            console.print(Hanging.markup(f"  {escape(line)}", 2))
        if each.command is not None:
            console.print(f"  [bold]do:[/] {escape(each.command)}", soft_wrap=True)
    if len(found) > _COMMANDS:
        console.print(f"[dim]… and {len(found) - _COMMANDS:,} more, all of them in --output json (without_place)[/]")
    if any(each.command for each in found):
        note = (
            "Each do: puts a group at the begin of the log, so that it skips nothing, while none of its consumers runs "
            f"on {target}; else its auto.offset.reset decides (by default the log's end). --to-datetime TIME "
            f"instead of --to-earliest reads less again; where {target} asks for a log-in, add --command-config FILE"
        )
        console.print(Hanging.markup(f"[dim]{escape(note)}[/]", 0))


def _kept(positions: Sequence[PlannedPosition], target: str) -> Iterator[str]:
    """Positions that the group has on the target from elsewhere, which the move left."""
    kept = [f"{each.target_tp} at {each.existing:,}" for each in positions if each.existing is not None]
    if kept:
        yield f"what it has committed on {target} itself stays: {and_more(kept)}"


def sums(positions: Sequence[PlannedPosition]) -> list[GroupMoveSummary]:
    """The groups, the worst first."""
    ordered = sorted(positions, key=attrgetter("group"))
    return sorted(
        (_sum(group, list(found)) for group, found in groupby(ordered, attrgetter("group"))),
        key=attrgetter("severity"),
    )


def _sum(group: str, positions: Sequence[PlannedPosition]) -> GroupMoveSummary:
    kinds = Counter(position.strategy for position in positions)
    by = ", ".join(_named(kind) if len(kinds) == 1 else f"{_named(kind)} {n}" for kind, n in kinds.most_common())
    return GroupMoveSummary(
        group=group,
        positions=len(positions),
        topics=tuple(sorted({position.topic for position in positions})),
        by=by,
        again=sum(position.reread or 0 for position in positions),
        again_at_most=total(p.reread_bound for p in positions if p.target_offset is not None),
        skipped=sum(position.skipped or 0 for position in positions),
        lost=sum(position.lost or 0 for position in positions),
        unplaced=sum(position.target_offset is None for position in positions),
    )


def _print_groups(console: Console, positions: Sequence[PlannedPosition]) -> None:
    groups = sums(positions)
    skips = any(group.skipped for group in groups)
    table = FittingTable(
        (
            Column("group", name=True),
            Column("positions", right=True, needed=2),
            Column("of", name=True, least=9, needed=1),
            Column("by", name=True),
            *_counts(skips=skips),
        )
    )
    for group in groups[:_ROWS]:
        of = group.topics[0] if len(group.topics) == 1 else f"{len(group.topics)} topics"
        counts = [f"{count:,}" for count in (*([group.skipped] if skips else []), group.lost)]
        by = Text(group.by, style="red" if group.unplaced else "")
        table.add(group.group, f"{group.positions:,}", of, by, again(group.again, group.again_at_most), *counts)
    console.print(table)
    if len(groups) > _ROWS:
        console.print(f"[dim]… and {len(groups) - _ROWS:,} more groups; all positions are in --output json[/]")
    for line in _kinds(positions):
        console.print(Padding(f"[dim]·[/] {escape(line)}", (0, 0, 0, 1)))


def _counts(*, skips: bool) -> list[Column]:
    return [Column(name, right=True) for name in ("again", *(["skipped"] if skips else []), "lost")]


def again(known: int | None, at_most: int | None) -> str:
    """How many records are read again: exactly so many, at most so many, or at least what is known."""
    if at_most is not None:
        return f"{at_most:,}" if at_most == known else f"≤ {at_most:,}"
    return f"≥ {known:,}" if known else "?" if known == 0 else "-"


def _kinds(positions: Sequence[PlannedPosition]) -> Iterator[str]:
    """How many positions were chosen in each way, and one of them with its reason, what is least sure first."""
    kinds = Counter((position.strategy, position.translation) for position in positions)
    order = list(Certainty)
    for strategy, certainty in sorted(kinds, key=lambda kind: (-order.index(kind[1]), _named(kind[0]))):
        example = next(p for p in positions if p.strategy == strategy and p.translation == certainty)
        how = _NOT_PLACED if strategy is None else f"{_decided_by(strategy)}, {certainty}"
        partition = f"{example.group} {example.topic}:{example.partition}"
        yield f"{kinds[strategy, certainty]:,} {how}; e.g. {partition}: {example.why}"


def _decided_by(strategy: Strategy) -> str:
    return strategy.value if strategy is Strategy.PRESERVED else f"by {strategy}"


def _named(strategy: Strategy | None) -> str:
    return _NOT_PLACED if strategy is None else strategy.value


def _print_each(console: Console, positions: Sequence[PlannedPosition]) -> None:
    ranked = sorted(positions, key=_severity)
    skips = any(position.skipped for position in positions)
    table = FittingTable(
        (
            Column("group", name=True),
            Column("partition", name=True),
            Column("from", right=True, needed=1),
            Column("to", right=True),
            Column("by", needed=2),
            *_counts(skips=skips),
        )
    )
    for position in ranked[:_ROWS]:
        table.add(
            position.group,
            f"{position.topic}:{position.partition}",
            number(position.source_offset),
            Text(number(position.target_offset), style=_CERTAINTY[position.translation]),
            "-" if position.strategy is None else position.strategy.value,
            again(position.reread, position.reread_bound),
            *([number(position.skipped)] if skips else []),
            number(position.lost),
        )
    console.print(table)
    for line in _reasons(ranked[:_ROWS]):
        console.print(Padding(f"[dim]·[/] {escape(line)}", (0, 0, 0, 1)))
    if len(ranked) > _ROWS:
        console.print(f"[dim]… and {len(ranked) - _ROWS} more, all of them in --output json[/]")


def _severity(position: PlannedPosition) -> tuple[int, int, int, int, str, str, int]:
    """Unplaced first, then by what is lost, then what is skipped, then what is read again."""
    return (
        0 if position.target_offset is None else 1,
        -(position.lost or 0),
        -(position.skipped or 0),
        -(position.reread or 0),
        position.group,
        position.topic,
        position.partition,
    )


def _reasons(positions: Sequence[PlannedPosition]) -> Iterator[str]:
    """Reasons, the worst first, with the partitions they hold for; those that differ in numbers only are one."""
    for found in alike((each for each in positions if each.reason), lambda each: each.reason or ""):
        first = found[0]
        if len({position.reason for position in found}) == 1:
            yield f"{_places(found)}: {first.reason}"
        else:
            yield f"{len(found)} positions, e.g. {first.group} {first.topic}:{first.partition}: {first.reason}"


def _places(positions: Sequence[PlannedPosition]) -> str:
    """Partitions of a topic together."""
    where: dict[str, list[int]] = {}
    for position in positions:
        where.setdefault(f"{position.group} {position.topic}", []).append(position.partition)
    named = [f"{topic}:{','.join(map(str, sorted(partitions)))}" for topic, partitions in where.items()]
    return and_more(named, shown=_PLACES)


def number(value: int | None) -> str:
    """With thousands separated; a dash where it isn't known."""
    return "-" if value is None else f"{value:,}"
