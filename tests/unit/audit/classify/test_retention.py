"""Which residuals a side's own compaction explains, one condition after the other."""

from __future__ import annotations

import pytest

from drkit.audit.classify.compaction import (
    CompactedResiduals,
    PlaceOwners,
    compacted_on_source,
    compacted_on_target,
    highest_of_keys,
)
from drkit.audit.classify.ordering import AdjacentLines, MatchedLine
from drkit.audit.compare.merge_join import SourceLeft, TargetLeft
from drkit.audit.compare.offset_zones import Zone

LOG = (0, 100)
BEFORE, AFTER = MatchedLine(0, 9, 0, 9, 0, 10, moved=False), MatchedLine(20, 29, 20, 29, 0, 10, moved=False)
GAP = AdjacentLines(BEFORE, AFTER)
"""Offsets 10 to 19 on either side, between two lines that stand at their places."""
SHORTER = AdjacentLines(BEFORE, MatchedLine(20, 29, 19, 28, -1, 10, moved=False))
"""The same, a place narrower on the target."""
FURTHER = AdjacentLines(MatchedLine(0, 9, 2, 11, 2, 10, moved=False), MatchedLine(20, 29, 22, 31, 2, 10, moved=False))
"""The same, two places further on the target."""
K, OTHER = b"k", b"other"
NOTHING = CompactedResiduals(set(), set())


def of_source(s: int, key: bytes | None = K, *, null: bool = False, placed: bool = True) -> SourceLeft:
    return SourceLeft(0, s, s, placed, 1, 2, 0, key, null)


def of_target(t: int, key: bytes | None = K, *, null: bool = False) -> TargetLeft:
    return TargetLeft(0, t, 1, 2, 0, key, null, b"")


def explained_on_target(
    *rows: SourceLeft, beside=GAP, newest=None, strangers=None, since=(), occupied=(), log=LOG, unrecorded=()
) -> CompactedResiduals:
    missing = [(row, beside) for row in rows]
    beyond = [(row, beside) for row in unrecorded]
    return compacted_on_target(missing, newest or {}, strangers or {}, since, occupied, log, unrecorded=beyond)


def on_target(*rows: SourceLeft, **given) -> set[int]:
    found = explained_on_target(*rows, **given)
    assert not found.perhaps
    return found.taken


@pytest.mark.parametrize(
    ("known", "explained"),
    [
        ({}, False),
        ({"newest": {K: 16}}, True),
        ({"newest": {K: 15}}, False),
        ({"newest": {OTHER: 16}}, False),
        ({"strangers": {K: 16}}, True),
        ({"strangers": {K: 15}}, False),
        ({"since": {K}}, True),
        ({"since": {OTHER}}, False),
    ],
)
def test_a_later_record_of_its_key_explains_one_that_the_target_lacks(known, explained):
    assert on_target(of_source(15), **known) == ({15} if explained else set())


def test_without_a_key_or_where_it_was_the_tombstone_itself_no_later_one_is_needed():
    assert on_target(of_source(15, None)) == {15}
    assert on_target(of_source(15, null=True)) == {15}


def test_tombstones_go_and_what_is_older_of_their_keys_but_nothing_newer():
    rows = [of_source(14), of_source(15, null=True), of_source(16), of_source(17, OTHER)]
    assert on_target(*rows) == {14, 15}
    assert on_target(*rows, newest={K: 3}) == set(), "something of the key, as old, is left"
    assert on_target(*rows, strangers={K: 3}) == set()


def test_what_only_a_tombstone_would_explain_that_nothing_shows_to_have_been_copied_isnt_known():
    beyond = of_source(15, null=True)
    assert explained_on_target(of_source(14), unrecorded=[beyond]) == CompactedResiduals(set(), {14})
    assert explained_on_target(of_source(16), unrecorded=[beyond]) == NOTHING, "it is newer"
    assert explained_on_target(of_source(14, OTHER), unrecorded=[beyond]) == NOTHING
    for shown in ({"newest": {K: 3}}, {"strangers": {K: 3}}):
        assert explained_on_target(of_source(14), unrecorded=[beyond], **shown) == NOTHING, shown
    assert explained_on_target(of_source(14), unrecorded=[beyond], since={K}) == CompactedResiduals({14}, set())
    for nowhere in ({"occupied": {15}}, {"log": (0, 15)}):
        assert explained_on_target(of_source(14), unrecorded=[beyond], **nowhere) == NOTHING, nowhere
    never = of_source(15, null=True, placed=False)
    assert explained_on_target(of_source(14), unrecorded=[never]) == NOTHING


def test_what_isnt_known_gets_the_empty_places_that_are_left():
    rows, beyond = [of_source(18), of_source(19, None)], [of_source(19, null=True)]
    assert explained_on_target(*rows, beside=SHORTER, unrecorded=beyond) == CompactedResiduals({19}, {18})
    assert explained_on_target(*rows, beside=SHORTER, unrecorded=beyond, occupied={17}) == CompactedResiduals(
        {19}, set()
    )


@pytest.mark.parametrize(
    ("where", "explained"),
    [
        ({"log": (15, 16)}, True),
        ({"log": (16, 100)}, False),
        ({"log": (0, 15)}, False),
        ({"occupied": {14, 16}}, True),
        ({"occupied": {15}}, False),
    ],
)
def test_only_an_empty_place_within_the_log_explains(where, explained):
    assert on_target(of_source(15, None), **where) == ({15} if explained else set())
    assert on_target(of_source(15, None, placed=False)) == set(), "it never had one"


def test_each_empty_place_explains_one_record_the_first_ones():
    rows = [of_source(19, None), of_source(18, None)]
    assert on_target(*rows, beside=SHORTER) == {18, 19}, "17 and 18 are empty; 19 is the next line's"
    assert on_target(*rows, beside=SHORTER, occupied={17}) == {18}
    assert on_target(*rows, beside=SHORTER, occupied={18}) == {18}
    assert on_target(*rows, beside=SHORTER, occupied={17, 18}) == set()


def test_a_place_that_a_record_around_it_has_is_not_empty():
    """By what is after it the record stood where the last one before it stands."""
    assert on_target(of_source(10, None), beside=SHORTER) == {10}
    assert on_target(of_source(10, None), beside=SHORTER, occupied={10}) == set()


def test_where_the_records_around_it_are_displaced_its_place_is_there():
    assert on_target(of_source(15, None), beside=FURTHER, occupied={13, 15}) == {15}
    assert on_target(of_source(15, None), beside=FURTHER, occupied={17}) == set()
    assert on_target(of_source(15), beside=FURTHER, strangers={K: 18}) == {15}
    assert on_target(of_source(15), beside=FURTHER, strangers={K: 17}) == set()
    assert on_target(of_source(18), beside=SHORTER, strangers={K: 18}) == set(), "18 or 17 is its place"
    beyond = [of_source(16, null=True)]
    assert explained_on_target(of_source(15), beside=FURTHER, unrecorded=beyond, occupied={14}).perhaps == {15}
    assert explained_on_target(of_source(15), beside=FURTHER, unrecorded=beyond, occupied={18}).perhaps == set()


def test_one_that_never_had_a_place_hides_no_other():
    assert on_target(of_source(14, None, placed=False), of_source(15, None)) == {15}


def on_source(*rows: TargetLeft, newest=None, delta: int = 0, beside=GAP, **more):
    zones = [Zone(0, 100, delta, 0, 100)]
    given = {"occupied": (), "log": LOG} | more
    return compacted_on_source([(row, beside) for row in rows], newest or {}, zones, **given)


@pytest.mark.parametrize(
    ("row", "more", "explained"),
    [
        (of_target(15), {}, False),
        (of_target(15), {"newest": {K: 16}}, True),
        (of_target(15), {"newest": {K: 15}}, False),
        (of_target(15), {"newest": {OTHER: 16}}, False),
        (of_target(15), {"aborted": True}, True),
        (of_target(15, None), {}, True),
        (of_target(15, null=True), {}, True),
        (of_target(15, None), {"occupied": {15}}, False),
        (of_target(15, None), {"log": (0, 15)}, False),
        (of_target(17), {"newest": {K: 16}, "delta": 2}, True),
        (of_target(17), {"newest": {K: 15}, "delta": 2}, False),
    ],
)
def test_what_explains_a_record_that_only_the_target_has(row, more, explained):
    assert on_source(row, **more) == ({row.t} if explained else set())


def test_a_tombstone_that_only_the_target_has_explains_what_is_older_of_its_key():
    rows = [of_target(14), of_target(15, null=True), of_target(16), of_target(13, OTHER)]
    assert on_source(*rows) == {14, 15}


def test_only_tombstones_explain_what_is_older_and_displaced_ones_stand_for_earlier_offsets():
    assert on_source(of_target(14), of_target(16)) == set()
    assert on_source(of_target(17), newest={K: 16}, beside=FURTHER) == {17}
    assert on_source(of_target(17), newest={K: 15}, beside=FURTHER) == set()


def test_a_target_record_stood_where_what_is_before_it_says_or_else_what_is_after():
    """15 by what is before it, 13 by what is after."""
    apart = AdjacentLines(BEFORE, MatchedLine(20, 29, 22, 31, 2, 10, moved=False))
    assert on_source(of_target(15, None), beside=apart, occupied={15}) == {15}
    assert on_source(of_target(15, None), beside=apart, occupied={13, 15}) == set()
    assert on_source(of_target(15), beside=apart, newest={K: 14}) == set()
    assert on_source(of_target(15), beside=apart, newest={K: 16}) == {15}
    later = [Zone(10, 100, 0, 10, 100)]  # 11 is 9 by what is before it, where the mapping has no place
    nobody_s = AdjacentLines(MatchedLine(0, 7, 2, 9, 2, 8, moved=False), AFTER)
    found = compacted_on_source([(of_target(11), nobody_s)], {K: 12}, later, (), LOG)
    assert found == {11}


def test_whose_place_a_target_offset_is():
    places = PlaceOwners([Zone(0, 10, 0, 0, 8), Zone(10, 12, -3, 12, 12), Zone(12, 20, 5, 12, 20)])
    found = {at: places.source_of(at) for at in (-1, 0, 7, 8, 9, 16, 17, 24, 25)}
    assert found == {-1: None, 0: 0, 7: 7, 8: None, 9: None, 16: None, 17: 12, 24: 19, 25: None}


def test_the_highest_offset_of_each_key():
    assert highest_of_keys([(K, 1), (OTHER, 5), (K, 3), (None, 9), (K, 2)]) == {K: 3, OTHER: 5}
