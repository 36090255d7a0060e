"""Inverts a link's mapping: rows that dr->primary recorded become rows of primary->dr.

After a failback both sides hold the records of the way back, so the forward link copies nothing again:
its new epoch starts with the reverse link's rows, with source and target exchanged.

    reverse link (dr -> primary)              forward link (primary -> dr), new epoch
      row        d -> p                         row        p -> d
      watermark  through d', end p'             watermark  through p', end d'
                                                row        p' -> d'   (closing)

The closing row is needed where dr's log ends in a hole (a transaction marker): the forward link's target is
then further on than its last segment says, and the next record doesn't belong to that segment.

Where several reverse rows share a target offset (the mirror saw a hole grow), only the last one is kept: it
names the record's true offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drkit.mapping.mapping_rows import conflict
from drkit.model.errors import DrkitError
from drkit.model.offsets import LastBatch, OffsetMapping, SourceBatch, Watermark


def invert_mappings(
    rows: Sequence[OffsetMapping], watermark: Watermark, *, topic: str | None = None, epoch: int
) -> list[OffsetMapping]:
    """Return the rows of the other direction, ascending by its source offset.

    Args:
        rows: all rows of a partition and epoch of the reverse link, ascending.
        watermark: its watermark, of the same epoch, read before the rows and after the mirror stopped.
        topic: the topic's name on the new direction's source (default: the same name).
        epoch: the epoch to begin; it must be new to the forward link.

    Raises:
        DrkitError: the rows conflict, belong to another partition or epoch than the watermark, or the way
            back isn't caught up (records that it has not copied would have no offset in the new epoch).
    """
    _require(rows, watermark)
    name = watermark.topic if topic is None else topic
    landed = (row for row in rows if row.target_offset <= watermark.target_end)  # others are ahead of the log
    turned = {row.target_offset: row.source_offset for row in landed}  # the last of a target offset wins
    closing_source, closing_target = watermark.target_end, watermark.source_through
    last_source = max(turned, default=None)
    if last_source is None or turned[last_source] - last_source != closing_target - closing_source:
        turned[closing_source] = closing_target
    return [
        OffsetMapping(name, watermark.partition, epoch, source, target) for source, target in sorted(turned.items())
    ]


def invert_watermark(
    watermark: Watermark, *, topic: str | None = None, epoch: int, last: LastBatch | None = None
) -> Watermark:
    """Return the watermark of the other direction: both sides hold the same records, so it is caught up.

    `observed_at` stays. `last`: the batch that ends where the new direction's source is mirrored to; None: it isn't
    known, nor is its leader epoch (each cluster counts its own).
    """
    return replace(
        watermark,
        topic=watermark.topic if topic is None else topic,
        epoch=epoch,
        source_through=watermark.target_end,
        target_end=watermark.source_through,
        source_start=watermark.target_start,
        source_end=watermark.target_end,
        target_start=watermark.source_start,
        behind_since=None,
        leader_epoch=None if last is None else last.leader_epoch,
        source_batch=None if last is None else SourceBatch(last.last_offset, last.crc),
        waiting=None,
    )


def _require(rows: Sequence[OffsetMapping], watermark: Watermark) -> None:
    remedy = "Let the way back catch up and stop its mirror, then reverse the link"
    if watermark.source_through < watermark.source_end:
        raise DrkitError(
            f"the way back of {watermark.tp} is {watermark.lag_records} offsets behind",
            meaning="Records that it has not copied would have no offset in the new epoch",
            remedy=remedy,
        )
    found = conflict(rows)
    if rows and (rows[0].tp != watermark.tp or rows[0].epoch != watermark.epoch):
        found = (
            f"the watermark is of {watermark.tp} epoch {watermark.epoch}, "
            f"the mapping rows of {rows[0].tp} epoch {rows[0].epoch}"
        )
    if found:
        raise DrkitError(found, meaning="The mapping of the way back can't be reversed", remedy=remedy)
