"""Options that say which topics, groups and moments a verb is about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.failover.snapshot.point_in_time import FORMS, Moment, TimeBasis, parse_moment
from drkit.failover.snapshot.selection import Edge, GroupTarget, Selection, parse_topic_selector
from drkit.model.clock import now
from drkit.model.errors import ConfigError

if TYPE_CHECKING:
    from drkit.model.audit.audit_result import TopicChoice


TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="T",
        help="A topic of the source (t), some partitions (t:0,1), or a pattern of whole names (orders.*); repeat it.",
    ),
]


def topic_choices(names: list[str] | None) -> tuple[TopicChoice, ...]:
    """The topics that `--topic` names.

    Raises:
        ConfigError: one is neither t nor t:0,1, nor a pattern.
    """
    if not names:
        return ()
    from drkit.model.audit.audit_result import TopicChoice  # with all that an audit results in

    try:
        return tuple(TopicChoice.parse(name) for name in names)
    except ValueError as error:
        raise ConfigError(f"--topic: {error}", remedy="For example --topic flights or --topic flights:0,1") from None


AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        "--to-datetime",
        metavar="TIME",
        help=f"Put groups where the log was at this time, never past unread records: {FORMS}.",
    ),
]
CommittedAtOption = Annotated[
    str | None,
    typer.Option(
        "--committed-at",
        metavar="TIME",
        help="Put each group at its committed offset at this time (as the mirror captured it), translated.",
    ),
]
TimezoneOption = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="IANA zone of local times (default: the machine's)."),
]


def either_moment(at: str | None, committed_at: str | None, timezone: str | None) -> Moment | None:
    """The moment of `--at` or of `--committed-at`; None where neither was given.

    Raises:
        ConfigError: both were given, or it is not a valid time.
    """
    if at is not None and committed_at is not None:
        raise ConfigError(
            "--at and --committed-at exclude each other",
            meaning="--at uses the records' timestamps, --committed-at the offsets that groups had committed by then",
            remedy="Give one of them",
        )
    found = moment(committed_at, timezone, option="--committed-at")
    return moment(at, timezone) if found is None else replace(found, basis=TimeBasis.COMMITS)


def moment(text: str | None, timezone: str | None, *, option: str = "--at") -> Moment | None:
    """The instant that an option's text means now; None where it wasn't given.

    Raises:
        ConfigError: not a time, in the future, repeated or skipped in its zone.
    """
    return None if text is None else parse_moment(text, now=now(), timezone=timezone, option=option)


_WHERE = re.compile(r"(?P<group>.+)=(?P<where>earliest|latest|-\d.*|\d.*)", re.DOTALL)


def select(
    groups: Sequence[str], topics: Sequence[str], *, all_groups: bool, edge: Edge | None, timezone: str | None
) -> Selection:
    """What `--group`, `--all-groups` and `--topic` say.

    Raises:
        ConfigError: they contradict each other, or a place is no time.
    """
    patterns, targets = [], []
    refuse_empty("--group", groups)
    for text in groups:
        found = _WHERE.fullmatch(text)
        if found is None:
            patterns.append(text)
        else:
            targets.append(_target(found["group"], found["where"], timezone))
    if all_groups and patterns:
        raise ConfigError(
            f"--all-groups and --group {patterns[0]} exclude each other",
            meaning=f"With --all-groups, --group gives a group its own position: {patterns[0]}=-5m",
            remedy="Give one of them",
        )
    names = [target.group for target in targets]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise ConfigError(f"--group {twice} is given two positions", remedy="Give one")
    chosen = () if all_groups else tuple(dict.fromkeys((*patterns, *names)))
    return Selection(chosen, tuple(parse_topic_selector(text) for text in topics), tuple(targets), edge)


def refuse_empty(option: str, names: Sequence[str]) -> None:
    """Raise ConfigError where a name is nothing: it was a variable of a script that wasn't set."""
    if any(not name.strip() for name in names):
        raise ConfigError(f"{option} is given an empty name", remedy="Name it, or leave the option out")


def one_edge(*, to_earliest: bool, to_latest: bool) -> Edge | None:
    """The end of the log that groups are told to go to; None: none.

    Raises:
        ConfigError: both.
    """
    if to_earliest and to_latest:
        raise ConfigError("--to-earliest and --to-latest exclude each other", remedy="Give one of them")
    return Edge.EARLIEST if to_earliest else Edge.LATEST if to_latest else None


def _target(group: str, where: str, timezone: str | None) -> GroupTarget:
    if where in set(Edge):
        return GroupTarget(group, Edge(where))
    found = moment(where, timezone, option=f"--group {group}")
    if found is None:
        raise ConfigError(f"--group {group}={where} is no position", remedy=f"Write it as {FORMS}, earliest or latest")
    return GroupTarget(group, found)
