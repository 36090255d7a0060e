"""Offset ranges, and their distribution among tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_OFFSETS_WORTH_A_TASK = 50_000
_MOST_OFFSETS_A_TASK = 5_000_000


class Span(NamedTuple):
    """Offsets [first, until) of one partition; `number` names it in rows.

    Of a range that is cut for several tasks, `begins` marks the first piece, and `end` is where the range ends.
    """

    number: int
    topic: str
    partition: int
    first: int
    until: int
    end: int
    begins: bool = True


def share_out(spans: Sequence[Span], tasks: int) -> list[list[Span]]:
    """Spans for each of so many tasks, each with about as many offsets as the next; long ones are cut."""
    total = sum(span.until - span.first for span in spans)
    size = max(1, -(-total // max(1, tasks)))
    shared: list[list[Span]] = [[]]
    room = size
    for span in spans:
        rest = span
        while rest.until - rest.first > room:
            cut = rest.first + room
            shared[-1].append(rest._replace(until=cut))
            rest = rest._replace(first=cut, begins=False)
            shared.append([])
            room = size
        if rest.first < rest.until:
            shared[-1].append(rest)
            room -= rest.until - rest.first
    return [each for each in shared if each]


def shared_whole(spans: Sequence[Span], tasks: int) -> list[list[Span]]:
    """As `share_out`, but no span is cut."""
    total = sum(span.until - span.first for span in spans)
    size = max(1, -(-total // max(1, tasks)))
    shared: list[list[Span]] = [[]]
    held = 0
    for span in spans:
        if held >= size:
            shared.append([])
            held = 0
        shared[-1].append(span)
        held += span.until - span.first
    return [each for each in shared if each]


def wanted_tasks(spans: Sequence[Span], parallel: int) -> int:
    """How many tasks read so many offsets: every core has work, none too little to be worth a connection."""
    offsets = sum(span.until - span.first for span in spans)
    return max(1, min(2 * parallel, offsets // _OFFSETS_WORTH_A_TASK), offsets // _MOST_OFFSETS_A_TASK)
