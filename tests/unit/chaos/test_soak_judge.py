"""The soak's judge sees what is wrong: a judge that says "clean" to everything would prove nothing."""

from __future__ import annotations

from chaos.soak.clusters import Record, digest
from chaos.soak.faults import WEIGHTS, schedule
from chaos.soak.judge import Verdict, check_mapping, check_preserved, compare, compare_compacted, positions


def records(*values: tuple[int, bytes], key: bytes | None = None) -> list[Record]:
    return [Record(offset, key, value) for offset, value in values]


SOURCE = records((0, b"a"), (1, b"b"), (4, b"c"), (5, b"d"))


def test_the_same_in_the_same_order_is_clean() -> None:
    assert compare(SOURCE, records((7, b"a"), (8, b"b"), (9, b"c"), (10, b"d"))).clean


def test_missing_extra_and_disorder_are_told_apart() -> None:
    assert compare(SOURCE, records((0, b"a"), (1, b"b"), (2, b"d"))).missing == 1
    assert compare(SOURCE, [*SOURCE, *records((6, b"d"))]).extra == 1
    assert compare(SOURCE, records((0, b"a"), (1, b"c"), (2, b"b"), (3, b"d"))).disorder == 2
    changed = compare(SOURCE, records((0, b"a"), (1, b"B"), (2, b"c"), (3, b"d")))
    assert (changed.missing, changed.extra, changed.disorder) == (1, 1, 0)
    assert changed.examples == ["missing: the record at source 1", "extra: the record at target 1"]


def test_every_byte_counts() -> None:
    said = {
        digest(None, b"v", [], 1),
        digest(b"", b"v", [], 1),
        digest(b"v", None, [], 1),
        digest(None, b"v", [], 2),
        digest(None, b"v", [("h", None)], 1),
        digest(None, b"v", [("h", b"")], 1),
        digest(None, b"vh", [], 1),
    }
    assert len(said) == 7


def test_positions_name_every_edge_of_a_hole_and_the_end() -> None:
    assert positions([0, 1, 4, 5], 9, every=100) == [0, 1, 2, 3, 4, 5, 6, 9]


def test_a_wrong_translation_is_found() -> None:
    def check(answers: dict[int, tuple[str, int | None]]) -> int:
        verdict = Verdict()
        check_mapping(verdict, [0, 1, 4, 5], [10, 11, 12, 13], 14, answers, lambda commit: answers[commit])
        assert verdict.positions == len(answers)
        return verdict.wrong

    assert check({0: ("exact", 10), 1: ("exact", 11), 2: ("exact", 12), 4: ("exact", 12), 6: ("exact", 14)}) == 0
    assert check({4: ("exact", 13)}) == 1, "one record would be skipped"
    assert check({4: ("exact", 11)}) == 1, "one record would be read again"
    assert check({6: ("exact", 15)}) == 1, "beyond the end"
    assert check({4: ("conservative", 12), 5: ("unavailable", None)}) == 2


def test_offsets_that_moved_are_found() -> None:
    verdict = Verdict()
    check_preserved(verdict, [0, 1, 4], [0, 1, 3])
    assert verdict.moved == 1
    assert not verdict.clean


JOURNAL = {0: (b"k", b"a"), 1: (b"l", b"b"), 2: (b"k", b"c"), 3: (b"m", b"d")}


def entry(offset: int, source: int) -> Record:
    return Record(offset, *JOURNAL[source])


def test_a_cleaner_may_have_been_there_on_either_side() -> None:
    cleaned = [entry(1, 1), entry(2, 2), entry(3, 3)]
    whole = [entry(0, 0), *cleaned]
    for source, target in ((cleaned, whole), (whole, cleaned), (whole, whole)):
        verdict, came_from = compare_compacted(source, target, JOURNAL)
        assert verdict.clean, verdict
        assert came_from == [record.offset for record in target]


def test_what_no_cleaner_does_is_found() -> None:
    whole = [entry(number, number) for number in JOURNAL]
    assert compare_compacted(whole, whole[:3], JOURNAL)[0].missing == 1
    assert compare_compacted(whole[:3], whole, JOURNAL)[0].extra == 1
    assert compare_compacted(whole, [*whole, entry(4, 3)], JOURNAL)[0].extra == 1
    assert compare_compacted(whole, [whole[1], whole[0], *whole[2:]], JOURNAL)[0].disorder == 1
    assert compare_compacted(whole, [*whole, Record(4, b"z", b"z")], JOURNAL)[0].extra == 1


def test_a_seed_plays_the_same_faults_and_each_kind_comes() -> None:
    assert schedule(7, 30) == schedule(7, 30)
    assert schedule(7, 30) != schedule(8, 30)
    assert set(schedule(7, len(WEIGHTS))) == set(WEIGHTS)
