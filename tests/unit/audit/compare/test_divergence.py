"""What a source still holds of what digests were made of: by its batches, and by what a mirror noted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from drkit.audit.compare.scope import source_held
from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.model.digests import RangeDigest
from drkit.model.link_state import Problem
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store

AT = datetime(2026, 11, 22, 8, tzinfo=UTC)
LINK = LinkId("primary", "dr")
CUT, WHOLE = (TopicPartition("flights", number) for number in range(2))
DELTA = 7


def row(tp: TopicPartition, first: int, until: int) -> RangeDigest:
    return RangeDigest(*tp, 1, first + DELTA, until + DELTA, first, 1, until - first, 5, until)


ROWS = {tp: (row(tp, 0, 40), row(tp, 40, 80), row(tp, 80, 100)) for tp in (CUT, WHOLE)}


class Source:
    """Holds what was read: of one partition its first 80 offsets only, another log stands from there on. `starts`,
    `ends`: of both logs."""

    def __init__(self, *, start: int = 0, end: int = 130) -> None:
        self.start, self.end = start, end
        self.asked: list[int] = []

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        assert tp in ROWS
        return self.start, self.end

    def batches_at(
        self, offsets: Mapping[TopicPartition, int], *, committed: bool
    ) -> dict[TopicPartition, LogBatch | None]:
        assert committed
        assert all(self.start <= offset < self.end for offset in offsets.values())
        self.asked += offsets.values()
        return {
            tp: LogBatch(offset, offset, 3, 0 if tp == CUT and offset >= 80 else offset + 1)
            for tp, offset in offsets.items()
        }


def held(
    store: Store, source: Source, rows: Mapping[TopicPartition, tuple[RangeDigest, ...]], *, crc: int | None = None
) -> dict[TopicPartition, int]:
    """`crc`: that of the batch at offset 109, the last one mirrored."""
    last = None if crc is None else SourceBatch(109, crc)
    marks = {tp: Watermark(*tp, 1, 110, 117, 0, 130, 0, AT, leader_epoch=3, source_batch=last) for tp in rows}
    admin, side = source, SimpleNamespace(bounds=source.bounds)
    return source_held(LINK, store, admin, side, rows, marks)  # type: ignore[arg-type]  # all it asks


def test_the_batches_that_end_ranges_tell_how_far_the_source_is_whole(store: Store) -> None:
    assert held(store, Source(), ROWS) == {CUT: 80, WHOLE: 100}


def test_the_last_mirrored_batch_is_one_of_them(store: Store) -> None:
    assert held(store, Source(), ROWS, crc=110) == {CUT: 80, WHOLE: 110}
    assert held(store, Source(), ROWS, crc=111) == {CUT: 80, WHOLE: 100}


def test_what_lies_outside_the_log_is_not_asked_for(store: Store) -> None:
    """The source's retention took the first range; its log ends within the last one."""
    source = Source(start=50, end=95)
    assert held(store, source, ROWS, crc=110) == {CUT: 80, WHOLE: 80}
    assert set(source.asked) == {79}
    assert held(store, Source(start=120), ROWS, crc=110) == {CUT: 0, WHOLE: 0}


@pytest.mark.parametrize("kind", ["foreign_writer", "source_truncated"])
def test_a_place_that_a_problem_names_is_a_limit_whatever_batches_say(store: Store, kind: str) -> None:
    noted = Problem(kind, "flights", 1, "why", "what to do", halted=True, since=AT, unsure_from=60)
    for each in (noted, replace(noted, kind="other", unsure_from=30, halted=False), replace(noted, topic="other")):
        store.put_problem(LINK, each)
    assert held(store, Source(), ROWS) == {CUT: 80, WHOLE: 60}
    store.put_problem(LINK, replace(noted, partition=0, unsure_from=90))
    assert held(store, Source(), ROWS) == {CUT: 80, WHOLE: 60}, "the smaller of all"
    store.put_problem(LINK, replace(noted, kind="other", partition=None, unsure_from=20))
    assert held(store, Source(), ROWS) == {CUT: 20, WHOLE: 20}, "of the whole topic"


def test_a_partition_without_digests_is_not_asked_for(store: Store) -> None:
    source = Source()
    assert held(store, source, {WHOLE: ()}, crc=110) == {WHOLE: 0}
    assert not source.asked
