"""What `drkit.store.api` promises, on both backends: the same suite, each backend real."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drkit.model.link_state import Direction, Lease, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, WaitingRecords, Watermark
from drkit.model.runs import JournalEntry, RunSummary, verify_chain
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from tests.support.collection.sampling import sampled

AT = datetime(2026, 11, 20, 4, 3, 10, 123457, UTC)
HUGE = 2**62
TP = TopicPartition("flüge-✈-рейсы", 7)
PLAIN = TopicPartition("flights", 0)
BACKENDS = [pytest.param("sqlite", id="sqlite"), pytest.param("cassandra", id="cassandra", marks=pytest.mark.cassandra)]


def rows(tp: TopicPartition, *pairs: tuple[int, int], epoch: int = 0) -> list[OffsetMapping]:
    return [OffsetMapping(*tp, epoch, *pair) for pair in pairs]


def watermark(tp: TopicPartition, through: int, **changes) -> Watermark:
    return replace(Watermark(*tp, 0, through, through + 5, 1, through + 9, 2, AT), **changes)


# ---- mapping rows ---------------------------------------------------------------------------------


def test_rows_come_back_ascending_by_source_offset_whatever_the_order_they_were_kept_in(store, link):
    first, second, third = rows(TP, (0, 3), (10, 11), (HUGE, HUGE + 17))
    store.append_mappings(link, [third, first])
    store.append_mappings(link, [second])
    assert store.mappings(link, TP, 0) == [first, second, third]


def test_nothing_kept_is_nothing_found(store, link):
    assert store.mappings(link, TP, 0) == []
    assert store.floor_mapping(link, TP, 0, 5) is None
    assert store.next_mapping(link, TP, 0, -1) is None
    assert store.last_valid_mapping(link, TP, 0, 5) is None
    assert store.supersede_mappings(link, TP, 0, 5) == 0
    assert store.watermarks(link) == {}
    assert store.group_positions(link) == []
    assert store.topic_states(link) == {}
    assert store.problems(link) == []
    assert store.clear_problems(link) == 0
    assert store.link_control(link) is None
    store.append_mappings(link, [])
    store.put_watermarks(link, [])
    store.put_group_positions(link, [])
    store.put_topic_states(link, [])
    store.forget_group_positions(link, [])
    assert store.mappings(link, TP, 0) == []


def test_rows_are_apart_by_link_topic_partition_and_epoch(store, link):
    other = TopicPartition(TP.topic, TP.partition + 1)
    store.append_mappings(
        link, [*rows(TP, (1, 1)), *rows(other, (2, 2)), *rows(PLAIN, (3, 3)), *rows(TP, (4, 4), epoch=1)]
    )
    store.append_mappings(link.reversed(), rows(TP, (5, 5)))
    assert store.mappings(link, TP, 0) == rows(TP, (1, 1))
    assert store.mappings(link, other, 0) == rows(other, (2, 2))
    assert store.mappings(link, PLAIN, 0) == rows(PLAIN, (3, 3))
    assert store.mappings(link, TP, 1) == rows(TP, (4, 4), epoch=1)
    assert store.mappings(link.reversed(), TP, 0) == rows(TP, (5, 5))


def test_rows_of_many_partitions_come_in_the_order_that_they_are_asked_for(store, link):
    """Those of a link with thousands of partitions are read together."""
    places = [(TopicPartition(PLAIN.topic, number), 0) for number in range(2_500)]
    store.append_mappings(link, [row for tp, _ in places[::2] for row in rows(tp, (7, tp.partition), (9, 9_000))])
    store.append_mappings(link, rows(TP, (4, 4), epoch=1))
    asked = [(TP, 1), *reversed(places), (TP, 0)]
    found = dict(zip(asked, store.mappings_of(link, asked), strict=True))
    assert found == {place: store.mappings(link, *place) for place in asked[:3] + asked[-3:]} | {
        (tp, 0): rows(tp, (7, tp.partition), (9, 9_000)) if tp.partition % 2 == 0 else [] for tp, _ in places
    }
    assert found[TP, 1] == rows(TP, (4, 4), epoch=1)
    assert list(store.mappings_of(link, [])) == []


def test_writing_a_row_twice_changes_nothing_and_another_target_replaces_it(store, link):
    kept = rows(TP, (0, 0), (10, 8))
    store.append_mappings(link, kept)
    store.append_mappings(link, kept)
    assert store.mappings(link, TP, 0) == kept
    store.append_mappings(link, rows(TP, (10, 9)))
    assert store.mappings(link, TP, 0) == rows(TP, (0, 0), (10, 9))


@pytest.mark.parametrize(
    ("at", "floor", "following"),
    [
        (9, None, (10, 4)),
        (10, (10, 4), (17, 8)),
        (16, (10, 4), (17, 8)),
        (17, (17, 8), (HUGE, 16)),
        (HUGE - 1, (17, 8), (HUGE, 16)),
        (HUGE, (HUGE, 16), None),
        (2**63 - 1, (HUGE, 16), None),
    ],
)
def test_floor_and_next(store, link, at, floor, following):
    store.append_mappings(link, rows(TP, (10, 4), (17, 8), (HUGE, 16)))
    store.append_mappings(link, rows(TP, (at, 0), epoch=1))
    assert store.floor_mapping(link, TP, 0, at) == (rows(TP, floor)[0] if floor else None)
    assert store.next_mapping(link, TP, 0, at) == (rows(TP, following)[0] if following else None)


@pytest.mark.parametrize(
    ("target_end", "last", "superseded"),
    [(3, None, 5), (4, (10, 4), 4), (8, (20, 8), 2), (15, (20, 8), 2), (16, (30, 16), 1), (99, (40, 17), 0)],
)
def test_last_valid_and_supersede(store, link, target_end, last, superseded):
    """Several rows may share a target offset (a hole that grew): the greatest source offset is the last."""
    everything = rows(TP, (10, 4), (17, 8), (20, 8), (30, 16), (40, 17))
    store.append_mappings(link, everything)
    store.append_mappings(link, rows(TP, (10, 500), epoch=1))
    assert store.last_valid_mapping(link, TP, 0, target_end) == (rows(TP, last)[0] if last else None)
    assert store.supersede_mappings(link, TP, 0, target_end) == superseded
    assert store.mappings(link, TP, 0) == everything[: len(everything) - superseded]
    assert store.supersede_mappings(link, TP, 0, target_end) == 0
    assert len(store.mappings(link, TP, 1)) == 1, "another epoch is left alone"


def test_a_row_may_be_kept_again_where_one_was_superseded(store, link):
    store.append_mappings(link, rows(TP, (10, 4), (17, 8)))
    store.supersede_mappings(link, TP, 0, 4)
    store.append_mappings(link, rows(TP, (17, 9), (18, 10)))
    assert store.mappings(link, TP, 0) == rows(TP, (10, 4), (17, 9), (18, 10))


@pytest.mark.parametrize("store_url", sampled("a hundred thousand rows", BACKENDS, 1), indirect=True)
def test_a_hundred_thousand_rows_in_one_call_over_several_partitions(store, link):
    tps = [TopicPartition("big", partition) for partition in range(3)]
    kept = [OffsetMapping(*tps[n % 3], 0, 3 * n, 2 * n) for n in range(100_000)]
    store.append_mappings(link, kept)
    for tp in tps:
        mine = [row for row in kept if row.tp == tp]
        assert store.mappings(link, tp, 0) == mine
        assert store.floor_mapping(link, tp, 0, 150_000) == max(r for r in mine if r.source_offset <= 150_000)
        assert store.next_mapping(link, tp, 0, 150_000) == min(r for r in mine if r.source_offset > 150_000)
        assert store.last_valid_mapping(link, tp, 0, 100_000) == max(r for r in mine if r.target_offset <= 100_000)
        assert store.supersede_mappings(link, tp, 0, 100_000) == sum(r.target_offset > 100_000 for r in mine)
        assert store.mappings(link, tp, 0) == [r for r in mine if r.target_offset <= 100_000]


# ---- watermarks and group positions ----------------------------------------------------------------


def test_a_watermark_is_kept_exactly_and_the_newest_counts(store, link):
    behind = AT - timedelta(days=3, microseconds=1)
    first, second = watermark(TP, 5, leader_epoch=0), watermark(PLAIN, HUGE, behind_since=behind, epoch=3)
    store.put_watermarks(link, [first, second])
    assert store.watermarks(link) == {TP: first, PLAIN: second}
    back = watermark(TP, 4, epoch=1, waiting=WaitingRecords(20, behind, at_most=True))
    store.put_watermarks(link, [back])
    caught_up = replace(second, behind_since=None, waiting=WaitingRecords(HUGE, None))
    store.put_watermarks(link, [caught_up])
    assert store.watermarks(link) == {TP: back, PLAIN: caught_up}
    assert store.watermarks(link.reversed()) == {}


def test_a_watermark_of_an_earlier_epoch_than_its_topic_has_does_not_count(store, link):
    old, other = watermark(PLAIN, 5, epoch=1), watermark(TP, 7, epoch=1)
    store.put_watermarks(link, [old, other])
    state = TopicState("flights", "flights", "id-1", "id-2", 1, 6, created_by_drkit=True)
    store.put_topic_states(link, [state])
    assert store.watermarks(link) == {PLAIN: old, TP: other}
    store.put_topic_states(link, [replace(state, epoch=2)])
    assert store.watermarks(link) == {TP: other}
    anew = replace(old, epoch=2, source_through=1)
    store.put_watermarks(link, [anew])
    assert store.watermarks(link) == {PLAIN: anew, TP: other}


def test_instants_are_exact_to_the_microsecond_and_across_centuries(store, link):
    for at in (AT, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2261, 1, 1, 0, 0, 0, 1, UTC)):
        store.put_watermarks(link, [watermark(TP, 5, observed_at=at)])
        found = store.watermarks(link)[TP].observed_at
        assert found == at
        assert found.utcoffset() == timedelta(0)


def test_group_positions_are_sorted_and_replaced_one_by_one(store, link):
    def position(group, tp, offset, metadata=""):
        return GroupPosition(group, *tp, offset, metadata, AT)

    store.put_group_positions(
        link,
        [
            position("zebra", PLAIN, 1),
            position("Ärzte-συλλογή", TP, HUGE, "Zeile 1\nZeile 2 ✓"),
            position("app", TopicPartition("flights", 10), 3),
            position("app", TopicPartition("flights", 2), 2),
            position("", PLAIN, 0),
        ],
    )
    store.put_group_positions(link, [position("zebra", PLAIN, 0)._replace(captured_at=AT + timedelta(seconds=1))])
    found = store.group_positions(link)
    assert [(p.group, p.topic, p.partition, p.offset, p.metadata) for p in found] == [
        ("", "flights", 0, 0, ""),
        ("app", "flights", 2, 2, ""),
        ("app", "flights", 10, 3, ""),
        ("zebra", "flights", 0, 0, ""),
        ("Ärzte-συλλογή", TP.topic, TP.partition, HUGE, "Zeile 1\nZeile 2 ✓"),
    ]
    assert [p.captured_at - AT for p in found] == [timedelta(seconds=n) for n in (0, 0, 0, 1, 0)]


def test_forgetting_groups_leaves_the_others(store, link):
    store.put_group_positions(link, [GroupPosition(group, *TP, 1, "", AT) for group in ("a", "b", "c")])
    store.forget_group_positions(link, ["a", "c", "nobody"])
    assert [p.group for p in store.group_positions(link)] == ["b"]
    store.put_group_positions(link, [GroupPosition("a", *TP, 2, "", AT)])
    assert [p.group for p in store.group_positions(link)] == ["a", "b"]


def test_groups_may_be_forgotten_on_one_topic_only(store, link):
    store.put_group_positions(link, [GroupPosition(group, *tp, 1, "", AT) for group in "abc" for tp in (TP, PLAIN)])
    store.forget_group_positions(link, ["a", "c", "nobody"], TP.topic)
    assert [(p.group, p.tp) for p in store.group_positions(link)] == [
        ("a", PLAIN),
        ("b", PLAIN),
        ("b", TP),
        ("c", PLAIN),
    ]


def test_a_position_in_another_topic_of_that_name_isnt_given(store, link):
    former, unknown = (GroupPosition(group, *PLAIN, 9, "", AT, topic_id) for group, topic_id in (("f", "1"), ("u", "")))
    elsewhere = GroupPosition("f", *TP, 9, "", AT, "7")
    store.put_group_positions(link, [former, unknown, elsewhere])
    assert store.group_positions(link) == [former, elsewhere, unknown], "which topic is mirrored isn't known yet"
    state = TopicState(PLAIN.topic, "t", "1", "2", 1, 6, created_by_drkit=True)
    store.put_topic_states(link, [state])
    assert store.group_positions(link) == [former, elsewhere, unknown]
    store.put_topic_states(link, [replace(state, source_topic_id="3", epoch=2)])
    assert store.group_positions(link) == [elsewhere, unknown]
    new = former._replace(offset=2, topic_id="3")
    store.put_group_positions(link, [new])
    assert store.group_positions(link) == [new, elsewhere, unknown]


def test_positions_of_a_thousand_groups(store, link):
    kept = [
        GroupPosition(f"group-{n:04}", "t", partition, n, "m" * 50, AT) for n in range(1000) for partition in range(5)
    ]
    store.put_group_positions(link, kept)
    assert store.group_positions(link) == kept


# ---- links -----------------------------------------------------------------------------------------


def test_link_control_is_compare_and_set(store, link):
    first = LinkControl(link, Direction.ACTIVE, 1, AT)
    assert store.set_link_control(first, expected_version=None)
    assert store.link_control(link) == first
    second = LinkControl(link, Direction.SEALED, 2, AT, "failed over ✈", "01J", frozenset({"orders", "flüge"}))
    for stale in (None, 0, 2):
        assert not store.set_link_control(second, expected_version=stale)
    assert store.link_control(link) == first
    assert store.set_link_control(second, expected_version=1)
    assert store.link_control(link) == second
    assert not store.set_link_control(first, expected_version=1)
    assert store.link_control(link.reversed()) is None


def test_a_change_of_a_link_that_was_never_decided_needs_none(store, link):
    assert not store.set_link_control(LinkControl(link, Direction.PAUSED, 2, AT), expected_version=1)
    assert store.link_control(link) is None


def test_topic_states(store, link):
    one = TopicState("flights", "primary.flights", "id-1", "id-2", 0, 6, created_by_drkit=True)
    two = TopicState(TP.topic, TP.topic, "id-3", "", 4, 1, created_by_drkit=False, reason="zstd")
    store.put_topic_states(link, [two, one])
    assert store.topic_states(link) == {"flights": one, TP.topic: two}
    assert list(store.topic_states(link)) == ["flights", TP.topic]
    store.put_topic_states(link, [replace(one, epoch=1, partitions=12)])
    assert store.topic_states(link)["flights"] == replace(one, epoch=1, partitions=12)


def test_problems_keep_the_earliest_since_and_the_newest_words(store, link):
    problem = Problem("retention_gap", "flights", 3, "old words", "old remedy", halted=False, since=AT)
    store.put_problem(link, problem)
    store.put_problem(link, replace(problem, reason="new", remedy="do", halted=True, since=AT + timedelta(hours=1)))
    assert store.problems(link) == [replace(problem, reason="new", remedy="do", halted=True)]
    earlier = replace(problem, since=AT - timedelta(microseconds=1))
    store.put_problem(link, earlier)
    assert store.problems(link) == [earlier]
    for first, end in ((0, None), (0, 970), (940, None), (None, None)):
        store.put_problem(link, replace(earlier, unsure_from=first, unsure_until=end))
        assert store.problems(link) == [replace(earlier, unsure_from=first, unsure_until=end)]


def test_problems_are_oldest_first_and_cleared_by_topic_and_kind(store, link):
    whole = Problem("topic_recreated", "flights", None, "r", "m", halted=True, since=AT)
    parts = [
        Problem("retention_gap", "flights", n, "r", "m", halted=False, since=AT - timedelta(hours=n)) for n in (0, 1)
    ]
    other = Problem("retention_gap", "orders", None, "r", "m", halted=False, since=AT + timedelta(hours=1))
    for problem in (other, whole, *parts):
        store.put_problem(link, problem)
    assert store.problems(link) == [parts[1], whole, parts[0], other]
    assert store.clear_problems(link, topic="flights", kind="retention_gap") == 2
    assert store.problems(link) == [whole, other]
    assert store.clear_problems(link, kind="retention_gap") == 1
    assert store.clear_problems(link, topic="nothing") == 0
    assert store.clear_problems(link) == 1
    assert store.problems(link) == []


def test_one_problem_is_cleared_and_its_neighbours_stay(store, link):
    partitions = [Problem("foreign_writer", "t", number, "why", "what", True, AT) for number in (None, 0, 1)]
    for problem in partitions:
        store.put_problem(link, problem)
    for _ in range(2):
        store.clear_problem(link, replace(partitions[1], reason="another"))
    assert [problem.partition for problem in store.problems(link)] == [None, 1]
    store.clear_problem(link, partitions[0])
    assert store.problems(link) == [partitions[2]]


def test_forgetting_a_link_leaves_its_control_its_notes_and_other_links(store, link):
    other = LinkId(link.source, f"{link.target}-other")
    control = LinkControl(link, Direction.REVERSED, 1, AT)
    for each in (link, other):
        store.append_mappings(each, [*rows(TP, (1, 1)), *rows(PLAIN, (1, 1), epoch=4)])
        store.put_watermarks(each, [watermark(TP, 5)])
        store.put_group_positions(each, [GroupPosition("g", *TP, 1, "", AT)])
        store.put_topic_states(each, [TopicState("t", "t", "1", "2", 0, 1, created_by_drkit=True)])
        store.put_problem(each, Problem("k", "t", None, "r", "m", halted=False, since=AT))
        store.put_notes(each, "acl", {"a": "b"})
    store.set_link_control(control, expected_version=None)
    store.forget_link_data(link)
    assert store.mappings(link, TP, 0) == store.mappings(link, PLAIN, 4) == []
    assert store.watermarks(link) == {}
    assert store.group_positions(link) == []
    assert store.topic_states(link) == {}
    assert store.problems(link) == []
    assert store.notes(link, "acl") == {"a": "b"}
    assert store.link_control(link) == control
    assert (
        len(store.mappings(other, TP, 0)) == len(store.mappings(other, PLAIN, 4)) == len(store.watermarks(other)) == 1
    )
    assert len(store.group_positions(other)) == len(store.topic_states(other)) == len(store.problems(other)) == 1
    store.append_mappings(link, rows(TP, (2, 2)))
    store.forget_link_data(link)
    assert store.mappings(link, TP, 0) == [], "also what was kept after the first time"


def test_forgetting_a_topic_leaves_the_others_and_other_links(store, link):
    other = LinkId(link.source, f"{link.target}-other")
    for each in (link, other):
        store.append_mappings(each, [*rows(TP, (1, 1)), *rows(TP, (9, 9), epoch=2), *rows(PLAIN, (1, 1))])
        store.put_watermarks(each, [watermark(TP, 5), watermark(PLAIN, 5)])
        store.put_group_positions(each, [GroupPosition("g", *tp, 1, "", AT) for tp in (TP, PLAIN)])
        states = [TopicState(tp.topic, "t", "1", "2", 0, 1, created_by_drkit=True) for tp in (TP, PLAIN)]
        store.put_topic_states(each, states)
        for tp in (TP, PLAIN):
            store.put_problem(each, Problem("k", tp.topic, tp.partition, "r", "m", halted=False, since=AT))
    for _ in range(2):
        store.forget_topic(link, TP.topic)
        assert store.mappings(link, TP, 0) == store.mappings(link, TP, 2) == []
        assert list(store.watermarks(link)) == [PLAIN]
        assert [position.tp for position in store.group_positions(link)] == [PLAIN]
        assert list(store.topic_states(link)) == [PLAIN.topic]
        assert [problem.topic for problem in store.problems(link)] == [PLAIN.topic]
        assert store.mappings(link, PLAIN, 0) == rows(PLAIN, (1, 1))
    assert store.mappings(other, TP, 2) == rows(TP, (9, 9), epoch=2)
    assert len(store.watermarks(other)) == len(store.topic_states(other)) == len(store.problems(other)) == 2
    assert len(store.group_positions(other)) == 2


def test_notes_are_kept_by_kind_and_name(store, link):
    assert store.notes(link, "acl") == {}
    store.put_notes(link, "acl", {})
    store.put_notes(link, "acl", {"b": "2", "a-✈": "1"})
    store.put_notes(link, "acl", {"b": "3"})
    store.put_notes(link, "settings", {"b": "other"})
    assert list(store.notes(link, "acl").items()) == [("a-✈", "1"), ("b", "3")]
    assert store.notes(link, "settings") == {"b": "other"}
    assert store.notes(link.reversed(), "acl") == {}
    store.forget_notes(link, "acl", ["b", "none"])
    assert store.notes(link, "acl") == {"a-✈": "1"}
    store.forget_notes(link, "acl", [])
    assert store.notes(link, "settings") == {"b": "other"}


# ---- leases ----------------------------------------------------------------------------------------


def test_a_lease_is_its_owners_until_it_expires_and_its_epoch_grows_with_each_owner(store, name):
    assert store.lease(name) is None
    mine = store.acquire_lease(name, "a", 10, AT)
    assert mine == Lease(name, "a", 1, AT + timedelta(seconds=10))
    assert store.acquire_lease(name, "b", 10, AT + timedelta(seconds=9.999999)) == mine
    renewed = store.acquire_lease(name, "a", 10, AT + timedelta(seconds=5))
    assert renewed == Lease(name, "a", 1, AT + timedelta(seconds=15))
    assert store.lease(name) == renewed
    taken = store.acquire_lease(name, "b", 0.5, AT + timedelta(seconds=15))
    assert taken == Lease(name, "b", 2, AT + timedelta(seconds=15.5))
    assert store.acquire_lease(name, "a", 10, AT + timedelta(seconds=15.1)) == taken


def test_the_store_has_a_clock_of_its_own(store):
    first = store.time()
    assert first.tzinfo is not None
    assert store.time() >= first


def test_an_expired_lease_that_nobody_took_is_renewed_in_its_epoch(store, name):
    store.acquire_lease(name, "a", 1, AT)
    assert store.acquire_lease(name, "a", 1, AT + timedelta(hours=1)).epoch == 1
    assert store.lease(name) == Lease(name, "a", 1, AT + timedelta(hours=1, seconds=1)), "kept, expired or not"


def test_only_its_owner_releases_a_lease_and_the_epoch_survives(store, name):
    store.acquire_lease(name, "a", 10, AT)
    store.release_lease(name, "b")
    assert store.lease(name) is not None
    store.release_lease(name, "a")
    assert store.lease(name) is None
    store.release_lease(name, "a")
    assert store.acquire_lease(name, "b", 10, AT).epoch == 2


def test_a_lease_is_broken_only_if_it_is_held_by_the_one_named(store, name):
    assert not store.break_lease(name, "a")
    store.acquire_lease(name, "a", 10, AT)
    assert not store.break_lease(name, "b")
    assert store.break_lease(name, "a")
    assert not store.break_lease(name, "a")
    assert store.lease(name) is None
    assert store.acquire_lease(name, "c", 10, AT).owner == "c"


# ---- journal ---------------------------------------------------------------------------------------


def test_journal_entries_are_kept_once_verbatim_and_in_order(store, name):
    chain: list[JournalEntry] = []
    for number in range(12):
        at = AT + timedelta(microseconds=number)
        payload = f'{{"n": {number}, "text": "✓ \\" \\n"}}'
        chain.append(
            JournalEntry.chained(
                chain[-1] if chain else None, run=name, at=at, stage="fence", event="intent", payload=payload
            )
        )
    for entry in reversed(chain):
        assert store.append_entry(entry)
    assert store.entries(name) == chain
    assert verify_chain(store.entries(name)) is None
    assert not store.append_entry(replace(chain[3], payload="other"))
    assert not store.append_entry(chain[3])
    assert store.entries(name) == chain
    assert store.entries(name + "-none") == []


def test_a_plan_of_half_a_megabyte_fits_into_the_journal(store, name):
    entry = JournalEntry.chained(None, run=name, at=AT, stage="plan", event="frozen", payload="p" * 500_000)
    assert store.append_entry(entry)
    assert store.entries(name) == [entry]


def test_runs_are_replaced_and_listed_newest_first(store, name):
    early = RunSummary(f"{name}-1", "failover", "planned", AT, AT)
    late = RunSummary(f"{name}-2", "audit", "closed", AT + timedelta(microseconds=1), AT, "clean")
    same = RunSummary(f"{name}-3", "drill", "closed", AT + timedelta(microseconds=1), AT)
    for run in (early, late, same, replace(early, state="closed", updated_at=AT + timedelta(hours=1))):
        store.put_run(run)
    mine = [run for run in store.runs() if run.run.startswith(name)]
    assert mine == [same, late, replace(early, state="closed", updated_at=AT + timedelta(hours=1))]


# ---- opening ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("create", [True, False])
def test_what_is_kept_is_there_when_opened_again(store, store_url, link, create):
    store.append_mappings(link, rows(TP, (1, 1)))
    with closing(open_store(store_url, create=create)) as again:
        assert again.mappings(link, TP, 0) == rows(TP, (1, 1))
        again.append_mappings(link, rows(TP, (2, 2)))
    assert store.mappings(link, TP, 0) == rows(TP, (1, 1), (2, 2))
