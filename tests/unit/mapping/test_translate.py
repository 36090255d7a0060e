"""The picture in the module's docstring, and every named answer with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.mapping.mapping_rows import conflict, following, former_ranges, last_valid
from drkit.mapping.translate import translate, translate_by_rows
from drkit.model.offsets import Certainty, OffsetMapping, Translation
from tests.support.links.mirror_model import AT, PARTITION, TOPIC, Watermark, translate_rows


def row(source: int, target: int, epoch: int = 0) -> OffsetMapping:
    return OffsetMapping(TOPIC, PARTITION, epoch, source, target)


PICTURE = [row(10, 4), row(17, 8), row(24, 16)]
MARK = Watermark(TOPIC, PARTITION, 0, 27, 19, 10, 27, 4, AT)


@pytest.mark.parametrize(
    ("committed", "expected"),
    [(10, 4), (12, 6), (13, 7), (14, 8), (15, 8), (16, 8), (17, 8), (22, 13), (23, 14), (24, 16), (26, 18), (27, 19)],
)
def test_the_picture(committed, expected):
    assert translate_rows(PICTURE, MARK, committed) == Translation(committed, Certainty.EXACT, expected)


def test_a_commit_ahead_of_the_mirror_is_clamped_to_the_targets_end_and_says_by_how_much():
    answer = translate_rows(PICTURE, MARK, 40)
    assert (answer.certainty, answer.target_offset, answer.reread, answer.skipped) == (Certainty.CONSERVATIVE, 19, 0, 0)
    assert answer.reason is not None
    assert "13 offsets ahead of what is mirrored (source offset 27)" in answer.reason


def test_a_commit_ahead_is_clamped_even_where_a_row_is_written_ahead():
    rows = [*PICTURE, row(30, 19)]
    assert translate_rows(rows, MARK, 33).target_offset == 19


def test_below_the_first_row_says_how_much_was_never_mirrored():
    answer = translate_rows(PICTURE, MARK, 7)
    assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 4)
    assert answer.reason == "below the first mirrored offset 10: the 3 offsets before it were never mirrored"
    assert "the 1 offset before it was never mirrored" in (translate_rows(PICTURE, MARK, 9).reason or "")


def test_below_the_targets_retention():
    answer = translate_rows(PICTURE, replace(MARK, target_start=9), 12)
    assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 9)
    assert answer.reason is not None
    assert answer.reason.startswith("target offset 6 is below the target's log start 9")


def test_at_the_targets_log_start_it_is_still_exact():
    assert translate_rows(PICTURE, replace(MARK, target_start=6), 12) == Translation(12, Certainty.EXACT, 6)


def test_below_the_first_row_and_retention_names_both():
    answer = translate_rows(PICTURE, replace(MARK, target_start=9), 7)
    assert answer.target_offset == 9
    assert answer.reason is not None
    assert "never mirrored" in answer.reason
    assert "retention or DeleteRecords" in answer.reason


def test_a_target_emptied_beyond_the_watermark_is_answered_with_its_log_start():
    answer = translate_rows(PICTURE, replace(MARK, target_start=25), 40)
    assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 25)


@pytest.mark.parametrize(("rows", "mark"), [([], MARK), (PICTURE, None), ([], None)])
def test_nothing_recorded_is_unavailable(rows, mark):
    answer = translate_rows(rows, mark, 12)
    assert answer == Translation(
        12,
        Certainty.UNAVAILABLE,
        None,
        "the mirror has recorded nothing for this partition yet",
        reread=None,
        skipped=None,
    )


@pytest.mark.parametrize(
    ("rows", "mark", "word"),
    [
        ([row(10, 4), row(17, 3)], MARK, "conflict: source 10 -> target 4, but source 17 -> target 3"),
        ([row(10, 4), row(17, 25)], MARK, "source 17 -> target 25 of flights:0 lies beyond the watermark"),
        ([row(10, 25)], MARK, "lies beyond the watermark"),
        ([row(10, 4, epoch=1)], MARK, "the watermark is of flights:0 epoch 0, the mapping rows of flights:0 epoch 1"),
        ([row(10, 4), row(17, 8, epoch=1)], MARK, "are mixed"),
    ],
)
def test_inconsistent_rows_are_unavailable_with_the_reason(rows, mark, word):
    answer = translate_rows(rows, mark, 12)
    assert answer.certainty is Certainty.UNAVAILABLE
    assert answer.target_offset is None
    assert word in (answer.reason or "")


@pytest.mark.parametrize(
    ("floor", "following", "first"),
    [
        (row(13, 7), None, row(10, 4)),
        (row(10, 4), row(12, 9), row(10, 4)),
        (None, row(17, 8), row(10, 4)),
        (None, row(17, 8), row(12, 4)),
    ],
)
def test_rows_that_are_not_the_neighbours_are_a_fault_of_the_caller(floor, following, first):
    with pytest.raises(ValueError, match=r"row|floor"):
        translate(12, floor=floor, following=following, watermark=MARK, first=first)


def test_conflict_names_both_rows_and_finds_none_in_good_ones():
    assert conflict(PICTURE) is None
    assert conflict([row(10, 4), row(11, 4)]) is None, "a hole that grew: the same target offset twice"
    assert "source 12 -> target 2" in (conflict([row(10, 4), row(12, 2)]) or "")
    assert "source 10 -> target 6" in (conflict([row(10, 4), row(10, 6)]) or ""), "of one source offset"


def test_the_rows_beside_an_offset():
    a, b, c = PICTURE
    assert [following(PICTURE, offset) for offset in (9, 10, 16, 17, 23, 24)] == [a, b, b, c, c, None]
    assert [last_valid(PICTURE, end) for end in (3, 4, 7, 8, 15, 16, 99)] == [None, a, a, b, b, c, c]


def test_a_commit_among_what_the_target_may_hold_of_the_former_epoch_has_no_place():
    """Records that the group hasn't read may be below the first row: no place is known to be behind them."""
    rows, mark = [row(0, 130, epoch=2)], replace(MARK, epoch=2, source_through=20, target_end=150, target_start=0)
    former = former_ranges(rows, 2, (0, 150), {1: [row(0, 0, epoch=1)]}.__getitem__)
    answer = translate_by_rows(95, rows, mark, former)
    assert (answer.certainty, answer.target_offset) == (Certainty.UNAVAILABLE, None)
    assert "mirrored up to source offset 20 only: what the target holds from before, below 130" in (answer.reason or "")
    assert translate_by_rows(130, rows, mark, former).target_offset == 150
    assert translate_by_rows(20, rows, mark, former) == Translation(20, Certainty.EXACT, 150)


@pytest.mark.parametrize(
    ("start", "ranges"),
    [(0, ((0, 130),)), (100, ((0, 20), (100, 130))), (130, ((0, 20),)), (140, ((10, 20),)), (150, ())],
    ids=["all of it", "purged in part", "the oldest is gone", "purged below its end", "nothing"],
)
def test_all_former_epochs_count_also_where_one_between_has_no_row_or_is_partial(start, ranges):
    """Accepted, mirrored to 20, accepted twice in a row, mirrored a little: what was mirrored first is there still."""
    epochs = {1: [row(0, 0, epoch=1)], 2: [row(0, 130, epoch=2)], 3: [], 4: [row(0, 150, epoch=4)]}
    assert former_ranges([row(0, 150, epoch=5)], 5, (start, 155), epochs.__getitem__) == ranges
    assert former_ranges([], 5, (start, 150), epochs.__getitem__) == ranges, "before its first row"


def test_of_a_log_that_holds_nothing_below_the_first_row_no_former_epoch_is_asked():
    def asked(epoch: int) -> list[OffsetMapping]:
        raise AssertionError(epoch)

    assert former_ranges([row(0, 130, epoch=5)], 5, (130, 150), asked) == ()
    assert former_ranges([row(0, 130, epoch=1)], 1, (0, 150), asked) == ()


def test_a_commit_below_the_first_row_has_no_place_where_the_target_may_hold_what_follows_from_before():
    """The source removed 0 to 499, the topic was accepted as a new one: 300 to 499 were mirrored before, not never."""
    rows, mark = [row(500, 1000, epoch=2)], replace(MARK, epoch=2, source_through=1000, target_end=1500, target_start=0)
    answer = translate_by_rows(300, rows, mark, ((0, 1000),))
    assert (answer.certainty, answer.target_offset) == (Certainty.UNAVAILABLE, None)
    assert "from source offset 500 on only: what the target holds from before, below 1,000" in (answer.reason or "")
    for former in ((), ((0, 300),), ((500, 1000),)):
        beside = translate_by_rows(300, rows, mark, former)
        assert beside.target_offset == 1000
        assert "never mirrored" in (beside.reason or "")
