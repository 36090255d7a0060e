"""What a target's log start has left behind, by mapping rows; and what of it an operator has accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.mapping.target_start import missing_until, not_accepted, purge_problem
from drkit.model.link_state import TARGET_PURGED
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId
from drkit.store import open_store
from drkit.store.api import Store

LINK = LinkId("primary", "dr")
AT = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
MARK = Watermark(
    "t", 0, 1, source_through=40, target_end=33, source_start=0, source_end=40, target_start=0, observed_at=AT
)
ROWS = ((10, 4), (17, 8), (24, 16))
"""Source 10 to 13 at 4, a hole, 17 to 22 at 8, two markers of the target's own at 14, 24 and on at 16."""


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("sqlite:///:memory:")
    store.append_mappings(LINK, [OffsetMapping("t", 0, 1, *row) for row in ROWS])
    store.append_mappings(LINK, [OffsetMapping("t", 0, 2, 0, 33)])
    yield store
    store.close()


@pytest.mark.parametrize(
    ("target_start", "until"),
    [(5, 11), (7, 13), (8, 17), (9, 18), (14, 23), (15, 24), (16, 24), (17, 25), (33, 40)],
)
def test_what_was_mirrored_below_the_target_start_is_missing(store, target_start, until):
    assert missing_until(store, LINK, replace(MARK, target_start=target_start)) == until


@pytest.mark.parametrize("target_start", [0, 3, 4])
def test_below_the_first_row_nothing_was_mirrored(store, target_start):
    assert missing_until(store, LINK, replace(MARK, target_start=target_start)) == 10


def test_a_single_record_at_the_targets_very_start_is_missing_once_it_is_gone(store):
    store.append_mappings(LINK, [OffsetMapping("t", 0, 4, 0, 0)])
    assert [missing_until(store, LINK, replace(MARK, epoch=4, target_start=start)) for start in (0, 1, 2)] == [0, 1, 2]


def test_what_an_earlier_topic_of_the_name_left_is_not_of_this_one(store):
    mark = replace(MARK, epoch=2, source_through=5, target_end=38)
    assert missing_until(store, LINK, replace(mark, target_start=20)) == 0
    assert missing_until(store, LINK, replace(mark, target_start=35)) == 2


def test_a_target_that_is_being_aligned_has_lost_nothing(store):
    mark = replace(MARK, source_through=10, target_end=3)
    assert missing_until(store, LINK, replace(mark, target_start=3)) == 10


def test_where_no_row_is_kept_nothing_is_known(store):
    assert missing_until(store, LINK, replace(MARK, epoch=3, target_start=5)) == 0


@pytest.mark.parametrize(
    ("begin", "until", "left"),
    [
        (0, 40, (0, 40)),
        (3, 40, (5, 40)),
        (4, 20, (5, 10)),
        (12, 20, None),
        (12, 25, (20, 25)),
        (0, 18, (0, 10)),
        (5, 10, (5, 10)),
        (3, 5, None),
    ],
)
def test_what_was_not_accepted_is_told_from_its_first_to_its_last(begin, until, left):
    assert not_accepted(begin, until, ((3, 5), (10, 20))) == left


def test_the_problem_names_what_was_removed_and_both_ways_on():
    found = purge_problem(LINK, replace(MARK, target_start=9), "t.copy", 12, 18, AT)
    assert (found.kind, found.topic, found.partition, found.since) == (TARGET_PURGED, "t", 0, AT)
    assert (found.unsure_from, found.unsure_until) == (12, 18), "its positions are doubted"
    assert not found.halted, "the mirror continues"
    assert found.reason.startswith(
        "t.copy:0 on dr begins at 9: source offsets 12 to 17 (up to 6 records) were removed there"
    )
    assert "drkit link resume 'primary->dr' --topic t --accept-recreated" in found.remedy
    assert found.remedy.endswith("`drkit link acknowledge 'primary->dr' target_purged --topic t`")
