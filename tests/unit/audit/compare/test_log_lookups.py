"""What a classification asks of the logs: each request answered batch by batch, by one task or by several."""

from __future__ import annotations

import pytest

from drkit.audit.compare import log_lookups
from drkit.audit.compare.log_lookups import (
    FirstEqual,
    KeysBeyond,
    KeysFound,
    MatchedRecords,
    MatchedSegments,
    NewestOfKeys,
    Segment,
    WantedRecord,
    zone_of,
)
from drkit.audit.compare.merge_join import SourceLeft, content_digest
from drkit.audit.compare.offset_zones import Zone
from drkit.kafka.protocol.record_batch import parse
from tests.support.links.batches import batch_bytes

ZONES = (Zone(0, 10, 0, 0, 8), Zone(10, 1000, 5, 10, 1000))
"""Offsets 8 and 9 have no place; from 10 on all is five further."""
WHOLE = (Zone(0, 1000, 0, 0, 1000),)


def batch(first: int, *rows: tuple[int, bytes | None, bytes | None], magic: int = 2):
    """Records of (timestamp, key, value) from an offset on."""
    (found,) = parse(memoryview(batch_bytes([(*row, []) for row in rows], base_offset=first, magic=magic)))
    return found


def plain(first: int, count: int):
    return batch(first, *((100 + first + n, b"key-%d" % (first + n), b"value") for n in range(count)))


def spoilt(found):
    whole = bytearray(found.whole)
    whole[-1] ^= 1
    (other,) = parse(memoryview(bytes(whole)))
    return other


def answered(request, *reads):
    """One task; `reads`: batches with the offsets [first, until) that are read of each."""
    answer = request.new()
    for each, first, until in reads:
        request.add(answer, each, first, until)
    return answer


# -- how matched records lie -----------------------------------------------------------------------


def test_segments_end_at_cuts_of_either_side_and_at_what_is_asked_about():
    request = MatchedSegments([(0, 8), (10, 20)], [3], [17], frozenset({5}), ZONES)
    assert request.ranges((0, 100)) == [(0, 8), (10, 20)]
    answer = answered(request, (plain(0, 10), 0, 8), (plain(10, 10), 10, 20))
    assert sorted(answer.values(), key=lambda each: each.s_lo) == [
        Segment(3, 0, 2, 0, 2),
        Segment(4, 3, 7, 3, 7),  # without 5
        Segment(2, 10, 11, 15, 16),
        Segment(8, 12, 19, 17, 24),
    ]
    other = request.new()
    for part in ((plain(0, 10), 0, 4), (plain(0, 10), 4, 8), (plain(10, 10), 13, 20), (plain(10, 10), 10, 13)):
        request.merge(other, answered(request, part))
    assert other == answer


def test_two_ranges_without_a_cut_between_them_are_two_segments():
    request = MatchedSegments([(0, 4), (4, 8)], [], [], frozenset(), WHOLE)
    answer = answered(request, (plain(0, 8), 0, 4), (plain(0, 8), 4, 8))
    assert sorted(answer.values()) == [Segment(4, 0, 3, 0, 3), Segment(4, 4, 7, 4, 7)]


def test_what_has_no_place_did_not_match():
    request = MatchedSegments([(0, 12)], [], [], frozenset(), ZONES)
    answer = answered(request, (plain(6, 6), 0, 12))
    assert list(answer.values()) == [Segment(4, 6, 11, 6, 16)]
    matched = MatchedRecords(0, [(0, 12)], frozenset({7}), ZONES)
    assert [row.s for row in answered(matched, (plain(6, 6), 0, 12))] == [6, 10, 11]


def test_matched_records_come_whole_and_in_order():
    request = MatchedRecords(7, [(10, 13)], frozenset({11}), ZONES)
    assert request.ranges((0, 100)) == [(10, 13)]
    found = batch(10, (5, b"a", b"x"), (6, b"b", b"y"), (7, b"c", None), (8, b"d", b"z"))
    expected = [
        SourceLeft(7, 10, 15, True, *content_digest(b"a", b"x", 5, None), 5, b"a", False),
        SourceLeft(7, 12, 17, True, *content_digest(b"c", None, 7, None), 7, b"c", True),
    ]
    assert answered(request, (found, 10, 13)) == expected
    merged = request.new()
    request.merge(merged, expected[:1])
    request.merge(merged, expected[1:])
    assert merged == expected


# -- the first equal record ------------------------------------------------------------------------


def wanted(stamp: int, key: bytes | None, value: bytes | None, needle: bytes = b"") -> WantedRecord:
    return WantedRecord(*content_digest(key, value, stamp, None), stamp, needle or value or b"")


LONG, SHORT = b"a value that is long enough", b"short"


def test_the_first_record_that_is_equal_is_found_with_its_place():
    found = batch(20, (5, b"k", LONG), (6, b"k", LONG), (5, b"k", LONG), (5, b"other", LONG))
    request = FirstEqual([wanted(5, b"k", LONG), wanted(9, b"k", LONG)], ZONES)
    digest = content_digest(b"k", LONG, 5, None)
    assert answered(request, (found, 20, 24)) == {digest: (20, 25)}
    assert answered(request, (found, 21, 24)) == {digest: (22, 27)}
    later, earlier = answered(request, (found, 21, 24)), answered(request, (found, 20, 22))
    for one, other in ((later, earlier), (earlier, later)):
        merged = request.new()
        request.merge(merged, one)
        request.merge(merged, other)
        assert merged == {digest: (20, 25)}
    again = answered(request, (found, 21, 24))
    request.add(again, found, 20, 24)
    assert again == {digest: (20, 25)}


@pytest.mark.parametrize("value", [LONG, SHORT, None])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_equal_is_found_however_short_it_is_and_in_every_format(value, magic):
    found = batch(0, (50, b"key", value), magic=magic)
    stamp = -1 if magic == 0 else 50
    request = FirstEqual([wanted(stamp, b"key", value)], WHOLE)
    assert answered(request, (found, 0, 1)) == {content_digest(b"key", value, stamp, None): (0, 0)}


def test_what_is_newer_than_a_batch_is_not_looked_for_in_it_and_hides_nothing_else():
    found = batch(0, (5, b"k", LONG), (7, b"k", SHORT))
    old, as_new, newer = wanted(5, b"k", LONG), wanted(7, b"k", SHORT), wanted(8, b"k", LONG)
    assert answered(FirstEqual([newer], WHOLE), (found, 0, 2)) == {}
    assert len(answered(FirstEqual([newer, old, as_new], WHOLE), (found, 0, 2))) == 2


def test_many_are_looked_for_by_decoding_and_few_by_their_bytes(monkeypatch):
    """By bytes a batch that holds none of them isn't decoded; that is tried here on one whose records hold no needle
    although one is equal, which a needle of a real record can't be."""
    found = batch(0, (5, b"k", LONG))
    misled = [wanted(5, b"k", LONG, needle=b"not in the batch %d" % n) for n in range(4)]
    assert answered(FirstEqual(misled, WHOLE), (found, 0, 1)) == {}
    monkeypatch.setattr(log_lookups, "_MOST_NEEDLES", 4)
    assert answered(FirstEqual(misled, WHOLE), (found, 0, 1)) == {}
    monkeypatch.setattr(log_lookups, "_MOST_NEEDLES", 3)
    assert len(answered(FirstEqual(misled, WHOLE), (found, 0, 1))) == 1
    monkeypatch.setattr(log_lookups, "_MOST_NEEDLES", 100)
    assert answered(FirstEqual([wanted(5, b"k", LONG, needle=b"12345678")], WHOLE), (found, 0, 1)) == {}
    one_is_short = [*misled, wanted(5, b"k", SHORT, needle=b"1234567")]
    assert len(answered(FirstEqual(one_is_short, WHOLE), (found, 0, 1))) == 1


def test_ranges_that_are_older_than_all_that_is_wanted_are_not_read():
    newest = [(0, 10, 4), (10, 20, 5), (20, 30, 6)]
    both = [wanted(6, b"k", LONG), wanted(5, b"k", LONG)]
    assert list(FirstEqual(both, WHOLE, newest).ranges((0, 100))) == [(10, 20), (20, 30)]
    assert list(FirstEqual(both, WHOLE).ranges((3, 100))) == [(3, 100)]


# -- keys ------------------------------------------------------------------------------------------


def test_the_newest_record_of_each_key_and_how_many_there_are():
    request = NewestOfKeys(frozenset({b"a", b"b"}), frozenset({3}))
    assert request.ranges((5, 9)) == [(5, 9)]
    found = batch(0, (1, b"a", b""), (1, b"b", b""), (1, b"c", b""), (1, b"b", b""), (1, None, b""), (1, b"a", b""))
    whole = answered(request, (found, 0, 6))
    assert whole == KeysFound({b"a": 5, b"b": 1}, 6)
    for order in ([0, 1, 2], [2, 0, 1]):
        parts = [answered(request, (found, 0, 2)), answered(request, (found, 2, 5)), answered(request, (found, 5, 6))]
        merged = request.new()
        for number in order:
            request.merge(merged, parts[number])
        assert merged == whole
    again = answered(request, (found, 4, 6), (found, 0, 1))
    assert again == KeysFound({b"a": 5}, 3)


def test_which_keys_came_later():
    request = KeysBeyond(frozenset({b"a", b"b"}), 10, of_target=True)
    assert list(request.ranges((10, 14))) == [(10, 14)]
    assert list(request.ranges((10, 10))) == []
    assert answered(request, (batch(10, (1, b"a", b""), (1, None, b""), (1, b"c", b"")), 10, 13)) == {b"a"}
    merged = {b"a"}
    request.merge(merged, {b"b"})
    assert merged == {b"a", b"b"}


# -- in common -------------------------------------------------------------------------------------


def test_a_batch_that_can_t_be_read_says_nothing():
    found = spoilt(batch(0, (5, b"key", LONG)))
    assert answered(MatchedSegments([(0, 1)], [], [], frozenset(), WHOLE), (found, 0, 1)) == {}
    assert answered(FirstEqual([wanted(5, b"key", SHORT)], WHOLE), (found, 0, 1)) == {}
    assert answered(NewestOfKeys(frozenset({b"key"}), frozenset()), (found, 0, 1)) == KeysFound()
    assert answered(KeysBeyond(frozenset({b"key"}), 0, of_target=False), (found, 0, 1)) == set()
    assert answered(MatchedRecords(0, [(0, 1)], frozenset(), WHOLE), (found, 0, 1)) == []


def test_which_side_is_asked_and_where():
    zones = WHOLE
    begun = [
        MatchedSegments([], [], [], frozenset(), zones),
        FirstEqual([], zones),
        MatchedRecords(0, [], frozenset(), zones),
        NewestOfKeys(frozenset(), frozenset()),
    ]
    assert [(each.of_target, each.beyond) for each in begun] == [(False, None)] * 4
    assert NewestOfKeys(frozenset(), frozenset(), of_target=True).of_target
    since = KeysBeyond(frozenset(), 17, of_target=True)
    assert (since.of_target, since.beyond) == (True, 17)


def test_the_zone_of_an_offset():
    zones = (Zone(0, 10, 0, 0, 10), Zone(10, 12, 1, 10, 12), Zone(12, 1000, 2, 12, 1000))
    assert [zone_of(zones, offset).delta for offset in (0, 9, 10, 11, 12, 999)] == [0, 0, 1, 1, 2, 2]
    assert zone_of(WHOLE, 5) is WHOLE[0]
