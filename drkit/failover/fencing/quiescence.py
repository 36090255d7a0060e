"""Proves that nobody writes to a cluster: its log ends don't move."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from drkit.failover.context.cluster_context import ClusterContext
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more

QUIET_SECONDS = 2.0
_SETTLING_WINDOWS = 5


class QuiescenceContext(Protocol):
    """Dependencies of the quiescence check."""

    @property
    def estate(self) -> ClusterContext:
        """Clusters and store."""

    def wait(self, done: Callable[[], bool], seconds: float, /) -> bool:
        """Poll until `done`, for at most `seconds`; returns whether it came true."""


def ends_of(
    context: QuiescenceContext,
    link: Link,
    *,
    may_be_gone: bool = False,
    silent: dict[TopicPartition, str] | None = None,
) -> dict[str, int]:
    """High watermarks of every covered partition of the link's source, by `topic:partition`; `may_be_gone`: as in
    `Clusters.admin`. `silent` collects partitions without an answer, with the reason; None: that is an error.

    Raises:
        Unreachable: the source or one of its partitions doesn't answer.
    """
    admin = context.estate.admin(link.id.source, may_be_gone=may_be_gone)
    topics = {name: info for name, info in admin.topics().items() if link.covers_topic(name)}
    tps = [TopicPartition(name, partition) for name, info in topics.items() for partition in range(info.partitions)]
    ends = admin.end_offsets(tps, committed=False, silent=silent)
    missing = [str(tp) for tp in tps if tp not in ends and tp not in (silent or ())]
    if missing:
        raise Unreachable(f"{link.id.source} does not report the log ends of {and_more(missing)}", remedy="Try again")
    return {str(tp): end for tp, end in sorted(ends.items())}


def topic_ids_of(context: QuiescenceContext, link: Link, *, may_be_gone: bool = False) -> dict[str, str]:
    """Kafka's ids of the covered topics of the link's source, by name. Read before log ends that are kept, and after
    those that are compared with them: a topic that was recreated in between is then noticed.
    """
    found = context.estate.admin(link.id.source, may_be_gone=may_be_gone).topics()
    return {name: info.topic_id for name, info in found.items() if link.covers_topic(name)}


def unlisted_topics(context: QuiescenceContext, link: Link, names: Collection[str]) -> tuple[set[str], set[str]]:
    """Those of `names`, topics that were there, of which the link's source shows nothing now: those that drkit's
    principal may not see (whether they exist is unknown), and those that are deleted.

    Raises:
        Unreachable: the source doesn't answer.
    """
    denied: set[str] = set()
    found = context.estate.admin(link.id.source, may_be_gone=True).topics(names, denied=denied)
    return denied, set(names) - denied - found.keys()


def frozen_ends(context: QuiescenceContext, link: Link) -> dict[str, int]:
    """The source's log ends, once they didn't move for `QUIET_SECONDS`.

    Raises:
        Refused: they move, so somebody still writes.
        Unreachable: the source doesn't answer.
    """
    before = ends_of(context, link)
    moving: list[str] = []

    def moves() -> bool:
        moving[:] = differing(before, ends_of(context, link))
        return bool(moving)

    if context.wait(moves, QUIET_SECONDS):
        raise still_written(link.id.source, moving)
    return before


def settled_ends(context: QuiescenceContext, link: Link) -> dict[str, int]:
    """Like `frozen_ends`, right after writes were denied: requests in flight and transaction markers may still arrive.

    Raises:
        Refused: they keep moving.
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


def not_readable(alias: str, partitions: Sequence[str]) -> Refused:
    """The refusal of a planned move that names the partitions of which the cluster that groups leave shows nothing any
    more."""
    return Refused(
        f"what {alias} holds of {and_more(partitions)} can't be read any more",
        meaning="A planned move loses nothing or does nothing, and what clients have written there since isn't known",
        remedy="Bring its brokers up, and grant drkit's principal DESCRIBE on these topics there; then try again. A "
        "new plan leaves out topics that were deleted there",
    )


def still_written(alias: str, moving: list[str]) -> Refused:
    """The refusal that names the partitions whose ends moved."""
    return Refused(
        f"clients still write to {alias}: {and_more(moving)}",
        meaning="A planned move loses nothing only while nobody writes to the cluster that groups leave",
        remedy=f"Stop the producers of {alias}, then try again",
    )
