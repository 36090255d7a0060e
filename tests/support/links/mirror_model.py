"""A brute-force model of a mirrored partition: it keeps every record and computes nothing from deltas.

The source is a log of records and holes; the mirror copies records one after the other to the end of the target and
remembers, for the checks, each record's target offset. Crashes, lost target data, retention and compaction on either
side happen between the steps. The code under test sees only rows, watermark and log ends; `check` compares its answers
with the real logs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from drkit.mapping import ResumeKind, ResumePoint, resume_point, translate
from drkit.mapping.mapping_rows import Ranges, former_ranges
from drkit.mapping.translate import translate_by_rows
from drkit.model.offsets import Certainty, OffsetMapping, Translation, Watermark

TOPIC, PARTITION = "flights", 0
AT = datetime(2026, 11, 20, 4, 3, 10, 123456, UTC)


def translate_rows(
    rows: list[OffsetMapping], watermark: Watermark | None, source_offset: int, former: Ranges = ()
) -> Translation:
    """`translate`, with the neighbours from a complete list of rows."""
    above = bisect_right(rows, source_offset, key=lambda row: row.source_offset)
    return translate(
        source_offset,
        floor=rows[above - 1] if above else None,
        following=rows[above] if above < len(rows) else None,
        watermark=watermark,
        first=rows[0] if rows else None,
        former=former,
    )


@dataclass
class MirroredPartition:
    """One partition in one epoch, on both sides."""

    source_start: int
    log_end: int  # of the target: the offset of the first record
    epoch: int = 0
    target_start: int = 0
    slots: list[bool] = field(default_factory=list)  # True: a record, False: a hole; [0] is at `first_offset`
    first_offset: int = -1
    placed: dict[int, int] = field(default_factory=dict)  # source offset -> real target offset
    durable: dict[int, int] = field(default_factory=dict)  # mapping rows
    watermark: Watermark | None = None
    position: int = -1  # the next source offset that the mirror reads
    known: list[tuple[int, int]] = field(default_factory=list)  # pairs that may be acknowledged next
    in_force: OffsetMapping | None = None
    former: list[MirroredPartition] = field(default_factory=list)  # earlier epochs, oldest first

    def __post_init__(self) -> None:
        self.first_offset = self.source_start if self.first_offset < 0 else self.first_offset
        self.resume()

    def accepted_anew(self) -> MirroredPartition:
        """The same source and target in a new epoch, mirrored from the source's start; what the target has stays."""
        return MirroredPartition(
            self.source_start,
            self.log_end,
            epoch=self.epoch + 1,
            target_start=self.target_start,
            slots=self.slots,
            first_offset=self.first_offset,
            former=[*self.former, self],
        )

    @property
    def source_end(self) -> int:
        return self.first_offset + len(self.slots)

    @property
    def rows(self) -> list[OffsetMapping]:
        return [self._row(source, target) for source, target in sorted(self.durable.items())]

    # ---- events on the clusters ------------------------------------------------------------------

    def append(self, kinds: list[bool]) -> None:
        """Records and holes arrive at the source's end."""
        self.slots.extend(kinds)

    def compact(self, source_offset: int) -> None:
        """A record is removed from the source: a hole from now on."""
        if self.source_start <= source_offset < self.source_end:
            self.slots[source_offset - self.first_offset] = False

    def retain_source(self, count: int) -> None:
        """The source's log start advances by up to `count`."""
        self.source_start = min(self.source_start + count, self.source_end)

    def retain_target(self, count: int) -> None:
        """The target's log start advances by up to `count`; the watermark learns it."""
        self.target_start = min(self.target_start + count, self.log_end)
        if self.watermark is not None:
            self._put_watermark(self.watermark.source_through, self.watermark.target_end)

    def lose(self, count: int) -> None:
        """The target loses its newest `count` offsets, acknowledged or not."""
        self.log_end = max(self.target_start, self.log_end - count)
        for each in (self, *self.former):
            each.placed = {source: target for source, target in each.placed.items() if target < self.log_end}

    # ---- steps of the mirror ---------------------------------------------------------------------

    def mirror(self, count: int, *, landing: int | None = None) -> None:
        """Copy up to `count` records: first all rows that they need, then the records.

        With `landing`, only so many of them are appended, and the mirror must be resumed.
        """
        planned: list[tuple[int, int]] = []
        end = self.log_end
        for source in range(max(self.position, self.source_start), self.source_end):
            if len(planned) == count:
                break
            if not self.slots[source - self.first_offset]:
                continue
            if self.in_force is None or self.in_force.delta != end - source:
                self._write_row(source, end)
            planned.append((source, end))
            end += 1
        for source, target in planned[:landing]:
            self.placed[source] = target
            self.log_end, self.position = target + 1, source + 1
            self.known.append((self.position, self.log_end))

    def use_target_offsets(self, count: int, *, landing: int | None = None) -> None:
        """The target's own markers: a row first, then `count` offsets without a record."""
        self._write_row(self.position, self.log_end + count)
        self.log_end += count if landing is None else min(landing, count)
        if landing is None:
            self.known.append((self.position, self.log_end))

    def late_marker(self) -> None:
        """The broker writes a marker by itself: a row as soon as it is seen."""
        self.log_end += 1
        self._write_row(self.position, self.log_end)
        self.known.append((self.position, self.log_end))

    def see_holes(self) -> None:
        """The mirror reads over holes up to the next record."""
        while self.position < self.source_end and not self._is_record(self.position):
            self.position += 1
        self.known.append((self.position, self.log_end))

    def acknowledge(self, choice: int) -> None:
        """Store one of the pairs reached since the last acknowledgement as the watermark."""
        if self.known:
            index = choice % len(self.known)
            self._put_watermark(*self.known[index])
            del self.known[: index + 1]

    def resume(self, *, stop_before_superseding: bool = False) -> ResumePoint:
        """Resume after a crash, according to the docstring of `drkit.mapping.resume`."""
        point = resume_point(
            self.rows, self.watermark, self.log_end, source_start=self.source_start, source_end=self.source_end
        )
        self.check_resume(point)
        self._put_watermark(point.source_offset, point.target_offset)
        if stop_before_superseding:
            return point
        self.position, self.known, self.in_force = point.source_offset, [], point.last_row
        if point.last_row is None or point.last_row.delta != point.target_offset - point.source_offset:
            self._write_row(point.source_offset, point.target_offset)
        self.durable = {source: target for source, target in self.durable.items() if target <= self.log_end}
        return point

    # ---- invariants ------------------------------------------------------------------------------

    def check_resume(self, point: ResumePoint) -> None:
        """R1 to R5."""
        assert point.target_offset == self.log_end
        assert point.kind is not ResumeKind.FOREIGN
        at_or_above = [source for source in self.placed if source >= point.source_offset]
        assert not at_or_above, "R1: would be mirrored twice"
        below = range(self.source_start, min(point.source_offset, self.source_end))
        missing = [source for source in below if self._is_record(source) and source not in self.placed]
        assert not missing, "R2: would never be mirrored"
        lost = self.watermark is not None and bool(self.durable) and self.log_end < self.watermark.target_end
        assert (point.kind is ResumeKind.REWIND) == lost
        assert (point.reason is not None) == lost, "R3"
        if self.watermark is not None and not lost:
            assert point.source_offset >= self.watermark.source_through, "R5"
        assert all(row.target_offset > self.log_end for row in point.superseded)
        kept = [row for row in self.rows if row not in point.superseded]
        for source, target in self.placed.items():
            floor = [row for row in kept if row.source_offset <= source]
            assert floor, f"R4: no row for {source}"
            assert source + floor[-1].delta == target, "R4: a kept row is not true"

    def check_translations(self) -> None:
        """N1 to N5, for every source offset around the log."""
        rows, mark = self.rows, self.watermark
        assert mark is not None
        assert rows
        alive = {source: target for source, target in self.placed.items() if target >= self.target_start}
        previous = -1
        by_epoch = {each.epoch: each.rows for each in self.former}
        former = former_ranges(
            rows, self.epoch, (mark.target_start, mark.target_end), lambda epoch: by_epoch.get(epoch, [])
        )
        copies = [pair for each in self.former for pair in each.placed.items() if pair[1] >= self.target_start]
        for committed in range(max(0, self.first_offset - 3), self.source_end + 4):
            answer = translate_rows(rows, mark, committed, former)
            if answer.target_offset is None:
                assert former, answer.reason
                assert "accepted as a new one" in (answer.reason or ""), "N5"
                assert committed > mark.source_through or committed < rows[0].source_offset
                continue
            at = answer.target_offset
            left = [source for source, target in copies if source >= committed and target < at]
            if committed > mark.source_through:
                assert not left, "N1, of what was mirrored in former epochs"
            elif committed < rows[0].source_offset:
                assert all(source >= rows[0].source_offset for source in left), "N1, of former epochs"
            skipped = [source for source, target in alive.items() if source >= committed and target < at]
            assert answer.skipped == len(skipped) == 0, "N1"
            again = [s for s, target in alive.items() if s < committed and at <= target < mark.target_end]
            assert answer.reread == len(again)
            if answer.certainty is Certainty.EXACT:
                read = min((target for target in alive.values() if target >= at), default=None)
                wanted = min((source for source in alive if source >= committed), default=None)
                assert read == (None if wanted is None else alive[wanted]), "N2"
            else:
                assert answer.reason
            assert at >= previous, "N3"
            assert self.target_start <= at <= max(mark.target_end, self.target_start), "N4"
            self._check_certainty(committed, answer)
            previous = at
        for lost in {0, len(rows) // 2, len(rows) - 1}:
            self._check_without(lost, former, alive)

    def _check_without(self, lost: int, former: Ranges, alive: Mapping[int, int]) -> None:
        """N1, N3 and N4 by a store that has lost this row, and doesn't know whether it has."""
        previous = -1
        assert self.watermark is not None
        mark = replace(self.watermark, target_end=min(self.watermark.target_end, self.log_end))
        left = [row for row in self.rows if row.target_offset <= self.log_end]
        left = left[:lost] + left[lost + 1 :]
        for committed in range(max(0, self.first_offset - 3), self.source_end + 4):
            answer = translate_by_rows(committed, left, mark, former, "a row may be lost")
            at = answer.target_offset
            if at is None:
                continue
            assert not [source for source, target in alive.items() if source >= committed and target < at], "N1"
            assert (answer.certainty, answer.skipped) == (Certainty.CONSERVATIVE, 0)
            assert at >= previous, "N3"
            assert self.target_start <= at <= max(mark.target_end, self.target_start), "N4"
            previous = at

    def _check_certainty(self, committed: int, answer: Translation) -> None:
        """Conservative only for one of the four stated causes, and the reason says which."""
        assert self.watermark is not None
        exact = answer.certainty is Certainty.EXACT
        if committed < self.watermark.source_through and self.placed.get(committed, -1) >= self.target_start:
            assert exact, "the record itself is there"
        reason = answer.reason or ""
        if committed > self.watermark.source_through:
            assert not exact
            assert f"{committed - self.watermark.source_through} offset" in reason
        elif committed < self.rows[0].source_offset:
            assert not exact
            assert f"{self.rows[0].source_offset - committed} offset" in reason
        elif self.watermark.target_end < self.rows[0].target_offset:  # only before anything is mirrored
            assert not exact
            assert "being aligned" in reason
        elif not exact:
            assert "retention or DeleteRecords" in reason
            assert answer.target_offset == self.target_start

    def _is_record(self, source: int) -> bool:
        return source >= self.source_start and self.slots[source - self.first_offset]

    def _row(self, source: int, target: int) -> OffsetMapping:
        return OffsetMapping(TOPIC, PARTITION, self.epoch, source, target)

    def _write_row(self, source: int, target: int) -> None:
        self.durable[source] = target
        self.in_force = self._row(source, target)

    def _put_watermark(self, source_through: int, target_end: int) -> None:
        self.watermark = Watermark(
            TOPIC,
            PARTITION,
            self.epoch,
            source_through,
            target_end,
            self.source_start,
            self.source_end,
            self.target_start,
            AT,
        )
