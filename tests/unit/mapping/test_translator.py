"""`Translator` over a real store gives what `translate` gives from all rows, less what problems take away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from drkit.mapping import Translator, heed
from drkit.mapping.store_translator import PartitionRows
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, doubts_on_record, unavailable
from drkit.model.link_state import ROWS_UNPROVEN, Problem
from drkit.model.offsets import Certainty, OffsetMapping, Translation, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import Store, open_store
from tests.support.links.mirror_model import AT, PARTITION, TOPIC, translate_rows

LINK = LinkId("primary", "dr")
TP = TopicPartition(TOPIC, PARTITION)
ROWS = [OffsetMapping(TOPIC, PARTITION, 2, *pair) for pair in ((10, 4), (17, 8), (24, 16))]
OLDER = [OffsetMapping(TOPIC, PARTITION, 1, *pair) for pair in ((0, 0), (11, 2))]
MARK = Watermark(TOPIC, PARTITION, 2, 27, 19, 10, 27, 6, AT)


@pytest.fixture
def store() -> Iterator[Store]:
    kept = open_store("sqlite:///:memory:")
    kept.append_mappings(LINK, [*OLDER, *ROWS])
    kept.put_watermarks(LINK, [MARK])
    yield kept
    kept.close()


@pytest.mark.parametrize("committed", range(7, 32))
def test_the_snapshot_agrees_with_all_rows(store, committed):
    expected = translate_rows(ROWS, MARK, committed)
    assert Translator(store, LINK).translate(TP, committed) == expected


def test_a_target_that_begins_further_on_by_now_has_no_exact_place_below_that(store):
    translator = Translator(store, LINK)
    translator.observe_target(lambda: {TP: (11, 19), TopicPartition("orders", 3): (5, 9)})
    answer = translator.translate(TP, 18)
    assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 11)
    assert translator.translate(TP, 20) == Translator(store, LINK).translate(TP, 20)
    longer = Translator(store, LINK)
    longer.observe_target(lambda: {TP: (4, 30)})
    assert Translator(store, LINK).translate(TP, 11).target_offset == 6, "where it began when the mirror looked"
    answer = longer.translate(TP, 11)
    assert (answer.certainty, answer.target_offset) == (Certainty.EXACT, 5), "a broker's crash undoes DeleteRecords"


def test_a_log_that_grows_while_it_is_looked_at_has_lost_nothing(store):
    """What is mirrored after the look is no watermark of this snapshot."""
    translator = Translator(store, LINK)

    def look():
        store.put_watermarks(LINK, [Watermark(TOPIC, PARTITION, 2, 40, 32, 10, 40, 6, AT)])
        return {TP: (6, 25)}

    translator.observe_target(look)
    assert translator.mirrored(TP) == MARK


@pytest.mark.parametrize(("end", "through"), [(19, 27), (17, 25), (15, 24), (9, 18), (6, 12), (4, 10), (2, 10)])
def test_a_target_that_ends_lower_by_now_has_nothing_exact_beyond_that(store, end, through):
    translator = Translator(store, LINK)
    translator.observe_target(lambda: {TP: (min(6, end), end)})
    held = translator.mirrored(TP)
    assert (held.source_through, held.target_end) == (through, end)
    for offset in range(through + 1, 28):
        answer = translator.translate(TP, offset)
        assert answer.certainty is Certainty.CONSERVATIVE
        assert answer.target_offset <= max(end, 6), "6 is where the target began"


def test_what_landed_since_the_watermark_was_stored_is_exact_as_far_as_the_rows_and_the_source_prove_it(store):
    translator = Translator(store, LINK)
    translator.observe_target(lambda: {TP: (6, 23)})
    translator.settle({TP: 31}, {})
    assert [translator.translate(TP, offset).target_offset for offset in (27, 30, 31)] == [19, 22, 23]
    assert translator.translate(TP, 31).certainty is Certainty.EXACT
    assert translator.translate(TP, 32).certainty is Certainty.CONSERVATIVE, "ahead of what is mirrored"
    for ends in ({}, {TP: 30}):
        unproven = Translator(store, LINK)
        unproven.observe_target(lambda: {TP: (6, 23)})
        unproven.settle(ends, {})
        assert unproven.mirrored(TP) == MARK, "another writer's, or nobody vouches for the log"
    appended = Translator(store, LINK)
    appended.observe_target(lambda: {TP: (6, 23)})
    appended.settle({TP: 31}, {TP: 21})
    assert appended.translate(TP, 29).certainty is Certainty.EXACT
    assert appended.translate(TP, 30).certainty is Certainty.CONSERVATIVE, "others wrote what stands there"


def test_a_target_that_ends_where_it_did_is_as_it_was(store):
    """Also where the source ends in a hole, and the epoch in which it was read counts still."""
    mark = replace(MARK, source_through=29, source_end=29, leader_epoch=5)
    store.put_watermarks(LINK, [mark])
    translator = Translator(store, LINK)
    translator.observe_target(lambda: {TP: (6, 19)})
    assert translator.mirrored(TP) == mark
    shorter = Translator(store, LINK)
    shorter.observe_target(lambda: {TP: (6, 18)})
    assert shorter.mirrored(TP) == replace(mark, source_through=26, target_end=18, leader_epoch=None)


def test_a_partition_that_was_never_mirrored_is_named(store):
    nowhere = TopicPartition("orders", 3)
    answer = Translator(store, LINK).translate(nowhere, 5)
    assert answer.certainty is Certainty.UNAVAILABLE
    assert answer.reason == "the mirror has recorded nothing for orders:3 yet"


def test_a_watermark_without_rows_is_unavailable_and_named(store):
    store.put_watermarks(LINK, [Watermark("orders", 3, 0, 0, 0, 0, 0, 0, AT)])
    answer = Translator(store, LINK).translate(TopicPartition("orders", 3), 5)
    assert answer.reason is not None
    assert "keeps no mapping of orders:3" in answer.reason


def test_a_conflict_anywhere_in_the_partition_makes_every_position_unavailable(store):
    store.append_mappings(LINK, [OffsetMapping(TOPIC, PARTITION, 2, 25, 3)])
    answer = Translator(store, LINK).translate(TP, 11)
    assert answer.certainty is Certainty.UNAVAILABLE
    assert "conflict: source 24 -> target 16, but source 25 -> target 3" in (answer.reason or "")


def test_a_snapshot_stays_as_it_was(store):
    translator = Translator(store, LINK)
    assert translator.partitions() == [TP]
    assert translator.translate(TP, 30).target_offset == 19
    store.put_watermarks(LINK, [Watermark(TOPIC, PARTITION, 2, 40, 32, 10, 40, 4, AT)])
    assert translator.translate(TP, 30).target_offset == 19
    assert translator.watermark(TP) == MARK
    assert Translator(store, LINK).translate(TP, 30).target_offset == 22


def problem(kind: str, partition: int | None = PARTITION, **more: int) -> Problem:
    return Problem(kind, TOPIC, partition, f"why {kind}", "what to do", True, AT, **more)


def answers(store: Store, committed: int) -> Translation:
    return Translator(store, LINK).translate(TP, committed)


@pytest.mark.parametrize("kind", ["source_truncated", "foreign_writer"])
def test_what_both_sides_hold_differently_is_translated_to_where_they_part(store, kind):
    store.put_problem(LINK, problem(kind, unsure_from=20))
    assert answers(store, 19).certainty is Certainty.EXACT
    for committed in (20, 23, 27, 31):
        answer = answers(store, committed)
        assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 11), committed
        assert f"why {kind}" in str(answer.reason)
    assert answers(store, 25).reread is None, "nobody knows which of these records the group has read"
    assert answers(store, 20).reread == 0, "it has read nothing of them"


def test_a_stretch_that_a_problem_names_isnt_exact_but_stays_in_its_place(store):
    store.put_problem(LINK, problem("records_misplaced", unsure_from=12, unsure_until=18))
    expected = {committed: translate_rows(ROWS, MARK, committed) for committed in range(11, 20)}
    for committed, plain in expected.items():
        answer = answers(store, committed)
        assert answer.target_offset == plain.target_offset
        doubted = 12 <= committed < 18
        assert answer.certainty is (Certainty.CONSERVATIVE if doubted else plain.certainty), committed


@pytest.mark.parametrize("kind", ["topic_recreated", "target_recreated"])
def test_of_another_topic_of_the_name_nothing_is_known(store, kind):
    store.put_problem(LINK, problem(kind, None))
    answer = answers(store, 12)
    assert (answer.certainty, answer.target_offset, answer.reason) == (Certainty.UNAVAILABLE, None, f"why {kind}")


def test_problems_of_others_and_those_that_name_no_stretch_change_nothing(store):
    store.put_problem(LINK, problem("source_truncated", PARTITION + 1, unsure_from=0))
    store.put_problem(LINK, problem("retention_gap"))
    assert answers(store, 12) == translate_rows(ROWS, MARK, 12)


def test_what_only_a_recovered_store_says_is_translated_to_where_that_is_proven(store):
    store.put_problem(LINK, problem("store_recovered", unsure_from=20))
    assert answers(store, 19).certainty is Certainty.EXACT
    for committed in (20, 25, 31):
        answer = answers(store, committed)
        assert (answer.certainty, answer.target_offset, answer.reread) == (Certainty.CONSERVATIVE, 11, None), committed
        assert answer.reason == "why store_recovered"


def test_what_a_recovered_store_can_t_translate_stays_in_its_place():
    found = heed(EXACT, [problem("store_recovered", unsure_from=5)], TP, lambda offset: unavailable(offset, "no row"))
    assert (found.certainty, found.target_offset, found.reread) == (Certainty.CONSERVATIVE, 6, None)


def test_a_doubt_is_added_to_the_reason_that_is_there(store):
    store.put_problem(LINK, problem("records_misplaced", unsure_from=0, unsure_until=20))
    assert str(answers(store, 7).reason).endswith("removed the records before that; why records_misplaced")
    assert answers(store, 12).reason == "why records_misplaced"


EXACT = Translation(12, Certainty.EXACT, 6)


def test_problems_of_others_hide_none_of_its_own():
    others = [Problem("topic_recreated", "orders", PARTITION, "why", "do", True, AT), problem("topic_recreated", 7)]
    found = heed(EXACT, [*others, problem("records_misplaced", unsure_from=12)], TP, pytest.fail)
    assert (found.certainty, found.reason) == (Certainty.CONSERVATIVE, "why records_misplaced")
    assert heed(EXACT, [*others, problem("topic_recreated", None)], TP, pytest.fail).reason == "why topic_recreated"


def test_what_is_unavailable_stays_so_for_its_own_reason():
    nothing = unavailable(12, "no rows")
    assert heed(nothing, [problem("topic_recreated")], TP, pytest.fail) == nothing


def test_of_a_target_that_is_not_seen_nothing_is_exact(store):
    translator = Translator(store, LINK)
    translator.observe_target(dict)
    answer = translator.translate(TP, 12)
    assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 6)
    assert (answer.reread, answer.skipped) == (None, None)
    assert str(answer.reason).endswith("can't be read now: no leader answers")
    translator.heed_silence("dr stands still")
    assert str(translator.translate(TP, 12).reason).endswith("can't be read now: dr stands still")
    assert "never mirrored" in str(translator.translate(TP, 7).reason), "what wasn't exact has its reason"
    translator.heed_silence(None, {TP: "it has no leader", TopicPartition("orders", 9): "another reason"})
    assert str(translator.translate(TP, 12).reason).endswith("can't be read now: it has no leader")


def test_rows_that_the_store_has_lost_count(store):
    part = open_store("sqlite:///:memory:")
    part.append_mappings(LINK, [*OLDER, ROWS[0], ROWS[2]])
    part.put_watermarks(LINK, [MARK])
    translator = Translator(part, LINK)
    translator.heed_age(PartitionRows(part, {TP: [ROWS[1]]}), NO_ROW_DOUBTS)
    for committed in range(7, 32):
        assert translator.translate(TP, committed) == Translator(store, LINK).translate(TP, committed)
    part.close()


def test_of_a_store_that_may_have_lost_rows_nothing_is_exact_that_needs_them(store):
    equal = Watermark("equal", 0, 1, 5, 5, 0, 5, 0, AT)
    store.append_mappings(LINK, [OffsetMapping("equal", 0, 1, 0, 0)])
    store.put_watermarks(LINK, [equal])
    translator = Translator(store, LINK)
    translator.heed_age(PartitionRows(store), RowDoubts("the copy can't be read"))
    answer = translator.translate(TP, 12)
    assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 6)
    assert str(answer.reason).startswith("the copy can't be read; nothing is skipped from target offset 6 on")
    assert (answer.reread, answer.skipped) == (None, 0)
    below = translator.translate(TP, 7)
    assert (below.target_offset, below.skipped) == (6, 0), "where the target's log begins: a row below may be lost"
    assert translator.translate(equal.tp, 3) == Translation(3, Certainty.EXACT, 3)
    translator.heed_age(PartitionRows(store), RowDoubts(single={"orders:9": "its rows aren't proven"}))
    assert translator.translate(TP, 12) == EXACT
    translator.heed_age(PartitionRows(store), RowDoubts(single={str(TP): "its rows aren't proven"}))
    assert translator.translate(TP, 12).certainty is Certainty.CONSERVATIVE


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("end", [19, 23, 15], ids=["as it was", "longer", "shorter"])
def test_a_store_that_may_have_lost_a_row_moves_nobody_past_a_record_that_it_placed(store, lost, end):
    """Whichever it is, and whether the target's log has grown or lost its end since: no row moves the watermark."""
    part = open_store("sqlite:///:memory:")
    part.append_mappings(LINK, [*OLDER, *ROWS[:lost], *ROWS[lost + 1 :]])
    part.put_watermarks(LINK, [MARK])
    whole, doubted = Translator(store, LINK), Translator(part, LINK)
    for translator in (whole, doubted):
        translator.observe_target(lambda: {TP: (0, end)})
        translator.settle({TP: 31}, {})
    doubted.heed_age(PartitionRows(part), RowDoubts(single={str(TP): "its rows aren't proven"}))
    for committed in range(10, 28):
        answer, right = doubted.translate(TP, committed), whole.translate(TP, committed)
        if answer.target_offset is None:
            assert lost == 0, "what is there may be of the topic's former epoch"
            assert committed < ROWS[1].source_offset
            continue
        assert answer.certainty is Certainty.CONSERVATIVE
        assert right.target_offset is not None
        assert answer.target_offset <= right.target_offset
        assert (answer.reread, answer.skipped) == (None, 0)
    part.close()


def test_rows_that_are_on_record_as_unproven_are_in_doubt_whatever_the_copy_proves_by_now():
    unproven = Problem(ROWS_UNPROVEN, *TP, "its copy had lost them", "audit", halted=False, since=AT)
    assert doubts_on_record([unproven, problem("topic_recreated", None)]) == RowDoubts(
        single={str(TP): "its copy had lost them"}
    )


def test_of_a_source_that_may_have_lost_more_since_nothing_is_exact(store):
    translator = Translator(store, LINK)
    translator.heed_problems([problem("records_misplaced", unsure_from=25)], {TP: "why source_truncated"})
    answer = translator.translate(TP, 12)
    told = (answer.certainty, answer.target_offset, answer.reason)
    assert told == (Certainty.CONSERVATIVE, 6, "why source_truncated")
    translator.heed_problems([], {TopicPartition("orders", 3): "another"})
    assert translator.translate(TP, 12) == EXACT


def test_problems_that_were_just_looked_for_count_rather_than_those_on_record(store):
    store.put_problem(LINK, problem("topic_recreated", None))
    translator = Translator(store, LINK)
    translator.heed_problems([], {})
    assert translator.translate(TP, 12) == EXACT


def test_what_is_kept_of_a_partition(store):
    store.put_watermarks(LINK, [Watermark("orders", 3, 0, 0, 0, 0, 0, 0, AT)])
    translator, empty, nowhere = Translator(store, LINK), TopicPartition("orders", 3), TopicPartition("orders", 4)
    assert (translator.first(TP), translator.floor(TP, 16), translator.floor(TP, 9)) == (ROWS[0], ROWS[0], None)
    assert (translator.first(empty), translator.floor(empty, 5)) == (None, None)
    assert (translator.first(nowhere), translator.floor(nowhere, 5), translator.mirrored(nowhere)) == (None, None, None)
    assert translator.watermark(nowhere) is None


def test_rows_that_were_read_together_are_not_read_again(store, monkeypatch):
    """Thousands of partitions one by one take seconds on Cassandra: a status and a plan read all of them at once."""
    lost = OffsetMapping(TOPIC, PARTITION, 2, 30, 20)
    rows, empty = PartitionRows(store, {TP: [lost]}), TopicPartition(TOPIC, PARTITION + 1)
    rows.read(LINK, [(TP, 2), (empty, 1), (TP, 1)])
    monkeypatch.setattr(store, "mappings", None)
    assert rows.mappings(LINK, TP, 2) == [*ROWS, lost]
    assert rows.mappings(LINK, TP, 1) == OLDER
    assert rows.mappings(LINK, empty, 1) == []
    monkeypatch.setattr(store, "mappings_of", lambda _, places: iter([] if not places else None))
    rows.read(LINK, [(TP, 2), (TP, 1)])
