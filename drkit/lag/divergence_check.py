"""Checks whether a source that lost its end, or was set back, still holds, below that place, what was mirrored.

Leader epochs say where a log parts from the one that was mirrored, unless a cluster was set back as a whole, its
controllers too: then they are given out a second time, and the log may have lost more than its end shows, and grown
again up to there. A log loses records at its end only, so the last records below that end tell (`unmirrored_tail`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from drkit.kafka.admin.logs.source_divergence import Divergence
from drkit.lag.batch_comparison import unmirrored_reason
from drkit.lag.unmirrored_tail import SECONDS, LinkSides, UnmirroredTail, unmirrored_tail
from drkit.mapping.translate import translate_by_rows
from drkit.model.errors import DrkitError
from drkit.model.link_state import PARTED, Problem
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import MappingStore


def check_divergences(
    found: Mapping[TopicPartition, Divergence],
    marks: Mapping[TopicPartition, Watermark],
    *,
    link: LinkId,
    store: MappingStore,
    sides: Callable[[], LinkSides],
) -> dict[TopicPartition, Divergence]:
    """The same divergences, with `Divergence.replaced` where the source holds something else further down, or nobody
    can tell. Not of partitions without mapping rows (their target has other writers).

    Args:
        found: by partition.
        marks: the watermarks by which they were found.
        link: the link.
        store: the mapping.
        sides: connects to both clusters.

    Raises:
        Unreachable: the store doesn't answer.
    """
    offsets = {tp: each.unsure[0] for tp, each in found.items() if each.kept.exact}
    try:
        tail = tail_below(offsets, marks, link=link, store=store, sides=sides)
    except DrkitError as error:
        unknown = f"whether it holds what was mirrored below that isn't known: {error.what}"
        return {tp: replace(each, replaced=(0, unknown)) if tp in offsets else each for tp, each in found.items()}
    replaced = {tp: (0, f"what it holds below that isn't known: {why}") for tp, why in tail.unread.items()}
    replaced |= {tp: (tail.same_until[tp], _what(first)) for tp, first in tail.first.items()}
    return {tp: replace(each, replaced=replaced.get(tp)) for tp, each in found.items()}


def further_down(
    problems: Iterable[Problem],
    marks: Mapping[TopicPartition, Watermark],
    *,
    link: LinkId,
    store: MappingStore,
    sides: Callable[[], LinkSides],
) -> tuple[dict[TopicPartition, Problem], dict[TopicPartition, str]]:
    """These problems, where their source differs from further down on than they say: one that lost its end, or was set
    back, may be set back once more, and no leader epoch tells. Second, why that isn't known of others. Neither has
    partitions of which all differs already, nor those without mapping rows.

    Args:
        problems: of single partitions.
        marks: watermarks.
        link: the link.
        store: the mapping.
        sides: connects to both clusters.

    Raises:
        Unreachable: the store doesn't answer.
    """
    told = {
        tp: problem
        for problem in problems
        if problem.kind in PARTED and problem.differs_from and problem.partition is not None
        if (tp := TopicPartition(problem.topic, problem.partition)) in marks
    }
    unsure = f"whether {link.source} still holds what was mirrored below that is not known"
    try:
        tail = tail_below(
            {tp: each.differs_from or 0 for tp, each in told.items()}, marks, link=link, store=store, sides=sides
        )
    except DrkitError as error:
        return {}, dict.fromkeys(told, f"{unsure}: {error.what}")
    deeper = {
        tp: replace(
            told[tp],
            reason=f"{told[tp].reason}; {unmirrored_reason(link.source, link.target, tp, first)}",
            unsure_from=tail.same_until[tp],
        )
        for tp, first in tail.first.items()
    }
    return deeper, {tp: f"{unsure}: {why}" for tp, why in tail.unread.items()}


def tail_below(
    offsets: Mapping[TopicPartition, int],
    marks: Mapping[TopicPartition, Watermark],
    *,
    link: LinkId,
    store: MappingStore,
    sides: Callable[[], LinkSides],
    seconds: float = SECONDS,
) -> UnmirroredTail:
    """What sources hold below these offsets that was never mirrored. Nothing of partitions without mapping rows.

    Args:
        offsets: by partition, the source offset up to which it may still hold what was mirrored.
        marks: watermarks.
        link: the link.
        store: the mapping.
        sides: connects to both clusters.
        seconds: for all partitions; of the rest nothing is known.

    Raises:
        DrkitError: a cluster or the store doesn't answer, or a callable can't be imported.
    """
    places = [(tp, marks[tp].epoch) for tp in offsets]
    rows = dict(zip(offsets, store.mappings_of(link, places), strict=True)) if offsets else {}
    kept = [mark for tp, each in offsets.items() if (mark := _kept(marks[tp], rows[tp], each)) is not None]
    return unmirrored_tail(sides(), kept, seconds=seconds) if kept else UnmirroredTail({}, {}, {})


def _what(first: int) -> str:
    return f"it holds a record at offset {first} that was never mirrored" if first else "it holds other records"


def _kept(mark: Watermark, rows: Sequence[OffsetMapping], offset: int) -> Watermark | None:
    """The watermark moved down to a source offset; None where no mapping row says where that is on the target."""
    place = translate_by_rows(offset, rows, mark).target_offset
    if place is None or offset <= mark.source_start:
        return None
    return replace(mark, source_through=offset, target_end=place, source_batch=None, leader_epoch=None)
