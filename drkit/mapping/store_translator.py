"""Translates many positions from one snapshot of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from drkit.mapping.mapping_rows import (
    LostRows,
    Ranges,
    conflict,
    floor,
    following,
    former_ranges,
    last_valid,
    source_at,
)
from drkit.mapping.resume import settled_watermark
from drkit.mapping.translate import (
    NO_ROW_DOUBTS,
    RowDoubts,
    doubt_of_rows,
    doubted,
    heed,
    translate_by_rows,
    unavailable,
)
from drkit.model.link_state import Problem
from drkit.model.offsets import Certainty, OffsetMapping, Translation, Watermark
from drkit.model.topology import LinkId, TopicPartition


class MappingSource(Protocol):
    """What translating needs from a store (`drkit.store.api.MappingStore` has it)."""

    def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:
        """The newest watermark of every partition of the link."""

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[OffsetMapping]:
        """All rows of a partition in an epoch, ascending by source offset."""

    def mappings_of(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]]) -> Iterator[list[OffsetMapping]]:
        """`mappings` of many partitions, each in an epoch, in their order."""

    def problems(self, link: LinkId) -> list[Problem]:
        """The known problems of the link."""


class PartitionRows:
    """The store's mapping rows, each partition's read once, with those that it `lost`: when first needed, or many
    together (`read`)."""

    def __init__(self, store: MappingSource, lost: LostRows | None = None) -> None:
        self._store = store
        self._lost = lost or {}
        self._found: dict[tuple[LinkId, TopicPartition, int], Sequence[OffsetMapping]] = {}

    def read(self, link: LinkId, places: Iterable[tuple[TopicPartition, int]]) -> None:
        """Read these partitions, each in an epoch, now: one by one, thousands take seconds."""
        wanted = [place for place in places if (link, *place) not in self._found]
        for (tp, epoch), rows in zip(wanted, self._store.mappings_of(link, wanted), strict=True):
            self._found[link, tp, epoch] = rows

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> Sequence[OffsetMapping]:
        """All rows of a partition in an epoch, ascending by source offset."""
        lost = [row for row in self._lost.get(tp, ()) if row.epoch == epoch]
        rows = self._found.get((link, tp, epoch))
        if rows is None:
            rows = self._found[link, tp, epoch] = self._store.mappings(link, tp, epoch)
        return sorted({*rows, *lost}) if lost else rows

    def next_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        """The first row strictly above `source_offset`."""
        return following(self.mappings(link, tp, epoch), source_offset)

    def last_valid_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int) -> OffsetMapping | None:
        """The last row whose `target_offset` isn't beyond `target_end`."""
        return last_valid(self.mappings(link, tp, epoch), target_end)


@dataclass(frozen=True, slots=True)
class _Partition:
    watermark: Watermark
    rows: Sequence[OffsetMapping]
    conflict: str | None
    former: Ranges
    in_doubt: str | None


class Translator:
    """Translates any number of positions of a link from one snapshot of the store.

    It reads watermarks once, at the first use; the rows of a partition once, after its watermark (so that no row
    that the watermark covers can be missing); problems last, once. Make a new object to see newer data.

    Args:
        store: where the rows are.
        link: the link whose source offsets are translated.
    """

    def __init__(self, store: MappingSource, link: LinkId) -> None:
        self._store = store
        self._link = link
        self._rows = PartitionRows(store)
        self._in_doubt = NO_ROW_DOUBTS
        self._target_logs: Mapping[TopicPartition, tuple[int, int]] | None = None
        self._silent: str | None = None
        self._silent_of: Mapping[TopicPartition, str] = {}
        self._watermarks: dict[TopicPartition, Watermark] | None = None
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._problems: Sequence[Problem] | None = None
        self._unsure: Mapping[TopicPartition, str] = {}
        self._source_ends: Mapping[TopicPartition, int | None] = {}
        self._own_ends: Mapping[TopicPartition, int] = {}

    def observe_target(self, look: Callable[[], Mapping[TopicPartition, tuple[int, int]]]) -> None:
        """Use the begin and end of the target's logs as they are now, by source partition, instead of the stored ones.

        No position is exact on a log that `look` doesn't return. Watermarks are read before `look` is called, because
        a growing log would otherwise seem to end below them. Call this before the first translation.
        """
        self._all_watermarks()
        self._target_logs = look()

    def heed_silence(self, reason: str | None, partitions: Mapping[TopicPartition, str] | None = None) -> None:
        """Say why the target's logs could not be read (`observe_target`): all of them, or those of partitions (by the
        source's names)."""
        self._silent, self._silent_of = reason, partitions or {}

    def heed_problems(self, problems: Sequence[Problem], unsure: Mapping[TopicPartition, str]) -> None:
        """Use these problems instead of the recorded ones, after a fresh look at the source (later than the
        watermarks).

        `unsure`: why none of a partition's positions is exact, whatever its rows say.
        """
        self._problems, self._unsure = problems, unsure

    def heed_age(self, rows: PartitionRows, in_doubt: RowDoubts) -> None:
        """Use these rows: the store's, and those that it has lost. `in_doubt`: why it isn't known whether it has lost
        others: no position that needs them is exact then, and each goes back to where nothing is skipped."""
        self._rows, self._in_doubt = rows, in_doubt
        self._partitions = {}

    def settle(self, source_ends: Mapping[TopicPartition, int | None], own_ends: Mapping[TopicPartition, int]) -> None:
        """Of these partitions, on which the target's log is the mirror's alone, also use what landed since their
        watermarks were stored, as far as the observed log ends and the rows prove it (`settled_watermark`).

        `source_ends`: the source's log ends, read after the target's; None where it doesn't answer. `own_ends`: the
        target offsets up to which logs are the mirror's that others have appended to. Call this before the first
        translation.
        """
        self._source_ends, self._own_ends = source_ends, own_ends

    def translate(self, tp: TopicPartition, source_offset: int) -> Translation:
        """Where `source_offset` of `tp` (the source's name) is on the target, and how surely, considering problems."""
        answer = self._by_rows(tp, source_offset)
        if self._problems is None:
            self._problems = self._store.problems(self._link)
        answer = heed(answer, self._problems, tp, lambda offset: self._by_rows(tp, offset))
        if answer.certainty is Certainty.EXACT and self._target_logs is not None and tp not in self._target_logs:
            answer = _as_last_seen(answer, self._silent_of.get(tp, self._silent))
        return doubted(answer, self._unsure.get(tp))

    def _by_rows(self, tp: TopicPartition, source_offset: int) -> Translation:
        partition = self._partition(tp)
        if partition is None:
            return unavailable(source_offset, _nothing(tp))
        if not partition.rows:
            return unavailable(source_offset, _no_rows(tp))
        if partition.conflict is not None:
            return unavailable(source_offset, partition.conflict)
        return translate_by_rows(
            source_offset, partition.rows, partition.watermark, partition.former, partition.in_doubt
        )

    def watermark(self, tp: TopicPartition) -> Watermark | None:
        """The watermark that translations of `tp` rest on."""
        return self._all_watermarks().get(tp)

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a watermark, sorted."""
        return sorted(self._all_watermarks())

    def floor(self, tp: TopicPartition, source_offset: int) -> OffsetMapping | None:
        """The row in force at `source_offset` (the newest at or below it), or None."""
        partition = self._partition(tp)
        return None if partition is None else floor(partition.rows, source_offset)

    def mirrored(self, tp: TopicPartition) -> Watermark | None:
        """The watermark, limited to what the target's log holds now, or None."""
        partition = self._partition(tp)
        return None if partition is None else partition.watermark

    def first(self, tp: TopicPartition) -> OffsetMapping | None:
        """The first row, or None; nothing below it was mirrored."""
        partition = self._partition(tp)
        return None if partition is None or not partition.rows else partition.rows[0]

    def _all_watermarks(self) -> dict[TopicPartition, Watermark]:
        if self._watermarks is None:
            self._watermarks = self._store.watermarks(self._link)
        return self._watermarks

    def _partition(self, tp: TopicPartition) -> _Partition | None:
        kept = self._partitions.get(tp)
        if kept is None:
            watermark = self._all_watermarks().get(tp)
            if watermark is None:
                return None
            rows = self._rows.mappings(self._link, tp, watermark.epoch)
            in_doubt = doubt_of_rows(self._in_doubt.of(tp), watermark, rows)
            if self._target_logs is not None and tp in self._target_logs:
                start, end = self._target_logs[tp]
                if in_doubt is not None:
                    watermark = replace(watermark, target_start=start, target_end=min(end, watermark.target_end))
                    rows = [row for row in rows if row.target_offset <= end]
                else:
                    watermark = self._as_it_is(tp, watermark, rows, start, end)
            log = watermark.target_start, watermark.target_end
            former = former_ranges(rows, watermark.epoch, log, partial(self._rows.mappings, self._link, tp))
            kept = self._partitions[tp] = _Partition(watermark, rows, conflict(rows), former, in_doubt)
        return kept

    def _as_it_is(
        self, tp: TopicPartition, mark: Watermark, rows: Sequence[OffsetMapping], start: int, end: int
    ) -> Watermark:
        """The watermark as the rows and the target's log, which now begins and ends there, prove it."""
        mark = _as_it_is(mark, rows, start, end)
        own = self._own_ends.get(tp, end)
        if tp not in self._source_ends or own <= mark.target_end:
            return mark
        return settled_watermark(mark, rows, own, source_end=self._source_ends[tp]).watermark


def _as_it_is(mark: Watermark, rows: Sequence[OffsetMapping], start: int, end: int) -> Watermark:
    """The watermark adjusted to a log that now begins and ends there: it may have lost its beginning or its end, or
    have a beginning again that had been removed (a broker's crash undoes a DeleteRecords)."""
    mark = replace(mark, target_start=start)
    if end >= mark.target_end or not rows:
        return mark
    through = min(mark.source_through, source_at(rows, end))
    return replace(
        mark, source_through=through, target_end=end, leader_epoch=None, source_batch=mark.batch_below(through)
    )


def _as_last_seen(answer: Translation, why: str | None) -> Translation:
    """An answer that was exact when the mirror last saw a target that can't be read now, made conservative."""
    reason = f"exact when the mirror last saw the target, which can't be read now: {why or 'no leader answers'}"
    return replace(answer, certainty=Certainty.CONSERVATIVE, reason=reason, reread=None, skipped=None)


def _nothing(tp: TopicPartition) -> str:
    return f"the mirror has recorded nothing for {tp} yet"


def _no_rows(tp: TopicPartition) -> str:
    return f"the mirror keeps no mapping of {tp}: its target has other writers too, or it has only just begun"
