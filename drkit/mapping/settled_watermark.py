"""Moves a watermark to the current end of its target's log, as far as the mapping rows prove the source offset.

A mirror stores watermarks about once a second, and may die between an acknowledgement and its next save. Only the
mirror writes the target's partition until the link is failed over, and a row is durable before the record that it
covers is produced: so the log's end and the rows show what else is on the target. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from drkit.mapping.resume import ResumeKind, resume_point
from drkit.model.errors import DrkitError
from drkit.model.offsets import OffsetMapping, Watermark


@dataclass(frozen=True, slots=True)
class SettledWatermark:
    """`watermark`: moved, or unchanged if nothing is proven. `remark`: why the log's end has no explanation, or what
    the target lost; None: neither."""

    watermark: Watermark
    remark: str | None = None


def settled_watermark(
    mark: Watermark, rows: Sequence[OffsetMapping], target_end: int, *, source_end: int | None
) -> SettledWatermark:
    """The watermark as far as the target's log now proves it.

    Beyond the last known end of the source nothing is proven (another writer may have been there): then it stays.

    Args:
        mark: the partition's watermark, of a link that flows; the target's log is the mirror's alone.
        rows: of its epoch, ascending by source offset; read after `target_end`.
        target_end: the target's log end.
        source_end: the source's log end; read after `target_end`, or another writer would seem to have been there.
            None: it doesn't answer, so the watermark's is used.
    """
    if target_end == mark.target_end:
        return SettledWatermark(mark)
    seen_end = max(mark.source_end, mark.source_through, source_end or 0)
    try:
        point = resume_point(rows, mark, target_end, source_start=mark.source_start, source_end=seen_end)
    except DrkitError as error:
        return SettledWatermark(mark, str(error))
    if point.kind is ResumeKind.FOREIGN:
        return SettledWatermark(mark, point.reason)
    if point.kind is ResumeKind.FRESH:
        return SettledWatermark(mark)
    moved = replace(
        mark,
        source_through=point.source_offset,
        target_end=target_end,
        source_end=max(mark.source_end, point.source_offset),
        behind_since=None if point.source_offset >= mark.source_end else mark.behind_since,
        leader_epoch=mark.epoch_at(point.source_offset),
        source_batch=mark.batch_below(point.source_offset),
    )
    return SettledWatermark(moved, point.reason)
