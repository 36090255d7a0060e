"""What is known of a partition beside its records decides what happened to a residual: log starts, a sealed link,
ranges that can't be read or compared, how far the mirror was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.audit.classify.classifier import classify, holds
from drkit.audit.classify.ordering import MatchedLine
from drkit.audit.compare.log_lookups import FirstEqual, KeysBeyond, MatchedSegments, NewestOfKeys
from tests.support.audits.audit_in_memory import InMemory, Log
from tests.support.audits.damage import STAMP, Record

STRANGER = Record(b"stranger", b"nobody's", STAMP)


def written(count: int) -> list[Record]:
    return [Record(b"k%d" % n, b"value %d" % n, STAMP + n) for n in range(count)]


def identity(count: int) -> dict[int, int]:
    return {n: n for n in range(count)}


def log(records: dict[int, Record], *, start: int = 0, size: int = 5) -> Log:
    """Records at their offsets, in batches without holes."""
    made = Log(start=start)
    for offset, record in sorted(records.items()):
        row = (record.stamp, record.key, record.value, [])
        if made.batches and made.end == offset and len(made.batches[-1][1]) < size:
            made.batches[-1][1].append(row)
        else:
            made.batches.append((offset, [row]))
    return made


def by_offset(records: list[Record], *, first: int = 0) -> dict[int, Record]:
    return dict(enumerate(records, first))


def outcomes(logs: InMemory) -> set[tuple[str, int | None, int | None]]:
    """Every residual's, findings or not."""
    result, _ = logs.classified()
    return {(str(each.outcome), each.s, each.t) for each in result.classifications}


# -- log starts ------------------------------------------------------------------------------------


def test_what_stands_for_records_before_the_source_s_start_was_retired_there():
    made = by_offset(written(20))
    source = log({n: each for n, each in made.items() if n >= 5}, start=5)
    there = made | {20: STRANGER}
    logs = InMemory(source, log(there), identity(20), through=20)
    assert outcomes(logs) == {*(("source_retired", None, n) for n in range(5)), ("foreign", None, 20)}


def test_what_stands_before_the_first_place_is_foreign_also_where_the_source_begins_later():
    """The mirror began at target offset 3: what was there before is from no record of the source."""
    made = by_offset(written(20))
    source = log({n: each for n, each in made.items() if n >= 5}, start=5)
    target = log({0: STRANGER, 1: replace(STRANGER, value=b"2"), 2: replace(STRANGER, value=b"3")}
                 | {n + 3: each for n, each in made.items()})  # fmt: skip
    logs = InMemory(source, target, {n: n + 3 for n in range(20)}, through=20)
    assert outcomes(logs) == {
        *(("foreign", None, n) for n in range(3)),
        *(("source_retired", None, n) for n in range(3, 8)),
    }


def test_a_source_without_a_start_has_retired_nothing():
    made = by_offset(written(20))
    source = log({n: each for n, each in made.items() if n >= 5}, start=0)
    assert {kind for kind, *_ in outcomes(InMemory(source, log(made), identity(20), through=20))} == {"foreign"}


def test_what_stands_behind_a_record_of_the_source_is_not_from_before_its_start():
    """Two records were written after one that the source still has: retention took nothing of it between them."""
    made = by_offset(written(20))
    source = {n: each for n, each in made.items() if n >= 8}
    target = {n: each for n, each in made.items() if n != 8} | {3: made[8]}
    found = outcomes(InMemory(log(source, start=8), log(target), identity(20), through=20))
    assert found == {*(("source_retired", None, n) for n in range(3)), *(("foreign", None, n) for n in range(4, 8))}


def test_what_an_earlier_topic_of_the_name_left_is_no_finding():
    made = by_offset(written(10), first=5)
    target = log(by_offset([replace(STRANGER, value=b"%d" % n) for n in range(5)]) | made)
    places = {n: n for n in range(5, 15)}
    logs = InMemory(log(made), target, places, through=15, known={"earlier_until": 3})
    assert outcomes(logs) == {
        *(("source_retired", None, n) for n in range(3)),
        *(("foreign", None, n) for n in range(3, 5)),
    }


def accepted_anew(count: int, mirrored: int) -> InMemory:
    """A topic that was accepted as a new one: the former copy is whole, of the new one so many records are there."""
    made = by_offset(written(count))
    target = made | {count + n: made[n] for n in range(mirrored)}
    places = {n: count + n for n in range(count)}
    return InMemory(log(made), log(target), places, through=mirrored, known={"earlier_until": count})


@pytest.mark.parametrize("count", [35, 350])  # 64 records and more are paired as they are read in tasks
def test_a_former_copy_stands_for_nothing_while_a_topic_is_mirrored_anew(count: int):
    half = count // 5
    logs = accepted_anew(count, half)
    found, findings = logs.classified()
    assert findings == {("unseen", n, None) for n in range(half, count)}
    assert (found.through, found.pairs) == (half, [])
    assert {each.t for each in found.classifications if each.outcome == "source_retired"} == set(range(count))
    assert logs.in_a_task() == ({"unseen": count - half, "source_retired": count, "facts": 1}, findings)


def test_what_is_lost_of_a_new_copy_is_not_found_in_the_former_one():
    logs = accepted_anew(20, 10)
    made = written(20)
    logs.target = log(by_offset(made) | {20 + n: made[n] for n in range(10) if n != 4})
    _, findings = logs.classified()
    assert findings == {("lost", 4, None), *(("unseen", n, None) for n in range(10, 20))}


def test_records_whose_place_is_before_the_target_s_start_were_retired_there_unless_somebody_purged_them():
    made = by_offset(written(20))
    target = log({n: each for n, each in made.items() if n > 6}, start=6)
    logs = InMemory(log(made), target, identity(20), through=20)
    assert outcomes(logs) == {*(("target_retired", n, None) for n in range(6)), ("lost", 6, None)}
    logs.known = {"purged": ((2, 4),)}
    assert outcomes(logs) == {
        *(("target_retired", n, None) for n in (0, 1, 4, 5)),
        *(("lost", n, None) for n in (2, 3, 6)),
    }


def test_a_target_that_begins_one_later_has_retired_one():
    made = by_offset(written(20))
    target = log({n: each for n, each in made.items() if n >= 1}, start=1)
    assert outcomes(InMemory(log(made), target, identity(20), through=20)) == {("target_retired", 0, None)}


def test_a_record_that_never_had_a_place_was_not_retired_by_a_target_that_has_its_start():
    """The mapping begins at the source's third record."""
    made = by_offset(written(20))
    places = {n: n - 2 for n in range(2, 20)}
    target = log({places[n]: made[n] for n in places})
    assert outcomes(InMemory(log(made), target, places, through=20)) == {("lost", 0, None), ("lost", 1, None)}


def test_a_target_without_a_start_has_retired_nothing():
    made = by_offset(written(20))
    target = log({n: each for n, each in made.items() if n >= 6}, start=0)
    assert {kind for kind, *_ in outcomes(InMemory(log(made), target, identity(20), through=20))} == {"lost"}


def test_without_a_mapping_places_before_the_head_follow_what_matched_after_it():
    """Both logs begin late and nothing is recorded: laid side by side at their starts, all is displaced by two."""
    made = by_offset(written(40))
    source = log({n: each for n, each in made.items() if n >= 10}, start=10)
    target = log({n: each for n, each in made.items() if n >= 12}, start=12)
    logs = InMemory(source, target, {}, through=40)
    assert outcomes(logs) == {("target_retired", 10, None), ("target_retired", 11, None)}


# -- what can't be read or compared ----------------------------------------------------------------


def test_a_record_whose_place_can_t_be_read_is_unreadable_and_not_lost():
    made = by_offset(written(20))
    target = log({n: each for n, each in made.items() if n not in {3, 4, 9}})
    logs = InMemory(log(made), target, identity(20), through=20, known={"unreadable": ((3, 5), (7, 8))})
    assert outcomes(logs) == {("unreadable", 3, 3), ("unreadable", 4, 4), ("lost", 9, None)}


def test_a_record_without_a_place_of_its_own_is_not_unreadable():
    made = by_offset(written(20))
    target = log({n: each for n, each in made.items() if n < 10} | {n - 2: made[n] for n in range(12, 20)})
    places = {n: n for n in range(10)} | {n: n - 2 for n in range(12, 20)}
    logs = InMemory(log(made), target, places, through=20, known={"unreadable": ((9, 10),)})
    assert outcomes(logs) == {("lost", 10, None), ("lost", 11, None)}


def test_what_stands_where_the_source_can_t_be_read_is_not_compared():
    made = by_offset(written(20))
    there = made | {5: STRANGER, 6: made[12], 8: replace(STRANGER, value=b"8")}
    source = {n: each for n, each in made.items() if n not in {5, 6, 8}}
    logs = InMemory(log(source), log(there), identity(20), through=20, known={"uncompared": ((5, 7),)})
    assert outcomes(logs) == {("uncompared", None, 5), ("uncompared", None, 6), ("foreign", None, 8)}


def test_ranges_hold_their_first_offset_and_not_their_end():
    ranges = [(3, 5), (8, 9)]
    assert [offset for offset in range(12) if holds(ranges, offset)] == [3, 4, 8]
    assert not holds([], 3)


# -- a sealed link ---------------------------------------------------------------------------------


def test_beyond_what_a_sealed_link_mirrored_all_is_the_target_s_own():
    made = written(10)
    target = Log.of([*made[:8], STRANGER, made[2]], 5)
    logs = InMemory(Log.of(made, 5), target, identity(10), through=8, sealed_at=9)
    assert outcomes(logs) == {
        ("foreign", None, 8),
        ("target_appended", None, 9),
        ("unseen", 8, None),
        ("unseen", 9, None),
    }


def test_whether_an_offset_is_beyond_a_sealed_link():
    base = InMemory(Log.of(written(3), 5), Log.of(written(3), 5), identity(3))
    limits = base.limits(base.compared(1, full=False))
    assert not limits.appended(10**9)
    assert [replace(limits, bound=5).appended(t) for t in (4, 5, 6)] == [False, True, True]


# -- how far the mirror was ------------------------------------------------------------------------


def test_what_the_mirror_had_not_reached_can_t_be_corrupted():
    made = by_offset(written(20))
    there = {n: each for n, each in made.items() if n < 12} | {12: STRANGER, 13: replace(STRANGER, value=b"13")}
    logs = InMemory(log(made), log(there), identity(20), through=13)
    assert outcomes(logs) == {
        ("corrupted", 12, 12),
        ("foreign", None, 13),
        *(("unseen", n, None) for n in range(13, 20)),
    }


def test_where_nothing_is_recorded_it_may_have_reached_whatever_stands_there():
    made = by_offset(written(20))
    there = {n: each for n, each in made.items() if n < 12} | {12: STRANGER, 14: replace(STRANGER, value=b"14")}
    logs = InMemory(log(made), log(there), identity(20))
    assert outcomes(logs) == {
        ("corrupted", 12, 12),
        ("lost", 13, None),
        ("corrupted", 14, 14),
        *(("unseen", n, None) for n in range(15, 20)),
    }
    assert logs.classified()[0].through == 15


def test_where_nothing_matched_at_all_nothing_can_be_said_to_be_corrupted():
    made, there = written(5), [replace(STRANGER, value=b"%d" % n) for n in range(5)]
    logs = InMemory(Log.of(made, 5), Log.of(there, 5), identity(5))
    assert outcomes(logs) == {*(("unseen", n, None) for n in range(5)), *(("foreign", None, n) for n in range(5))}
    assert logs.classified()[0].through is None


@pytest.mark.parametrize(("there", "through"), [(0, 1), (1, 2)])
def test_a_record_found_elsewhere_shows_how_far_the_mirror_was(there, through):
    made = written(4)
    logs = InMemory(Log.of(made, 4), log({9: made[there]}), identity(4))
    result, _ = logs.classified()
    assert [(pair.p, pair.s, pair.t, pair.stamp) for pair in result.pairs] == [(0, there, 9, STAMP + there)]
    assert result.through == through


def test_a_record_found_elsewhere_takes_nothing_off_what_was_recorded():
    made = written(10)
    result, _ = InMemory(Log.of(made, 5), log({19: made[3]}), identity(10), through=8).classified()
    assert result.through == 8


def test_where_nothing_matched_a_compacted_source_explains_nothing():
    """No mapping tells places and nothing matched: that the source's first offset is empty says nothing."""
    source, keyless = log({1: written(2)[1]}), Record(None, b"nobody's", STAMP)
    logs = InMemory(source, log({0: keyless}), {}, source_compacted=True)
    assert outcomes(logs) == {("unseen", 1, None), ("foreign", None, 0)}


def test_a_log_that_is_as_it_was_compared_is_not_asked_about_on_the_other_side():
    made = {n: Record(b"k%d" % (n % 3), b"%d" % n, STAMP + n) for n in range(12)}
    short = {n: each for n, each in made.items() if n not in {1, 11}}
    for compacted in ("source", "target"):
        sides = (log(short), log(made)) if compacted == "source" else (log(made), log(short))
        logs = InMemory(*sides, identity(12), through=12, **{f"{compacted}_compacted": True})
        kind = {"source": "foreign", "target": "lost"}[compacted]
        assert [each[0] for each in sorted(outcomes(logs))] == sorted([kind, f"{compacted}_retired"])
        asked = [each for each in logs.requests if isinstance(each, NewestOfKeys | KeysBeyond)]
        assert [(type(each), each.of_target) for each in asked] == [
            (NewestOfKeys, False),
            (KeysBeyond, compacted == "target"),
        ]


# -- order around what moved -----------------------------------------------------------------------


def moved_past(group: int, *, delta: int = 0) -> InMemory:
    """The records from 16 on, `group` of them, stand behind 32 matched ones on the target, which stayed."""
    made = written(200)
    group_at, stayed = range(16, 16 + group), range(48, 80)
    source = {n: made[n] for n in (*range(8), *group_at, *stayed)}
    target = {n + delta: made[n] for n in (*range(8), *stayed)} | {n + 80 + delta: made[n] for n in group_at}
    return InMemory(log(source), log(target), {n: n + delta for n in range(100)}, through=100)


@pytest.mark.parametrize("delta", [0, 32])
@pytest.mark.parametrize(("group", "aside"), [(20, range(16, 36)), (31, range(16, 47)), (33, range(48, 80))])
def test_of_records_that_changed_places_with_others_the_fewer_are_out_of_order(group, aside, delta):
    if group == 33:  # more than fit between: the group begins earlier
        made = written(200)
        there = {n + delta: made[n] for n in range(48, 80)} | {n + 80 + delta: made[n] for n in range(10, 43)}
        source = {n: made[n] for n in (*range(10, 43), *range(48, 80))}
        logs = InMemory(log(source), log(there), {n: n + delta for n in range(100)}, through=100)
    else:
        logs = moved_past(group, delta=delta)
    assert {s for kind, s, _ in logs.classified()[1] if kind == "reordered"} == set(aside)


def test_only_chunks_that_a_residual_stands_in_are_looked_at_once_more():
    """Chunks have 16 target offsets. One record moved from the first to the third; of the second one is lost."""
    made = written(64)
    source, target = by_offset(made), by_offset(made)
    del source[40], target[4], target[20]
    target[40] = made[4]
    logs = InMemory(log(source), log(target), identity(64), through=64)
    result, found = logs.classified()
    assert found == {("reordered", 4, 40), ("lost", 20, None)}
    (asked,) = [each for each in logs.requests if isinstance(each, MatchedSegments)]
    assert list(asked.within) == [(0, 16), (32, 48)]
    assert (list(asked.source_cuts), list(asked.target_cuts), asked.unmatched) == ([4], [40], {4})
    assert (result.exact, result.aside) == (True, ())


@pytest.mark.parametrize("group", [5, 20])
def test_ranges_of_a_chunk_that_were_matched_in_parts_count_as_one(group):
    logs = moved_past(group)
    found = logs.compared(1, full=False)
    halves = []
    for each in found.stretches:
        if each.n < 16:
            halves.append(each)
            continue
        halves.append(each._replace(n=10, s_hi=each.s_lo + 9, t_hi=each.t_lo + 9))
        halves.append(each._replace(n=6, s_lo=each.s_lo + 10, t_lo=each.t_lo + 10))
    for stretches in (halves, halves[::-1]):
        result = logs.driven(classify(logs.limits(found), found.source_left, found.target_left, stretches))
        whole = logs.driven(classify(logs.limits(found), found.source_left, found.target_left, found.stretches))
        assert len(stretches) == len(found.stretches) + 2
        assert (result.aside, result.classifications) == (whole.aside, whole.classifications)


def test_lines_set_aside_are_where_they_matched():
    made = written(200)
    there = {n: made[n] for n in range(48, 64)} | {n + 80: made[n] for n in range(10, 43)}
    source = {n: made[n] for n in (*range(10, 43), *range(48, 64))}
    logs = InMemory(log(source), log(there), identity(100), through=100)
    found = logs.compared(1, full=False)
    (stretch,) = found.stretches
    parts = [
        stretch._replace(n=9, s_hi=56, t_hi=56),
        stretch._replace(n=4, s_lo=57, s_hi=60, t_lo=57, t_hi=60),
        stretch._replace(n=3, s_lo=61, t_lo=61),
    ]
    for stretches in ([stretch], parts, parts[::-1]):
        result = logs.driven(classify(logs.limits(found), found.source_left, found.target_left, stretches))
        assert result.aside == (MatchedLine(48, 63, 48, 63, 0, 16, moved=False),)


@pytest.mark.parametrize("place", [4, 6])
def test_what_stands_where_the_records_around_a_lost_one_say_is_it_altered(place):
    """Records from 5 on are two further; the place of 4 is 4 by what is before it, and 6 by what is after."""
    made = by_offset(written(20))
    target = {n: made[n] for n in range(4)} | {place: STRANGER} | {n + 2: made[n] for n in range(5, 20)}
    found = InMemory(log(made), log(target), identity(22), through=20).classified()[1]
    assert found == {("corrupted", 4, place)}


def test_where_two_may_be_the_altered_record_it_is_the_one_that_what_is_before_says():
    made = by_offset(written(20))
    others = {4: STRANGER, 6: replace(STRANGER, value=b"6")}
    target = {n: made[n] for n in range(4)} | others | {n + 2: made[n] for n in range(5, 20)}
    found = InMemory(log(made), log(target), identity(22), through=20).classified()[1]
    assert found == {("corrupted", 4, 4), ("foreign", None, 6)}


@pytest.mark.parametrize(
    ("at", "shifted"),
    [(10, range(8, 13)), (12, range(8, 13)), (8, range(8, 13))],
    ids=["within", "only what is before says", "only what is after says"],
)
def test_of_equal_records_first_those_are_one_that_stand_where_the_records_around_them_say(at, shifted):
    """Two equal records, at 2 and `at`. The first was written late; the other one moved with those around it."""
    equal = Record(b"the", b"same", STAMP)
    source = by_offset(written(13)) | {2: equal, at: equal}
    target = {n: each for n, each in source.items() if n != 2 and n not in shifted}
    target |= {n + 20: source[n] for n in shifted} | {60: equal}
    result, _ = InMemory(log(source), log(target), identity(70), through=70).classified()
    assert {(pair.s, pair.t) for pair in result.pairs} == {(2, 60), *((n, n + 20) for n in shifted)}


# -- compaction ------------------------------------------------------------------------------------


def test_what_others_wrote_behind_a_sealed_link_explains_what_the_target_lacks():
    made = by_offset(written(10))
    target = {n: each for n, each in made.items() if n != 3} | {10: Record(b"k3", b"newer", STAMP)}
    logs = InMemory(log(made), log(target), identity(10), through=10, target_compacted=True, sealed_at=10)
    assert outcomes(logs) == {("target_retired", 3, None), ("target_appended", None, 10)}


def test_only_a_tombstone_above_what_was_mirrored_may_have_taken_a_record_with_it():
    for value, outcome in ((None, "target_unproven"), (b"newer", "lost")):
        made = by_offset(written(10)) | {8: Record(b"k3", value, STAMP)}
        target = {n: made[n] for n in range(8) if n != 3} | {9: made[9]}
        logs = InMemory(log(made), log(target), identity(10), through=8, target_compacted=True)
        logs.known = {"through": 8}
        assert {(kind, s) for kind, s, _ in outcomes(logs)} == {(outcome, 3), ("unseen", 8)}


def test_a_tombstone_whose_place_is_behind_a_sealed_link_by_the_records_around_it_explains_nothing():
    """All is two further on the target, so the tombstone's place is the first of those that others wrote to."""
    made = by_offset(written(6)) | {6: Record(b"k1", None, STAMP)}
    target = {0: STRANGER, 1: replace(STRANGER, value=b"1"), 9: replace(STRANGER, key=b"x")}
    target |= {n + 2: made[n] for n in range(6) if n != 1}
    for sealed_at, outcome in ((8, "lost"), (9, "target_unproven")):
        logs = InMemory(log(made), log(target), identity(7), through=6, target_compacted=True, sealed_at=sealed_at)
        assert (outcome, 1, None) in outcomes(logs)


# -- copies ----------------------------------------------------------------------------------------


def test_equals_are_looked_for_among_what_is_on_both_sides():
    """What neither matched nor was paired has no equal on the target, or it would have been paired with it."""
    made = written(64)
    there = by_offset(made[:62]) | {64: made[20], 65: made[62]}
    source = {n: each for n, each in by_offset(made).items() if n < 63}
    logs = InMemory(log(source), log(there), identity(66), through=66)
    found = logs.classified()[1]
    assert ("duplicated", 20, 64) in found
    (asked,) = [each for each in logs.requests if isinstance(each, FirstEqual)]
    assert asked.newest is not None
    held = {offset for first, until, _ in asked.newest for offset in range(first, until)}
    assert held == set(source)
    logs.known = {"partial": True}
    logs.requests.clear()
    assert ("duplicated", 20, 64) in logs.classified()[1]
    assert [each.newest for each in logs.requests if isinstance(each, FirstEqual)] == [None]


@pytest.mark.parametrize(
    ("copies", "told"),
    [
        ([10], {10: 11}),  # right before it: the first of two is the record
        ([8], {8: 8}),
        ([9, 10], {9: 10, 10: 11}),
        ([7, 10], {7: 7, 10: 11}),
        ([12], {12: 12}),
        ([12, 13], {12: 12, 13: 13}),
    ],
)
def test_of_copies_next_to_each_other_the_first_is_the_record(copies, told):
    made = by_offset(written(20))
    target = {n: each for n, each in made.items() if n not in copies} | dict.fromkeys(copies, made[11])
    source = {n: each for n, each in made.items() if n not in copies}
    logs = InMemory(log(source), log(target), identity(20), through=20)
    assert outcomes(logs) == {("duplicated", 11, t) for t in told.values()}


@pytest.mark.parametrize(("s", "until", "strangers"), [(700, 704, 0), (703, 704, 3), (700, 709, 0)])
def test_a_copy_of_a_record_of_a_long_run_goes_by_where_the_run_is(s, until, strangers):
    """Five records are lost at the beginning. The copy stands right before the place that the mapping gives, or right
    before one as far on the other side of it."""
    made = written(900)
    others = [replace(STRANGER, value=b"%d" % n) for n in range(strangers)]
    there = [*made[5:until], *others, made[s], *made[until:]]
    logs = InMemory(Log.of(made, 50), Log.of(there, 30), identity(900), through=900)
    copy = ("duplicated", s, until - 5 + strangers)
    lost = {("lost", n, None) for n in range(5)}
    foreign = {("foreign", None, until - 5 + n) for n in range(strangers)}
    assert logs.in_a_task()[1] == {copy} | lost | foreign


def test_a_copy_of_a_record_that_was_displaced_goes_by_where_it_is_now():
    made = by_offset(written(20))
    target = {n: each for n, each in made.items() if n != 5} | {30: made[5], 29: made[5], 31: made[5]}
    found = outcomes(InMemory(log(made), log(target), identity(40), through=20))
    assert ("reordered", 5, 29) in found
    assert {each for each in found if each[0] == "duplicated"} == {("duplicated", 5, 30), ("duplicated", 5, 31)}
