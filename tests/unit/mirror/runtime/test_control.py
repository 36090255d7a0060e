from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.mirror.control import (
    accept_recreated,
    accept_target,
    acknowledge,
    link_to_run,
    pause,
    read_orders,
    resume_link,
)
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.errors import ConfigError, NotShown, Refused
from drkit.model.link_state import (
    RECORDS_GIVEN_UP,
    RECORDS_RETURNED,
    SOURCE_GAP,
    TARGET_PURGED,
    Direction,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.offsets import MOST_RANGES, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store.api import Store
from drkit.store.link_notes import (
    accept_no_longer,
    accept_purge,
    accepted_purges,
    add_never_mirrored,
    known_target_cluster,
    never_mirrored,
    note_clusters,
    put_source_gap,
    source_holes,
)

LINK = Link(LinkId("primary", "dr"), topics=("flights", "orders"))


def decide(store: Store, link: Link, direction: Direction) -> None:
    kept = store.link_control(link.id)
    version = 0 if kept is None else kept.version
    control = LinkControl(link.id, direction, version + 1, now(), "a reason", "run-1")
    assert store.set_link_control(control, expected_version=None if kept is None else version)


def test_nothing_decided_means_run(store: Store) -> None:
    orders = read_orders(store, LINK)
    assert not orders.paused
    assert orders.refusal is None
    assert not orders.holds("flights")
    assert link_to_run(store, LINK) == LINK


def test_pause_and_go_on(store: Store) -> None:
    pause(store, LINK, "flights")
    assert read_orders(store, LINK).holds("flights")
    assert not read_orders(store, LINK).holds("orders")
    control = pause(store, LINK, reason="maintenance")
    assert control.version == 2
    assert pause(store, LINK, reason="maintenance") == control, "holding what is held changes nothing"
    assert read_orders(store, LINK).holds("orders")
    with pytest.raises(Refused, match="paused as a whole"):
        resume_link(store, LINK, "flights")
    resume_link(store, LINK)
    assert not read_orders(store, LINK).holds("flights"), "the whole link continues, all topics"


def test_a_topic_goes_on_alone(store: Store) -> None:
    pause(store, LINK, "flights")
    pause(store, LINK, "orders")
    resume_link(store, LINK, "flights")
    orders = read_orders(store, LINK)
    assert (orders.holds("flights"), orders.holds("orders")) == (False, True)


def test_a_topic_outside_the_link_is_an_error(store: Store) -> None:
    with pytest.raises(ConfigError, match="does not cover elsewhere"):
        pause(store, LINK, "elsewhere")


@pytest.mark.parametrize("direction", [Direction.SEALED, Direction.REVERSED])
def test_a_sealed_or_reversed_link_is_refused_and_names_its_run(store: Store, direction: Direction) -> None:
    decide(store, LINK, direction)
    refusal = read_orders(store, LINK).refusal
    assert refusal is not None
    assert "run-1" in str(refusal)
    for change in (pause, resume_link):
        with pytest.raises(Refused, match="run-1"):
            change(store, LINK)


@pytest.mark.parametrize("alters", [{"filter": "m:f"}, {"provenance": True, "shares_target": True}])
def test_of_a_sealed_link_that_alters_records_no_remedy_is_a_failback(store: Store, alters: dict[str, Any]) -> None:
    """Each refusal named `drkit failback`, which refuses such a link."""
    link = replace(LINK, **alters)
    decide(store, link, Direction.SEALED)
    refused = [read_orders(store, link).refusal]
    for act in (pause, resume_link, lambda *given: acknowledge(*given, RECORDS_RETURNED)):
        with pytest.raises(Refused) as told:
            act(store, link)
        refused.append(told.value)
    for each in refused:
        assert each is not None
        assert "drkit fence --lift --cluster primary --yes --link 'primary->dr'" in each.remedy
        assert "drkit failback" not in each.remedy
        assert ("Stop the clients on dr" in each.remedy) is not link.shares_target


def test_the_way_back_runs_only_while_the_link_does_not(store: Store) -> None:
    back = LINK.reversed()
    assert read_orders(store, back).refusal is not None
    decide(store, LINK, Direction.SEALED)
    assert read_orders(store, back).refusal is None
    decide(store, LINK, Direction.REVERSED)
    assert read_orders(store, back).refusal is None
    assert link_to_run(store, LINK) == back
    decide(store, back, Direction.SEALED)
    assert read_orders(store, back).refusal is not None


def problem(kind: str, topic: str, partition: int | None, *, halted: bool = True) -> Problem:
    return Problem(kind, topic, partition, "a reason", "a remedy", halted, now())


def test_going_on_retries_what_halts_and_accepts_nothing(store: Store) -> None:
    store.put_problem(LINK.id, problem("mapping_conflict", "flights", 0))
    stay = {
        "topic_recreated": True,
        "source_truncated": True,
        "foreign_writer": True,
        "retention_gap": False,
        "target_purged": False,
    }
    for kind, halted in stay.items():
        store.put_problem(LINK.id, problem(kind, "flights", None, halted=halted))
    store.put_problem(LINK.id, problem("mapping_conflict", "orders", 1))
    _, cleared = resume_link(store, LINK, "flights")
    assert cleared == 1
    _, cleared = resume_link(store, LINK)
    assert cleared == 1
    assert {p.kind for p in store.problems(LINK.id)} == set(stay)


def test_a_topic_accepted_twice_in_a_row_keeps_the_epoch_that_no_mirror_has_begun(store: Store) -> None:
    tp = TopicPartition("flights", 0)
    ids = {"flights": "here"}

    def side(topic_id: str | None = None) -> Any:
        topics = lambda _: {"flights": SimpleNamespace(topic_id=topic_id or ids["flights"], partitions=1)}  # noqa: E731
        logs = SimpleNamespace(start_offsets=lambda *_, **__: {tp: 0}, log_ends=lambda *_, **__: {tp: 50})
        return SimpleNamespace(topics=topics, cluster_id=lambda: "dr-id", **vars(logs))

    def accept() -> tuple[int, bool, int]:
        found = accept_recreated(store, LINK, "flights", source=side(), target=side("there"))
        return found.topic.epoch, found.already, found.stay

    store.put_topic_states(LINK.id, [TopicState("flights", "flights", "former", "there", 1, 1, created_by_drkit=True)])
    assert (accept(), accept()) == ((2, False, 50), (2, True, 50))
    ids["flights"] = "made anew since"
    assert accept() == (3, False, 50)
    store.append_mappings(LINK.id, [OffsetMapping("flights", 0, 3, 0, 50)])
    assert (accept(), accept()) == ((4, False, 50), (4, True, 50)), "a mirror has begun the former one"
    store.put_problem(LINK.id, problem("foreign_writer", "flights", 0))
    assert accept() == (5, False, 50), "a halted partition begins anew"
    assert not store.problems(LINK.id)


@pytest.mark.parametrize("direction", [Direction.SEALED, Direction.REVERSED, Direction.PAUSED])
def test_a_topic_that_could_not_be_resumed_is_not_accepted_either(store: Store, direction: Direction) -> None:
    """Nothing is changed by what is refused: marks, rows and problems stay."""
    state = TopicState("flights", "flights", "here", "there", 1, 1, created_by_drkit=True)
    store.put_topic_states(LINK.id, [state])
    store.put_problem(LINK.id, problem("records_unmapped", "flights", 0))
    decide(store, LINK, direction)
    before = store.problems(LINK.id)
    logs = SimpleNamespace(
        start_offsets=lambda tps, **_: dict.fromkeys(tps, 0), log_ends=lambda tps, **_: dict.fromkeys(tps, 50)
    )
    side: Any = SimpleNamespace(
        topics=lambda _: {"flights": SimpleNamespace(topic_id="anew", partitions=1)},
        cluster_id=lambda: "dr-id",
        end_offsets=logs.log_ends,
        **vars(logs),
    )
    with pytest.raises(Refused, match=f"is {direction}"):
        accept_recreated(store, LINK, "flights", source=side, target=side)
    assert (store.topic_states(LINK.id), store.problems(LINK.id)) == ({"flights": state}, before)


def test_a_target_that_was_replaced_is_accepted_with_all_topics_that_are_not_there_as_mirrored(store: Store) -> None:
    there = {"flights": "made there", "orders": "kept"}
    tps = {TopicPartition("flights", 0): 7, TopicPartition("orders", 0): 5}

    def named(topics: Any) -> Any:
        return {name: SimpleNamespace(topic_id=there[name], partitions=1) for name in topics if name in there}

    target: Any = SimpleNamespace(
        topics=named,
        cluster_id=lambda: "new",
        start_offsets=lambda these, **_: dict.fromkeys(these, 0),
        log_ends=lambda these, **_: {tp: tps[tp] for tp in these},
    )
    states = [
        TopicState("flights", "flights", "s", "former", 1, 1, created_by_drkit=True),
        TopicState("gone", "gone", "s", "former too", 2, 3, created_by_drkit=True),
        TopicState("orders", "orders", "s", "kept", 1, 1, created_by_drkit=True),
    ]
    store.put_topic_states(LINK.id, states)
    store.put_problem(LINK.id, problem("target_recreated", "flights", None))
    note_clusters(store, LINK.id, target="former")
    with pytest.raises(NotShown, match="dr is another cluster than the one that was mirrored to: its id is new"):
        accept_recreated(store, LINK, "flights", source=target, target=target)
    with pytest.raises(Refused, match="'former' is not the id of dr") as refused:
        accept_target(store, LINK, "former", target=target)
    assert "dr is cluster new; nothing was changed" in refused.value.meaning
    assert known_target_cluster(store, LINK.id) == "former"

    found = accept_target(store, LINK, "new", target=target)
    assert [(each.topic.topic, each.topic.target_topic_id, each.topic.epoch, each.stay) for each in found] == [
        ("flights", "made there", 2, 7),
        ("gone", "", 3, 0),
    ]
    assert known_target_cluster(store, LINK.id) == "new"
    assert not store.problems(LINK.id)
    (again,) = accept_target(store, LINK, "new", target=target)
    assert (again.topic.topic, again.topic.epoch, again.already) == ("gone", 3, True), "no mirror has begun it yet"
    decide(store, LINK, Direction.SEALED)
    with pytest.raises(Refused, match="is sealed"):
        accept_target(store, LINK, "new", target=target)


def test_a_problem_is_acknowledged_by_its_kind(store: Store) -> None:
    for topic in ("flights", "orders"):
        for kind in ("target_purged", "retention_gap"):
            store.put_problem(LINK.id, problem(kind, topic, 0, halted=False))
    _, done = acknowledge(store, LINK, "target_purged", "flights")
    assert [each.topic for each in done] == ["flights"]
    _, done = acknowledge(store, LINK, "retention_gap")
    assert [each.topic for each in done] == ["flights", "orders"]
    assert [(each.kind, each.topic) for each in store.problems(LINK.id)] == [("target_purged", "orders")]


def test_acknowledging_what_a_source_has_again_gives_up_what_was_named_and_no_more(store: Store) -> None:
    tp = TopicPartition("orders", 0)
    for first in (50, 100, 150):
        add_never_mirrored(store, LINK.id, tp, 1, first, first + 20)
    named = replace(problem(RECORDS_RETURNED, "orders", 0, halted=False), unsure_from=110, unsure_until=170)
    store.put_problem(LINK.id, named)
    _, done = acknowledge(store, LINK, RECORDS_RETURNED, "orders")
    assert done == [named]
    assert never_mirrored(store, LINK.id)[tp].ranges == ((50, 70), (100, 110))
    store.put_problem(LINK.id, replace(named, unsure_from=0))
    acknowledge(store, LINK, RECORDS_RETURNED, "orders")
    assert never_mirrored(store, LINK.id) == {}
    (given_up,) = store.problems(LINK.id)
    assert (given_up.kind, given_up.missing, given_up.halted) == (RECORDS_GIVEN_UP, None, False)
    assert [given_up.doubts(offset) for offset in (0, 109, 169, 170)] == [True, True, True, False]


def test_what_is_accepted_as_purged_is_noted_by_who_accepts_it(store: Store) -> None:
    """Nothing can be told from a problem that is gone."""
    tp, epoch = TopicPartition("orders", 0), 3
    store.put_topic_states(LINK.id, [TopicState("orders", "orders", "s", "t", epoch, 1, created_by_drkit=True)])
    for stretch in ((10, 20), (30, 40), (20, 25)):
        named = problem(TARGET_PURGED, "orders", 0, halted=False)
        store.put_problem(LINK.id, replace(named, unsure_from=stretch[0], unsure_until=stretch[1]))
        acknowledge(store, LINK, TARGET_PURGED, "orders")
    assert accepted_purges(store, LINK.id) == {(tp, epoch): ((10, 25), (30, 40))}
    assert store.problems(LINK.id) == []
    for end, left in ((50, ((10, 25), (30, 40))), (35, ((10, 25), (30, 35))), (30, ((10, 25),)), (0, ())):
        accept_no_longer(store, LINK.id, {(tp, epoch): end, (tp, epoch + 1): 0, (TopicPartition("orders", 1), 1): 0})
        assert accepted_purges(store, LINK.id) == {(tp, epoch): left}, "the target has the rest again"


@pytest.mark.parametrize(
    ("epoch", "compacted", "until"),
    [(3, False, 40), (3, True, 70), (2, True, None)],
    ids=["this gap", "a compacted log's", "a former topic's"],
)
def test_a_gap_that_is_accepted_is_a_hole(store: Store, epoch: int, compacted: bool, until: int | None) -> None:
    tp = TopicPartition("orders", 0)
    store.put_topic_states(LINK.id, [TopicState("orders", "orders", "s", "t", 3, 1, created_by_drkit=True)])
    store.put_watermarks(LINK.id, [Watermark("orders", 0, 3, 20, 20, 0, 70, 0, now())])
    put_source_gap(store, LINK.id, tp, epoch, (20, 40))
    store.put_problem(LINK.id, problem(SOURCE_GAP, "orders", 0))
    acknowledge(store, LINK, SOURCE_GAP, "orders", compacted=compacted)
    assert source_holes(store, LINK.id) == ({} if until is None else {tp: (3, until)})
    given_up = [(each.kind, each.unsure_from, each.unsure_until) for each in store.problems(LINK.id)]
    assert given_up == ([] if until is None else [(RECORDS_GIVEN_UP, 20, 40)])


def test_a_gap_that_ends_beyond_the_log_is_a_damaged_offset(store: Store) -> None:
    tp = TopicPartition("orders", 0)
    store.put_topic_states(LINK.id, [TopicState("orders", "orders", "s", "t", 3, 1, created_by_drkit=True)])
    store.put_watermarks(LINK.id, [Watermark("orders", 0, 3, 20, 20, 0, 40, 0, now())])
    put_source_gap(store, LINK.id, tp, 3, (20, 1020))
    store.put_problem(LINK.id, problem(SOURCE_GAP, "orders", 0))
    with pytest.raises(Refused, match="begins at 1020, but primary has offsets below 40 only"):
        acknowledge(store, LINK, SOURCE_GAP, "orders")
    assert source_holes(store, LINK.id) == {}
    assert [each.kind for each in store.problems(LINK.id)] == [SOURCE_GAP]


def test_of_very_many_ranges_the_lowest_are_told_again(store: Store) -> None:
    for number in range(MOST_RANGES + 1):
        accept_purge(store, LINK.id, TopicPartition("orders", 0), 1, 10 * number, 10 * number + 5)
    (ranges,) = accepted_purges(store, LINK.id).values()
    assert (len(ranges), ranges[0]) == (MOST_RANGES, (10, 15))
    accept_purge(store, LINK.id, TopicPartition("orders", 0), 2, 3, 4)
    assert list(accepted_purges(store, LINK.id).values()) == [((3, 4),)], "an earlier topic's say nothing"


@pytest.mark.parametrize(
    ("kind", "topic", "why", "remedy"),
    [
        ("target_purged", None, "for one topic at a time: it concerns flights", "--topic flights"),
        ("topic_recreated", "flights", "nothing of flights is mirrored", "--accept-recreated"),
        ("records_given_up", "flights", "nothing is left to decide", "a remedy"),
        ("store_recovered", "flights", "can't be acknowledged", "drkit mirror"),
        ("mapping_conflict", "flights", "as long as its cause is there", "a remedy; `drkit link resume"),
        ("foreign_writer", "flights", "as long as its cause is there", "a remedy"),
        ("source_truncated", "flights", "as long as its cause is there", "a remedy"),
        (
            "retention_gap",
            "flights",
            "no problem retention_gap of flights",
            "flights has foreign_writer, mapping_conflict, records_given_up",
        ),
        ("target_purged", "orders", "no problem target_purged of orders", "Nothing is on record there"),
    ],
)
def test_what_is_not_acknowledged_says_what_to_do(
    store: Store, kind: str, topic: str | None, why: str, remedy: str
) -> None:
    for known, halted in {
        "target_purged": False,
        "topic_recreated": True,
        "records_given_up": False,
        "store_recovered": False,
        "foreign_writer": True,
        "mapping_conflict": True,
        "source_truncated": True,
    }.items():
        store.put_problem(LINK.id, problem(known, "flights", None, halted=halted))
    with pytest.raises(Refused, match=why) as refused:
        acknowledge(store, LINK, kind, topic)
    assert remedy in (refused.value.remedy or "")
    assert len(store.problems(LINK.id)) == 7


def test_of_a_link_that_was_failed_over_nothing_is_acknowledged(store: Store) -> None:
    store.put_problem(LINK.id, problem("target_purged", "flights", 0, halted=False))
    decide(store, LINK, Direction.SEALED)
    with pytest.raises(Refused, match="sealed"):
        acknowledge(store, LINK, "target_purged", "flights")


@pytest.mark.parametrize("direction", [Direction.SEALED, Direction.REVERSED])
@pytest.mark.parametrize("kind", ["acl_removal_held", "audit_deviation", "copy_cut"])
def test_what_its_remedy_has_acknowledged_is_so_after_a_failover_too_and_removes_nothing(
    store: Store, direction: Direction, kind: str
) -> None:
    """The command that the problem names was refused; the rules are those of a cluster that clients use by now."""
    store.put_problem(LINK.id, problem(kind, "*", None, halted=False))
    store.put_notes(LINK.id, kind, {"a rule": ""})
    decide(store, LINK, direction)
    acknowledge(store, LINK, kind)
    assert store.problems(LINK.id) == []
    assert store.notes(LINK.id, kind) == {}, "the next mirror asks again before it removes anything"


def test_problems_are_told_once_kept_and_settled_by_partition(store: Store) -> None:
    told: list[Problem] = []
    problems = Problems(store, LINK.id, told.append)
    for partition in (0, 1):
        for _ in range(3):
            problems.put("foreign_writer", "flights", partition, "why", "do", halted=True)
    assert len(told) == 2
    problems.settle("flights", kinds=frozenset({"foreign_writer"}), partition=0)
    assert [(p.kind, p.partition) for p in store.problems(LINK.id)] == [("foreign_writer", 1)]
    assert [p.partition for p in problems.halted()] == [1]
    store.clear_problems(LINK.id, "flights")
    assert [p.partition for p in problems.follow()] == [1]
    assert problems.halted() == []


def test_a_worker_that_takes_a_partition_over_knows_what_is_on_record_for_it(store: Store) -> None:
    """Also what the worker before it found just now; and nothing that was cleared meanwhile."""
    mine, theirs = (Problems(store, LINK.id, lambda _: None) for _ in range(2))
    places = [TopicPartition("flights", number) for number in (0, 1)]
    mine.put_standing("source_truncated", places[1], 1, "why", "do", unsure=(7, None))
    theirs.put_standing("source_truncated", places[0], 1, "why", "do", unsure=(5, None))
    store.clear_problem(LINK.id, theirs.halted()[0])
    theirs.put_standing("foreign_writer", places[0], 1, "why", "do", unsure=(4, None))
    store.clear_problem(LINK.id, mine.halted()[0])
    mine.take_over(places[:1])
    assert not mine.halts(places[0]), "until it is found again"
    assert mine.standing("source_truncated", places[0], 1) is None
    assert (found := mine.standing("foreign_writer", places[0], 1)) is not None
    assert found.unsure_from == 4
    assert mine.awaits_operator(places[0])
    assert mine.awaits_operator(places[1]), "another partition isn't looked at"
    mine.take_over(places)
    assert not mine.awaits_operator(places[1])


def test_what_is_told_while_the_store_is_read_stays_known(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = Problems(store, LINK.id, lambda _: None)
    problems.put("retention_gap", "flights", 0, "lost 1 to 5", "do", halted=False)
    read = store.problems

    def read_then(link: LinkId) -> list[Problem]:
        found = read(link)
        problems.put("retention_gap", "flights", 0, "lost 1 to 9", "do", halted=False)
        problems.put("retention_gap", "flights", 1, "lost 3", "do", halted=False)
        return found

    monkeypatch.setattr(store, "problems", read_then)
    assert problems.follow() == []
    places = [TopicPartition("flights", number) for number in (0, 1)]
    assert all(problems.has("retention_gap", tp) for tp in places)
    assert problems.with_kind("retention_gap") == places


def test_losses_add_up(store: Store) -> None:
    problems = Problems(store, LINK.id, lambda _: None)
    for reason in ("lost 1 to 5", "lost 1 to 5", "lost 9 to 12"):
        problems.put("retention_gap", "flights", 0, reason, "do", halted=False, adds=True)
    (kept,) = store.problems(LINK.id)
    assert kept.reason == "lost 1 to 5; then lost 9 to 12"


def test_a_problem_of_an_earlier_run_halts_nothing_until_found_again(store: Store) -> None:
    kept = problem("record_rejected", "flights", 0)
    store.put_problem(LINK.id, kept)
    problems = Problems(store, LINK.id, lambda _: None)
    problems.follow()
    assert problems.halted() == []
    problems.put(kept.kind, kept.topic, kept.partition, kept.reason, kept.remedy, halted=True)
    assert [replace(p, since=kept.since) for p in problems.halted()] == [kept]
