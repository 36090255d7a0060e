"""Where a mirror continues after it stopped for whatever reason. Pure.

Rows are written ahead: the row that opens a segment is durable before the segment's first record is
produced. So after a crash rows may be ahead of the log and the watermark may be behind it, never the
reverse:

    row   A (10 -> 4)          B (17 -> 8)   C (24 -> 16)
          v                    v             v
    target log   4 5 6 7       8 9 10 |                    L = 11
                     ^
                 watermark (13 -> 7)       what landed after the last acknowledgement: 7 8 9 10

The anchor is the newest known pair (source, target) at or below the log's end L: the last row with
target_offset <= L, or the watermark's own pair (source_through, target_end). From the anchor up to L the two
sides are in step, so the next source record is source + (L - target); here 17 + (11 - 8) = 20.
C names an offset that was never written: it is superseded.

Invariants:

    R1  No loss: every source record at or above the answer is not on the target.
    R2  No duplicate: every mirrored record below the answer is on the target.
    R3  Loss is named: where L < the watermark's target_end, the target lost acknowledged data, and
        the answer goes back to the first lost record (rewind).
    R4  After the superseded rows are removed, all remaining rows are true.
    R5  The answer is never below the watermark, unless data was lost.

They rest on two promises of the mirror (the caller checks the second with the batches it finds there):

    - whatever advances the target without being a mirrored record (a marker of the target's own, a
      filler) has a row *before* it; where the broker advances it unasked (a late marker), the row is
      written as soon as the marker is seen;
    - this mirror wrote all target offsets in [watermark.target_end, L). A late marker or a foreign writer
      there shifts L; `source_end` reveals some of these cases.

The caller repairs in this order: store the watermark (source_offset, target_offset) of the answer; remove the
rows with target_offset > L; then produce, after a row where `last_row` has another delta. After a crash in between,
the same repair is repeated.

The same proof moves a watermark (`settled_watermark`): a mirror stores watermarks about once a second, and may die
between an acknowledgement and its next save. Only the mirror writes the target's partition until the link is failed
over, so the log's end and the rows show what else is on the target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from drkit.mapping.mapping_rows import conflict
from drkit.model.errors import DrkitError
from drkit.model.offsets import OffsetMapping, Watermark


class ResumeKind(StrEnum):
    """What a mirror finds when it resumes a partition."""

    FRESH = "fresh"  # nothing was ever mirrored in this epoch
    CONTINUE = "continue"  # the target holds at least the acknowledged records
    REWIND = "rewind"  # the target lost records that it had acknowledged
    FOREIGN = "foreign"  # the target holds more than this mirror can have written: fail closed


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The result of `resume_point`.

    `source_offset`: the next source record to mirror; `target_offset`: the target offset that it gets (the
    log's end). `last_row`: the row in force there, or None. `superseded`: rows to remove, ascending.
    `reason`: what is unusual, or None. Where `kind` is `FOREIGN` nothing may be written or produced.
    """

    kind: ResumeKind
    source_offset: int
    target_offset: int
    last_row: OffsetMapping | None
    superseded: tuple[OffsetMapping, ...]
    reason: str | None = None


def resume_point(
    rows: Sequence[OffsetMapping],
    watermark: Watermark | None,
    target_log_end: int,
    *,
    source_start: int,
    source_end: int | None = None,
) -> ResumePoint:
    """Find where to continue.

    Args:
        rows: all rows of the partition and epoch, ascending by source offset. The last valid row and
            those above it are enough for a log that lost nothing.
        watermark: the partition's watermark; one of another epoch is ignored.
        target_log_end: L, the target's true log end (not its high watermark).
        source_start: the source's log start, where a fresh partition begins.
        source_end: the source's log end (high watermark), if known: nothing above it can be mirrored.

    Raises:
        DrkitError: the rows conflict with each other.
    """
    conflicting = conflict(rows)
    if conflicting:
        raise DrkitError(
            conflicting,
            meaning="The mapping of this partition can't be trusted, so the mirror doesn't know where to continue",
            remedy="Re-seed the topic: drkit forgets its link data and mirrors the partition again",
        )
    if not rows:
        return ResumePoint(ResumeKind.FRESH, source_start, target_log_end, None, ())
    if watermark is not None and watermark.epoch != rows[0].epoch:
        watermark = None
    return _from_rows(rows, watermark, target_log_end, source_end)


def _from_rows(
    rows: Sequence[OffsetMapping], watermark: Watermark | None, log_end: int, source_end: int | None
) -> ResumePoint:
    valid = bisect_right(rows, log_end, key=lambda row: row.target_offset)
    superseded = tuple(rows[valid:])
    if valid == 0:
        first = rows[0]
        return _result(
            first.source_offset, log_end, None, superseded, _loss(watermark, log_end, first.source_offset), source_end
        )
    row = rows[valid - 1]
    source, target = row.source_offset, row.target_offset
    if watermark is not None and target <= watermark.target_end <= log_end:
        # ties go to the greater source offset: it skips more of the hole
        target, source = max((target, source), (watermark.target_end, watermark.source_through))
    resumed = source + (log_end - target)
    if superseded:
        # a lost log may end inside the target's own markers, where no source record corresponds
        resumed = min(resumed, superseded[0].source_offset)
    return _result(resumed, log_end, row, superseded, _loss(watermark, log_end, resumed), source_end)


def _result(
    source: int,
    log_end: int,
    row: OffsetMapping | None,
    superseded: tuple[OffsetMapping, ...],
    loss: str | None,
    source_end: int | None,
) -> ResumePoint:
    kind, reason = (ResumeKind.REWIND if loss else ResumeKind.CONTINUE), loss
    if source_end is not None and source > source_end:
        kind = ResumeKind.FOREIGN
        reason = (
            f"the target's log end {log_end} stands for source offset {source}, {source - source_end} beyond the "
            f"source's end {source_end}: another writer or a late marker used target offsets, or the source lost data"
        )
    return ResumePoint(kind, source, log_end, row, superseded, reason)


def _loss(watermark: Watermark | None, log_end: int, resumed: int) -> str | None:
    if watermark is None or log_end >= watermark.target_end:
        return None
    return (
        f"the target lost {watermark.target_end - log_end} acknowledged offsets: its log ends at {log_end}, "
        f"{watermark.target_end} was acknowledged; mirroring again from source offset {resumed}"
    )


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
        beyond = point.source_offset - seen_end
        unseen = (
            f"the target's log end {target_end} stands for source offset {point.source_offset}, {beyond} beyond the "
            f"last known end of the source ({seen_end}), which doesn't say now where its log ends: whether the mirror "
            "wrote that isn't known"
        )
        return SettledWatermark(mark, unseen if source_end is None else point.reason)
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
        waiting=mark.waiting_beyond(point.source_offset),
    )
    return SettledWatermark(moved, point.reason)
