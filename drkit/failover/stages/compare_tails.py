"""Compares the ends of a link's logs on both sides: a planned move proves them equal before it moves.

The source's last mirrored batches are those that it holds now (`drkit.lag.source_batches`), whatever the link does.

The last offsets of each target partition are read, and for each record there the source record that the mapping assigns
to it; timestamps are compared, and key, value and headers by checksum. Together with the watermarks (everything below
the source's ends is recorded as mirrored) this shows that the mapping fits the logs at the groups' positions.
"""

from __future__ import annotations

from collections.abc import Iterable

from drkit.failover.plan.snapshot import PartitionView, Snapshot
from drkit.failover.run.cluster_context import ClusterContext
from drkit.kafka.client.record_probe import LogPosition
from drkit.lag.last_records import compare_records
from drkit.lag.source_batches import compare_batches, replaced_reason, set_back_remedy
from drkit.model.errors import Refused
from drkit.model.wording import and_more, counted

OFFSETS = 100
"""How many of a partition's last offsets are compared."""
_SECONDS = 20.0


def compare_tails(estate: ClusterContext, snapshot: Snapshot) -> str:
    """Compare; returns what was shown, in words.

    Raises:
        Refused: they differ, or could not all be read.
        Unreachable: a cluster doesn't answer.
    """
    link = snapshot.link
    source = estate.admin(link.id.source)
    marks = [view.watermark for view in snapshot.partitions.values() if view.watermark is not None]
    batches = compare_batches(source, marks)
    for tp, batch in sorted(batches.replaced.items()):
        raise Refused(
            replaced_reason(link.id.source, link.id.target, tp, batch),
            meaning="A planned move proves that both sides hold the same before it moves",
            remedy=set_back_remedy(link.id, tp.topic),
        )
    if batches.silent:
        raise Refused(
            f"the last mirrored batches of {and_more(sorted(map(str, batches.silent)))} can't be read on "
            f"{link.id.source}",
            meaning="A planned move proves that both sides hold the same before it moves",
            remedy="Try again once all brokers answer",
        )
    if link.alters or link.shares_target:
        why = "the link alters records" if link.alters else "its target has other writers"
        return f"records are not compared ({why}); the last mirrored batches are those of {link.id.source}"
    views = [view for view in snapshot.partitions.values() if view.rows and view.target_end]
    target = estate.admin(link.id.target)
    compared = compare_records(source, target, last_places(views), seconds=_SECONDS)
    if compared.unread:
        why = and_more([reason for _, reason in compared.unread], separator="; ")
        raise Refused(
            f"{counted(len(compared.unread), 'record')} at the logs' ends can't be read: {why}",
            meaning="A planned move proves that both sides hold the same before it moves",
            remedy="Try again once all brokers answer",
        )
    if compared.differ:
        wrong = [
            f"{there.tp} at {there.offset} differs from {here.tp} at {here.offset}" for here, there in compared.differ
        ]
        raise Refused(
            f"{len(wrong)} records on {link.id.target} are not those of {link.id.source}: "
            f"{and_more(wrong, separator='; ')}",
            meaning="Somebody else wrote there, or the mapping doesn't fit the logs",
            remedy=f"Run drkit audit --link '{link.id}' to see what deviates",
        )
    gone = f", {compared.gone:,} are gone from {link.id.source} since" if compared.gone else ""
    return f"the last {compared.equal:,} records of {counted(len(views), 'partition')} are equal by checksum{gone}"


def last_places(views: Iterable[PartitionView]) -> dict[LogPosition, LogPosition]:
    """The last offsets of each target partition that exist and have a row in force, with the source offsets that the
    mapping assigns to them."""
    places = {}
    for view in views:
        end, below = view.target_end or 0, 0
        for offset in range(max(view.target_start or 0, view.rows[0].target_offset, end - OFFSETS), end):
            while below + 1 < len(view.rows) and view.rows[below + 1].target_offset <= offset:
                below += 1
            places[LogPosition(view.target_tp, offset)] = LogPosition(view.tp, offset - view.rows[below].delta)
    return places
