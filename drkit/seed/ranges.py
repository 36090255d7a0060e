"""Divides partitions' offset ranges among tasks. Pure.

A partition is one log: its ranges run in sequence. So only different partitions run concurrently, and there are no
more tasks than partitions with work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drkit.model.topology import TopicPartition

RANGE_OFFSETS = 8_000_000
"""The most offsets of one partition that a task copies before others get their turn."""

MOST_PARTITIONS = 200
"""The most partitions of one task."""


class Ready(NamedTuple):
    """A partition with work: source offsets [`first`, `until`)."""

    tp: TopicPartition
    first: int
    until: int


def next_range(ready: Ready, most: int = RANGE_OFFSETS) -> Ready:
    """The next range for a task."""
    return ready._replace(until=min(ready.until, ready.first + most))


def share_out(ready: Iterable[Ready], slots: int, most: int = RANGE_OFFSETS) -> list[list[Ready]]:
    """The next ranges, in at most `slots` tasks with about as many offsets each; the rest waits for the next slot.

    The longest go first, so that the longest doesn't run alone at the end.
    """
    if slots <= 0:
        return []
    ranges = [next_range(each, most) for each in sorted(ready, key=lambda each: each.first - each.until)]
    tasks: list[list[Ready]] = [[] for _ in range(min(slots, len(ranges)))]
    loads = [0] * len(tasks)
    for each in ranges:
        lightest = min(range(len(tasks)), key=lambda number: (loads[number], len(tasks[number])))
        full = loads[lightest] + each.until - each.first > most
        if tasks[lightest] and (full or len(tasks[lightest]) >= MOST_PARTITIONS):
            continue
        tasks[lightest].append(each)
        loads[lightest] += each.until - each.first
    return tasks
