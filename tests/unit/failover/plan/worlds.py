"""Hand-made snapshots for tests of pure decisions: a log that is known record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.snapshot import ClusterView, PartitionView, Snapshot
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
LINK = Link(LinkId("primary", "dr"), topics=(".*",))


@dataclass
class Log:
    """A partition on both sides, record by record.

    `events`: `r` a record, `h` a source hole (marker, aborted, compacted), `m` a marker of the target's
    own, `b` a marker on both sides. `stamps` gives each record's timestamp in order. Everything from
    the source offset `through` on is not mirrored.
    """

    events: str
    through: int | None = None
    source_base: int = 0
    target_base: int = 0
    stamps: Sequence[int] = ()
    rows: list[OffsetMapping] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # source offset of a mirrored record -> target offset
    stamped: dict[int, int] = field(default_factory=dict)  # target offset -> timestamp
    source_end: int = 0
    target_end: int = 0

    def __post_init__(self):
        source, target, delta = self.source_base, self.target_base, None
        stamps = iter(self.stamps)
        cut = None
        for event in self.events:
            stamp = next(stamps, 0) if event == "r" else 0
            if self.through is not None and source >= self.through and cut is None:
                cut = (source, target)
            if cut is None and event in "rb":
                if delta != target - source:
                    delta = target - source
                    self.rows.append(OffsetMapping("t", 0, 1, source, target))
                if event == "r":
                    self.places[source] = target
                    self.stamped[target] = stamp
            if cut is None and event in "rmb":
                target += 1
            if event in "rhb":
                source += 1
        if not self.rows or self.rows[0].source_offset > self.source_base:
            first = OffsetMapping("t", 0, 1, self.source_base, self.target_base)
            self.rows.insert(0, first)  # a fresh partition's first row makes commits from its start translatable
        self.source_end = source
        self.mirrored, self.target_end = cut if cut is not None else (source, target)

    def watermark(self, *, target_start: int | None = None, observed_at: datetime = AT) -> Watermark:
        return Watermark(
            topic="t",
            partition=0,
            epoch=1,
            source_through=self.mirrored,
            target_end=self.target_end,
            source_start=self.source_base,
            source_end=self.source_end,
            target_start=self.target_base if target_start is None else target_start,
            observed_at=observed_at,
            behind_since=observed_at - timedelta(seconds=4) if self.mirrored < self.source_end else None,
        )

    def at_offset(self, millis: int) -> int | None:
        """What the target's broker answers: the first offset stamped at or after that time."""
        return min((offset for offset, stamp in self.stamped.items() if stamp >= millis), default=None)

    def view(self, *, at: Moment | None = None, target_start: int | None = None) -> PartitionView:
        return PartitionView(
            topic="t",
            partition=0,
            target_topic="t",
            epoch=1,
            rows=tuple(self.rows),
            watermark=self.watermark(target_start=target_start),
            target_start=self.target_base if target_start is None else target_start,
            target_end=self.target_end,
            at_offset=None if at is None else self.at_offset(at.millis),
        )


def moment(millis: int) -> Moment:
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    return Moment("as typed", instant, "UTC", instant.isoformat())


def position(offset: int, *, group: str = "billing", partition: int = 0, topic: str = "t") -> GroupPosition:
    return GroupPosition(group, topic, partition, offset, "kept", AT)


def world(
    views: Sequence[PartitionView],
    positions: Sequence[GroupPosition],
    *,
    source_reachable: bool = False,
    target_reachable: bool = True,
    committed: dict[tuple[str, TopicPartition], int] | None = None,
    members: dict[str, int] | None = None,
    direction: Direction | None = None,
    mirror: str | None = None,
    link: Link = LINK,
    positions_live: bool = True,
    source_members: dict[str, int] | None = None,
) -> Snapshot:
    control = None
    if direction is not None:
        control = LinkControl(link.id, direction, 3, AT, "as the test wants it", "01JTHEOTHERRUN000000000000")
    topics = {view.topic for view in views}
    return Snapshot(
        link=link,
        observed_at=AT,
        source=ClusterView("primary", reachable=source_reachable, cluster_id="old" if source_reachable else None),
        target=ClusterView("dr", reachable=target_reachable, cluster_id="new", brokers=1),
        control=control,
        topics={topic: TopicState(topic, link.target_topic(topic), "s-id", "t-id", 1, 1, True) for topic in topics},
        partitions={view.tp: view for view in views},
        positions=tuple(positions),
        positions_live=positions_live,
        source_members=source_members or {},
        committed=committed or {},
        members=members or {},
        mirror=mirror,
    )
