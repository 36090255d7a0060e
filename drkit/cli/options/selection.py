"""The selection of groups and topics from options, with groups that get a position of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from drkit.cli.options.times import moment
from drkit.failover.plan.point_in_time import FORMS
from drkit.failover.positions.selection import Edge, GroupTarget, Selection, parse_topic_selector
from drkit.model.errors import ConfigError

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
