"""Carries committed offsets of the old primary over a failback: by the link's mapping to the live cluster's log, and
back by the way back's mapping once the old primary is seeded again.

Deleting a topic deletes every group's offsets on it, including groups that were left out of the failover or aren't the
link's. A group with a position on the live cluster uses that; carried positions are for all others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from drkit.failover.context.live_log import MISSING, RECREATED
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.positions.positions import PlannedPosition, Strategy
from drkit.kafka.groups.group_admin import CommittedOffset
from drkit.mapping.invert import invert_watermark
from drkit.mapping.mapping_rows import Ranges, conflict, former_ranges
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, doubt_of_rows, translate_by_rows, unavailable
from drkit.model.clock import now
from drkit.model.offsets import Certainty, GroupPosition, OffsetMapping, Translation, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store


class MappedTopic(NamedTuple):
    """A topic of the old primary.

    `way_back`: a failback that was given up recreated and filled it. `live_starts`: where the live cluster's logs of it
    begin, by partition, as far as known.
    """

    name: str
    live_topic: str
    partitions: int
    way_back: bool
    live_starts: Mapping[int, int] = {}


class PartitionMapping(NamedTuple):
    """A partition's record: its watermark (None: nothing), the rows, ascending, what the live cluster may hold of
    former epochs (`drkit.mapping.mapping_rows.former_ranges`), and why it isn't known whether the rows are all (None:
    it is, or none is needed but the first)."""

    mark: Watermark | None = None
    rows: tuple[OffsetMapping, ...] = ()
    former: Ranges = ()
    in_doubt: str | None = None

    def translate(self, tp: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the old primary to the live cluster."""
        if self.mark is None or not self.rows:
            return unavailable(offset, f"no mapping of {tp} is recorded")
        wrong = conflict(self.rows)
        if wrong is not None:
            return unavailable(offset, wrong)
        return translate_by_rows(offset, self.rows, self.mark, self.former, self.in_doubt)


def mappings_of(
    store: Store, link: LinkId, topics: Iterable[MappedTopic], in_doubt: RowDoubts = NO_ROW_DOUBTS
) -> dict[TopicPartition, PartitionMapping]:
    """The mappings by partition of the old primary, the source of `link`, as far as no problem on record says that both
    sides hold different records; `in_doubt`: what isn't known of the store's rows."""
    back = link.reversed()
    different = [problem for problem in store.problems(link) if problem.differs_from is not None]
    states, marks, back_marks = store.topic_states(link), store.watermarks(link), store.watermarks(back)
    found = {}
    for topic in topics:
        for number in range(topic.partitions):
            tp = TopicPartition(topic.name, number)
            if topic.way_back:
                found[tp] = _turned(store, back, TopicPartition(topic.live_topic, number), back_marks, topic.name)
                continue
            mark, state = marks.get(tp), states.get(topic.name)
            if mark is None or state is None or mark.epoch != state.epoch:
                found[tp] = PartitionMapping()
                continue
            until = min(
                (each.differs_from or 0 for each in different if each.concerns(tp)), default=mark.source_through
            )
            rows = tuple(store.mappings(link, tp, mark.epoch))
            doubt = doubt_of_rows(in_doubt.of(tp), mark, rows)
            if until < mark.source_through:  # above, a group may have read either side's records
                parting = translate_by_rows(until, rows, replace(mark, target_start=0), in_doubt=doubt).target_offset
                end = mark.target_end if parting is None else parting
                mark = replace(mark, source_through=until, target_end=min(mark.target_end, end))
            log = topic.live_starts.get(number, mark.target_start), mark.target_end
            former = former_ranges(rows, mark.epoch, log, partial(store.mappings, link, tp))
            found[tp] = PartitionMapping(mark, rows, former, doubt)
    return found


def _turned(
    store: Store, back: LinkId, there: TopicPartition, marks: dict[TopicPartition, Watermark], name: str
) -> PartitionMapping:
    mark = marks.get(there)
    if mark is None:
        return PartitionMapping()
    rows = {row.target_offset: row.source_offset for row in store.mappings(back, there, mark.epoch)}
    turned = [OffsetMapping(name, there.partition, mark.epoch, here, live) for here, live in sorted(rows.items())]
    return PartitionMapping(invert_watermark(mark, topic=name, epoch=mark.epoch), tuple(turned))


def carried(
    mappings: Mapping[TopicPartition, PartitionMapping],
    committed: Iterable[CommittedOffset],
    topics: Mapping[str, ScrubTopic],
) -> tuple[PlannedPosition, ...]:
    """Where each committed offset is on the live cluster.

    `source_offset`: the offset there (None: unknown, `reason` says why); `target_offset`: set only if the live cluster
    has no such topic, to the new one's first offset. `existing`: the offset that was committed.
    """
    return tuple(_carried(mappings, each, topics[each.topic]) for each in committed if each.topic in topics)


def _carried(
    mappings: Mapping[TopicPartition, PartitionMapping], found: CommittedOffset, topic: ScrubTopic
) -> PlannedPosition:
    stands = GroupPosition(found.group, topic.live_topic, found.partition, found.offset, found.metadata, now())
    base = replace(PlannedPosition.unplaced(stands, found.topic), source_offset=None, existing=found.offset)
    if topic.gap == MISSING:
        reason = f"{topic.live_topic} is missing on the live cluster: the recreated topic is read from its first record"
        base = replace(base, target_offset=0, strategy=Strategy.MAPPING, translation=Certainty.CONSERVATIVE)
        return replace(base, reason=reason, why=reason)
    if topic.gap == RECREATED:
        reason = f"{topic.live_topic} was recreated on the live cluster: it is read from its first record"
        start = topic.live_starts.get(found.partition, 0)
        return replace(base, source_offset=start, translation=Certainty.CONSERVATIVE, reason=reason, why=reason)
    place = mappings.get(found.tp, PartitionMapping()).translate(found.tp, found.offset)
    return replace(
        base,
        source_offset=place.target_offset,
        translation=place.certainty,
        reason=place.reason,
        why=place.reason or "where it had committed before the failover, by the mapping",
    )


def not_on(live: Iterable[CommittedOffset], positions: Sequence[PlannedPosition]) -> tuple[PlannedPosition, ...]:
    """Carried positions of groups that have committed nothing on that partition of the live cluster."""
    there = {(each.group, each.topic, each.partition) for each in live}
    return tuple(each for each in positions if (each.group, each.topic, each.partition) not in there)


def as_committed_there(
    live: Iterable[CommittedOffset], positions: Iterable[PlannedPosition]
) -> tuple[PlannedPosition, ...]:
    """Carried positions; of groups that have committed on that partition of the live cluster, that."""
    there = {(each.group, each.topic, each.partition): each for each in live}
    return tuple(_there(there.get((each.group, each.topic, each.partition)), each) for each in positions)


def _there(found: CommittedOffset | None, position: PlannedPosition) -> PlannedPosition:
    if found is None:
        return position
    return replace(
        position,
        source_offset=found.offset,
        metadata=found.metadata,
        translation=Certainty.EXACT,
        reason=None,
        why="where it has committed on the live cluster",
    )


def as_stands(positions: Iterable[PlannedPosition]) -> list[GroupPosition]:
    """Carried positions in the form of positions on the live cluster, where they are known there."""
    return [
        GroupPosition(
            each.group, each.topic, each.partition, each.source_offset, each.metadata, each.captured_at or now()
        )
        for each in positions
        if each.source_offset is not None
    ]


def with_carried(
    chosen: Sequence[PlannedPosition], positions: Iterable[PlannedPosition], starts: Mapping[TopicPartition, int]
) -> tuple[PlannedPosition, ...]:
    """The positions chosen for the move back, plus the carried ones of topics that the live cluster lacks.

    Args:
        chosen: the chosen positions.
        positions: the carried ones.
        starts: partitions that have vanished from the live cluster since, by their names there, with the begin of their
            logs on the old primary.
    """
    found = {(each.group, each.target_topic, each.partition): each for each in chosen}
    for each in positions:
        key = (each.group, each.target_topic, each.partition)
        if each.translation is Certainty.CONSERVATIVE and key in found and each.source_offset is not None:
            found[key] = _no_surer(found[key], each)
        start = starts.get(TopicPartition(each.topic, each.partition))
        if key in found and found[key].target_offset is not None:
            continue
        if each.target_offset is not None:
            found[key] = replace(each, existing=None)
        elif start is not None:
            reason = f"{each.topic} has gone from the live cluster since: what was brought back is read from its start"
            place = replace(each, existing=None, source_offset=None, target_offset=start, strategy=Strategy.MAPPING)
            found[key] = replace(place, translation=Certainty.CONSERVATIVE, reason=reason, why=reason)
    return tuple(each for _, each in sorted(found.items()))


def _no_surer(chosen: PlannedPosition, carried: PlannedPosition) -> PlannedPosition:
    """A position that was chosen for a carried offset: no surer than that is on the live cluster."""
    if chosen.source_offset != carried.source_offset or chosen.target_offset is None:
        return chosen
    reason = "; ".join(filter(None, (carried.reason, chosen.reason)))
    return replace(chosen, translation=Certainty.CONSERVATIVE, reread=None, reread_at_most=None, reason=reason)


def offsets_digest(committed: Iterable[CommittedOffset]) -> str:
    """A digest of committed offsets, to detect changes."""
    rows = sorted((each.group, each.topic, each.partition, each.offset, each.metadata) for each in committed)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def documents(committed: Iterable[CommittedOffset], positions: Iterable[PlannedPosition]) -> list[dict[str, Any]]:
    """Committed offsets as a salvage keeps them, each with its place on the live cluster."""
    places = {(each.group, each.target_topic, each.partition): each for each in positions}
    rows = []
    for each in sorted(committed, key=lambda found: (found.group, found.topic, found.partition)):
        place = places[each.group, each.topic, each.partition]
        rows.append(
            {
                "group": each.group,
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "metadata": each.metadata,
                "target_topic": place.topic,
                "target_offset": place.source_offset,
                "translation": place.translation.value,
                "reason": place.reason,
            }
        )
    return rows
