"""The mapping from the old primary's offsets of a topic to the live cluster's, recorded by either direction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from drkit.mapping.invert import invert_watermark
from drkit.mapping.mapping_rows import Ranges, conflict, former_ranges
from drkit.mapping.translate import translate_by_rows, unavailable
from drkit.model.offsets import OffsetMapping, Translation, Watermark
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
    """A partition's record: its watermark (None: nothing), the rows, ascending, and what the live cluster may hold of
    former epochs (`drkit.mapping.mapping_rows.former_ranges`)."""

    mark: Watermark | None = None
    rows: tuple[OffsetMapping, ...] = ()
    former: Ranges = ()

    def translate(self, tp: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the old primary to the live cluster."""
        if self.mark is None or not self.rows:
            return unavailable(offset, f"no mapping of {tp} is recorded")
        wrong = conflict(self.rows)
        if wrong is not None:
            return unavailable(offset, wrong)
        return translate_by_rows(offset, self.rows, self.mark, self.former)


def mappings_of(store: Store, link: LinkId, topics: Iterable[MappedTopic]) -> dict[TopicPartition, PartitionMapping]:
    """The mappings by partition of the old primary, the source of `link`, as far as no problem on record says that both
    sides hold different records."""
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
            mark = replace(mark, source_through=min(mark.source_through, until))
            rows = tuple(store.mappings(link, tp, mark.epoch))
            log = topic.live_starts.get(number, mark.target_start), mark.target_end
            former = former_ranges(rows, mark.epoch, log, partial(store.mappings, link, tp))
            found[tp] = PartitionMapping(mark, rows, former)
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
