"""Compares the ends of a link's logs on both sides: a planned move proves them equal before it moves.

The last offsets of each target partition are read, and for each record there the source record that the mapping assigns
to it; key, value and headers are compared by checksum. Together with the watermarks (everything below the source's ends
is recorded as mirrored) this shows that the mapping fits the logs at the groups' positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from drkit.failover.plan.snapshot import PartitionView, Snapshot
from drkit.failover.run.cluster_context import ClusterContext
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted

OFFSETS = 100
"""How many of a partition's last offsets are compared."""
_SECONDS = 20.0


@dataclass(slots=True)
class TailComparison:
    """The result: equal records, those that the source no longer has, and differences."""

    equal: int = 0
    gone: int = 0
    wrong: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def compare_tails(estate: ClusterContext, snapshot: Snapshot) -> str:
    """Compare; returns what was shown, in words.

    Raises:
        Refused: they differ, or could not all be read.
        Unreachable: a cluster doesn't answer.
    """
    link = snapshot.link
    if link.alters or link.shares_target:
        why = "the link alters records" if link.alters else "its target has other writers"
        return f"records are not compared ({why})"
    views = {view.target_tp: view for view in snapshot.partitions.values() if view.rows and view.target_end}
    ours = estate.admin(link.id.target).probe_records(last_places(views), seconds=_SECONDS)
    places = {
        place: origin(views[place.tp], place.offset) for place, seen in ours.items() if seen.offset == place.offset
    }
    theirs = estate.admin(link.id.source).probe_records(set(places.values()), seconds=_SECONDS)
    compared = compare(ours, theirs, places)
    if compared.unread:
        raise Refused(
            f"the ends of {len(compared.unread)} places can't be read: {and_more(compared.unread, separator='; ')}",
            meaning="A planned move proves that both sides hold the same before it moves",
            remedy="Try again once all brokers answer",
        )
    if compared.wrong:
        raise Refused(
            f"{len(compared.wrong)} records on {link.id.target} are not those of {link.id.source}: "
            f"{and_more(compared.wrong, separator='; ')}",
            meaning="Somebody else wrote there, or the mapping doesn't fit the logs",
            remedy=f"Run drkit audit --link '{link.id}' to see what deviates",
        )
    gone = f", {compared.gone:,} are gone from {link.id.source} since" if compared.gone else ""
    return f"the last {compared.equal:,} records of {counted(len(views), 'partition')} are equal by checksum{gone}"


def last_places(views: Mapping[TopicPartition, PartitionView]) -> list[LogPosition]:
    """The last offsets of each target partition that exist and have a row in force."""
    places = []
    for tp, view in views.items():
        end = view.target_end or 0
        first = max(view.target_start or 0, view.rows[0].target_offset, end - OFFSETS)
        places += [LogPosition(tp, offset) for offset in range(first, end)]
    return places


def origin(view: PartitionView, target_offset: int) -> LogPosition:
    """The source offset that the mapping assigns to a target offset."""
    row = [row for row in view.rows if row.target_offset <= target_offset][-1]
    return LogPosition(view.tp, target_offset - row.delta)


def compare(
    ours: Mapping[LogPosition, ProbedRecord],
    theirs: Mapping[LogPosition, ProbedRecord],
    places: Mapping[LogPosition, LogPosition],
) -> TailComparison:
    """Compare the records read.

    Args:
        ours: the target's offsets. An offset for which another one was found holds a marker or nothing.
        theirs: the source's.
        places: for each target offset with a record, its source offset.
    """
    found = TailComparison()
    for place, seen in ours.items():
        if seen.reason is not None and not seen.outside:
            found.unread.append(f"{place.tp} at {place.offset} ({seen.reason})")
    for place, source in places.items():
        there = theirs[source]
        if there.reason is not None and not there.outside:
            found.unread.append(f"{source.tp} at {source.offset} ({there.reason})")
        elif there.offset != source.offset:
            found.gone += 1  # retention or compaction removed it, as a source may at any time
        elif there.crc != ours[place].crc:
            found.wrong.append(f"{place.tp} at {place.offset} differs from {source.tp} at {source.offset}")
        else:
            found.equal += 1
    return found
