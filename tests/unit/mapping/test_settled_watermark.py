"""What the target holds beyond the last watermark that was kept counts, as far as the rows prove it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drkit.mapping.resume import settled_watermark
from drkit.model.offsets import OffsetMapping, WaitingRecords, Watermark

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
BEHIND = AT - timedelta(seconds=1)
MARK = Watermark("t", 0, 1, 100, 90, 0, 150, 0, AT, behind_since=BEHIND, leader_epoch=3)
ROWS = [OffsetMapping("t", 0, 1, 10, 0), OffsetMapping("t", 0, 1, 120, 105)]


@pytest.mark.parametrize(
    ("target_end", "source_end", "through"),
    [
        (90, 150, 100),  # as it was kept
        (95, 150, 105),
        (105, 150, 120),  # where the next row begins
        (115, 150, 130),
        (135, 150, 150),
        (136, 151, 151),  # the source's end as it is now counts, too
    ],
)
def test_it_moves_to_the_end_of_the_targets_log(target_end, source_end, through):
    found = settled_watermark(MARK, ROWS, target_end, source_end=source_end)
    assert (found.watermark.source_through, found.watermark.target_end, found.remark) == (through, target_end, None)
    assert found.watermark.observed_at == AT, "nobody has looked since"
    assert found.watermark.behind_since == (None if through >= 150 else BEHIND)
    assert found.watermark.leader_epoch == (3 if through == 100 else None)


def test_what_waits_behind_a_transaction_waits_until_all_of_it_is_there():
    mark = replace(MARK, waiting=WaitingRecords(160, AT))
    assert settled_watermark(mark, ROWS, 135, source_end=150).watermark.waiting == mark.waiting
    assert settled_watermark(mark, ROWS, 145, source_end=160).watermark.waiting is None


def test_more_than_the_source_holds_proves_nothing():
    found = settled_watermark(MARK, ROWS, 136, source_end=150)
    assert found.watermark == MARK
    assert "1 beyond the source's end 150: another writer" in (found.remark or "")


def test_more_than_a_source_that_is_slow_was_known_to_hold_proves_no_writer():
    """The mirror has gone on since its last save, and the source doesn't say where it ends."""
    found = settled_watermark(MARK, ROWS, 136, source_end=None)
    assert found.watermark == MARK
    assert "1 beyond the last known end of the source (150)" in (found.remark or "")
    assert "writer" not in (found.remark or "")


def test_a_log_that_lost_its_end_takes_it_back_and_says_so():
    found = settled_watermark(MARK, ROWS, 80, source_end=150)
    assert (found.watermark.source_through, found.watermark.behind_since) == (90, BEHIND)
    assert "the target lost 10 acknowledged offsets" in (found.remark or "")


def test_without_rows_and_by_rows_that_conflict_it_stays():
    assert settled_watermark(MARK, [], 100, source_end=150).watermark == MARK
    odd = settled_watermark(MARK, [*ROWS, replace(ROWS[1], source_offset=130, target_offset=95)], 100, source_end=150)
    assert odd.watermark == MARK
    assert "conflict" in (odd.remark or "")
