"""Cases of `resume_point` and of the inversion that the model can't meet or that have words to check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.mapping import ResumeKind, ResumePoint, invert_mappings, invert_watermark, resume_point
from drkit.model.errors import DrkitError
from drkit.model.offsets import LastBatch, OffsetMapping, SourceBatch, Watermark
from tests.support.links.mirror_model import AT, PARTITION, TOPIC

A, B, C = (OffsetMapping(TOPIC, PARTITION, 0, *pair) for pair in ((10, 4), (17, 8), (24, 16)))
MARK = Watermark(TOPIC, PARTITION, 0, 13, 7, 10, 30, 4, AT)


def test_the_picture():
    assert resume_point([A, B, C], MARK, 11, source_start=10) == ResumePoint(ResumeKind.CONTINUE, 20, 11, B, (C,))


def test_a_fresh_partition_begins_at_the_sources_start_and_opens_a_row_there():
    assert resume_point([], None, 4, source_start=10) == ResumePoint(ResumeKind.FRESH, 10, 4, None, ())


def test_a_target_that_lost_acknowledged_data_is_rewound_and_says_what_was_lost():
    point = resume_point([A, B, C], MARK, 5, source_start=10)
    assert (point.kind, point.source_offset, point.superseded) == (ResumeKind.REWIND, 11, (B, C))
    assert point.reason == (
        "the target lost 2 acknowledged offsets: its log ends at 5, 7 was acknowledged; "
        "mirroring again from source offset 11"
    )


def test_a_target_that_lost_everything_begins_at_the_first_row_again():
    point = resume_point([A, B, C], MARK, 0, source_start=0)
    assert (point.kind, point.source_offset, point.last_row) == (ResumeKind.REWIND, 10, None)


def test_a_watermark_of_another_epoch_says_nothing_about_this_one():
    ahead = replace(MARK, epoch=3, source_through=500, target_end=8)
    assert resume_point([A], ahead, 6, source_start=10).source_offset == 12
    assert resume_point([A], ahead, 6, source_start=10).kind is ResumeKind.CONTINUE


def test_the_watermark_knows_of_trailing_holes_that_no_row_names():
    seen = replace(MARK, source_through=16, target_end=8)
    point = resume_point([A], seen, 8, source_start=10)
    assert (point.source_offset, point.target_offset) == (16, 8)


def test_more_on_the_target_than_the_source_ever_had_is_foreign():
    point = resume_point([A], MARK, 30, source_start=10, source_end=30)
    assert point.kind is ResumeKind.FOREIGN
    assert point.reason is not None
    assert "stands for source offset 36, 6 beyond the source's end 30" in point.reason


def test_conflicting_rows_are_refused():
    with pytest.raises(DrkitError, match="conflict"):
        resume_point([A, replace(B, target_offset=2)], MARK, 11, source_start=10)


def test_inverted_rows_of_the_picture():
    mark = Watermark(TOPIC, PARTITION, 0, 27, 19, 10, 27, 4, AT)
    assert invert_mappings([A, B, C], mark, topic="primary.flights", epoch=1) == [
        OffsetMapping("primary.flights", PARTITION, 1, *pair) for pair in ((4, 10), (8, 17), (16, 24))
    ]
    turned = invert_watermark(mark, topic="primary.flights", epoch=1)
    assert turned == Watermark("primary.flights", PARTITION, 1, 19, 27, 4, 19, 10, AT)
    known = invert_watermark(mark, epoch=1, last=LastBatch(leader_epoch=5, last_offset=18, crc=7))
    assert (known.leader_epoch, known.source_batch) == (5, SourceBatch(18, 7)), "the new source's"


def test_inverting_closes_a_log_that_ends_in_a_hole():
    mark = Watermark(TOPIC, PARTITION, 0, 29, 19, 10, 29, 4, AT)
    assert invert_mappings([A, B, C], mark, epoch=1)[-1] == OffsetMapping(TOPIC, PARTITION, 1, 19, 29)


def test_inverting_a_partition_where_nothing_flowed_keeps_its_one_point():
    mark = Watermark(TOPIC, PARTITION, 0, 29, 19, 29, 29, 19, AT)
    assert invert_mappings([], mark, epoch=1) == [OffsetMapping(TOPIC, PARTITION, 1, 19, 29)]


def test_inverting_keeps_the_last_of_rows_that_share_a_target_offset():
    rows = [OffsetMapping(TOPIC, PARTITION, 0, *pair) for pair in ((100, 90), (105, 90))]
    mark = Watermark(TOPIC, PARTITION, 0, 110, 95, 100, 110, 90, AT)
    assert invert_mappings(rows, mark, epoch=1) == [OffsetMapping(TOPIC, PARTITION, 1, 90, 105)]


@pytest.mark.parametrize(
    ("rows", "mark", "word"),
    [
        ([A], replace(MARK, source_end=14), "1 offsets behind"),
        ([A, replace(B, target_offset=2)], replace(MARK, source_end=13), "conflict"),
        ([replace(A, epoch=2)], replace(MARK, source_end=13), "epoch 2"),
    ],
)
def test_what_cannot_be_turned_round_is_refused(rows, mark, word):
    with pytest.raises(DrkitError, match=word):
        invert_mappings(rows, mark, epoch=1)
