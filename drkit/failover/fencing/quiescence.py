"""Proof by looking that nobody writes: log ends that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more

QUIET_SECONDS = 2.0
_SETTLING_WINDOWS = 5


class Watching(Protocol):
    """With what it is looked."""

    @property
    def estate(self) -> ClusterContext:
        """Where to look."""

    def wait(self, done: Callable[[], bool], seconds: float, /) -> bool:
        """Poll until `done`, at most for `seconds`; whether it came true."""


def ends_of(context: Watching, link: Link) -> dict[str, int]:
    """High watermarks of every covered partition of the link's source, by `topic:partition`.

    Raises:
        Unreachable: the source or one of its partitions doesn't answer.
    """
    admin = context.estate.admin(link.id.source)
    topics = {name: info for name, info in admin.topics().items() if link.covers_topic(name)}
    tps = [TopicPartition(name, partition) for name, info in topics.items() for partition in range(info.partitions)]
    ends = admin.end_offsets(tps, committed=False)
    silent = [str(tp) for tp in tps if tp not in ends]
    if silent:
        raise Unreachable(f"{link.id.source} does not say where {and_more(silent)} end", remedy="Trying again may work")
    return {str(tp): end for tp, end in sorted(ends.items())}


def frozen_ends(context: Watching, link: Link, seconds: float = QUIET_SECONDS) -> dict[str, int]:
    """The source's log ends, shown not to move for `seconds`.

    Raises:
        Refused: they move: somebody still writes.
        Unreachable: the source doesn't answer.
    """
    before = ends_of(context, link)
    moving: list[str] = []

    def moves() -> bool:
        moving[:] = differing(before, ends_of(context, link))
        return bool(moving)

    if context.wait(moves, seconds):
        raise still_written(link.id.source, moving)
    return before


def settled_ends(context: Watching, link: Link) -> dict[str, int]:
    """As `frozen_ends`, where writes were denied just now: what was under way, or ends a transaction, still lands.

    Raises:
        Refused: they go on moving.
        Unreachable: the source doesn't answer.
    """
    for _ in range(_SETTLING_WINDOWS - 1):
        try:
            return frozen_ends(context, link)
        except Refused:
            continue
    return frozen_ends(context, link)


def differing(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Partitions whose ends differ, as `topic:partition (before → after)`."""
    return [
        f"{tp} ({before.get(tp, 'absent')} → {after.get(tp, 'absent')})"
        for tp in sorted(before.keys() | after.keys())
        if before.get(tp) != after.get(tp)
    ]


def still_written(alias: str, moving: list[str]) -> Refused:
    """The refusal that names what moved."""
    return Refused(
        f"{alias} is still written: {and_more(moving)}",
        meaning="A planned move loses nothing only while nobody writes where the groups leave",
        remedy=f"Stop the producers of {alias}, then try again",
    )
