"""The book of a seed: one task a partition, exact hand-over, and nothing believed of a task that is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drkit.mirror.engine.interface import Incident, IncidentKind, Notice, PartitionProgress, PartitionStart
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition
from drkit.seed.ledger import SeedLedger, share_out
from drkit.seed.protocol import incident_document, notice_document, start_document, start_from

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> SeedLedger:
    made = SeedLedger(clock)
    made.start([begin(A), begin(B)])
    made.set_ends({A: 100, B: 60})
    return made


def begin(tp: TopicPartition, source: int = 0, **more: Any) -> PartitionStart:
    return PartitionStart(tp, "t", 1, source, source + 5, 5, 1_000_000, producer_id=9, sequence=source, **more)


def give(ledger: SeedLedger, most: int = 50) -> str:
    """One task with all that is ready; it has begun and may produce."""
    name = ledger.give([each for task in share_out(ledger.ready(), 9, most) for each in task])
    assert ledger.take_up(name) is not None
    ledger.grant(name, 1.5)
    return name


def said(*parts: tuple[TopicPartition, int, int], **more: Any) -> dict[str, Any]:
    """A heartbeat: partition, generation, source offset."""
    told = {"incidents": [], "notices": [], "in_flight": 0, "orders": 0, "counted": EngineStatistics().document()}
    rows = [
        [tp.topic, tp.partition, generation, through, through + 5, 3, [through - 1, 7]]
        for tp, generation, through in parts
    ]
    return {"parts": rows, **told, **more}


def incidents(ledger: SeedLedger) -> list[Incident]:
    found = []
    while not ledger.incidents.empty():
        found.append(ledger.incidents.get())
    return found


def test_a_partition_goes_on_from_exactly_where_its_task_handed_it_over(ledger: SeedLedger) -> None:
    name = give(ledger)
    assert ledger.ready() == []
    assert ledger.running() == 1
    left = replace(begin(A, 70), delta=7, sequence=4)  # it read beyond its range
    ledger.done(name, [start_document(left, 1, 0), start_document(begin(B, 60), 2, 0)])
    assert ledger.positions() == {A: PartitionProgress(70, 75), B: PartitionProgress(60, 65)}
    assert [(each.tp, each.first, each.until) for each in ledger.ready()] == [(A, 70, 100)]
    following = ledger.give(ledger.ready())
    (work,) = ledger.take_up(following) or []
    assert start_from(work)[0] == left
    assert incidents(ledger) == []


def test_what_was_not_handed_over_is_looked_for(ledger: SeedLedger) -> None:
    name = give(ledger)
    ledger.done(name, [start_document(begin(A, 100), 1, 0)])
    assert [(each.tp, each.kind) for each in incidents(ledger)] == [(B, IncidentKind.UNCERTAIN)]
    assert ledger.ready() == []


def test_a_lost_task_keeps_its_partitions_until_it_can_not_produce_any_more(ledger: SeedLedger, clock: Clock) -> None:
    name = give(ledger)
    ledger.heartbeat(name, said((A, 1, 40)))
    clock.at = 1.0
    ledger.grant(name, 0.0)  # it may not have heard this
    ledger.gone(name)
    assert not ledger.alive(name)
    ledger.find_lost()
    assert incidents(ledger) == []
    clock.at = 1.6
    ledger.find_lost()
    assert sorted(each.tp for each in incidents(ledger)) == [A, B]
    assert ledger.ready() == []
    ledger.start([begin(A, 45)])  # the session has looked at both clusters
    ledger.set_ends({A: 100})
    assert [(each.tp, each.first) for each in ledger.ready()] == [(A, 45)]


def test_a_late_word_changes_nothing(ledger: SeedLedger) -> None:
    name = give(ledger)
    ledger.start([begin(A, 10)])
    answer = ledger.heartbeat(name, said((A, 1, 90), (B, 2, 20)))
    assert answer["drop"] == [["t", 0]]
    assert ledger.positions() == {A: PartitionProgress(10, 15), B: PartitionProgress(20, 25)}
    assert ledger.keep(name, [A, B]).keys() == {B}
    assert ledger.take_up(name) is None  # another attempt at it


def test_incidents_notices_and_orders_pass(ledger: SeedLedger) -> None:
    name = give(ledger)
    incident = Incident(A, IncidentKind.REJECTED, "too large", "Raise it")
    notice = Notice(B, "offsets_differ", "a hole", "Nothing")
    ledger.hold([B])
    assert ledger.in_flight() == 1  # it hasn't heard
    answer = ledger.heartbeat(
        name, said((A, 1, 30), (B, 2, 7), incidents=[incident_document(incident)], notices=[notice_document(notice)])
    )
    assert incidents(ledger) == [incident]
    assert ledger.notices.get() == notice
    assert answer["held"] == [["t", 1]]
    ledger.heartbeat(name, said((B, 2, 7), orders=answer["orders"]))
    assert ledger.in_flight() == 0
    ledger.done(name, [start_document(begin(B, 7), 2, 0)])
    assert ledger.ready() == []  # A stands still, B is held
    ledger.release([B])
    assert [each.tp for each in ledger.ready()] == [B]


def test_an_empty_partition_is_given_out_only_to_be_filled(clock: Clock) -> None:
    ledger = SeedLedger(clock)
    ledger.start([begin(A, 50), begin(B, 50, fill_to=50)])
    ledger.set_ends({A: 50, B: 50})
    assert [each.tp for each in ledger.ready()] == [B]


def test_only_what_a_task_is_to_move_now_may_be_stuck(clock: Clock) -> None:
    c, later = TopicPartition("t", 2), TopicPartition("t", 3)
    ledger = SeedLedger(clock)
    ledger.start([begin(A), begin(B), begin(c, 50)])
    assert ledger.unasked() == set(), "nobody has said where they end"
    ledger.set_ends({A: 100, B: 60, c: 40})
    assert ledger.endless() is False
    assert ledger.unasked() == {c}, "what the goal lies behind of is copied; nothing runs that the others wait for"

    name = ledger.give([each for each in ledger.ready() if each.tp == A])
    assert ledger.unasked() == {A, B, c}, "Spark hasn't begun the task yet"
    assert ledger.take_up(name) is not None
    assert ledger.unasked() == {B, c}, "a task has A, and B waits for its end"
    ledger.heartbeat(name, said((A, 1, 100)))
    assert ledger.unasked() == {A, B, c}, "its range is copied"
    ledger.done(name, [start_document(begin(A, 100), 1, 0)])
    assert ledger.unasked() == {A, c}, "B could be given out"

    name = give(ledger)
    ledger.heartbeat(name, said(incidents=[incident_document(Incident(B, IncidentKind.UNCERTAIN, "why"))]))
    assert B not in ledger.unasked(), "it stands still until the session has settled that"
    ledger.start([begin(later)])
    assert later in ledger.unasked(), "a task runs"
    ledger.set_ends({A: 100, B: 60, c: 40})
    ledger.done(name, [])
    assert later in ledger.unasked(), "it came later than the goals: the mirror copies it"
    assert (ledger.endless(), later in {each.tp for each in ledger.ready()}) == (False, False)


def test_counters_survive_their_tasks_and_losses_without_progress_are_counted(ledger: SeedLedger, clock: Clock) -> None:
    for round_number, moved in enumerate((10, 0, 0)):
        name = give(ledger)
        counted = EngineStatistics(records=moved, batches_rebuilt={"aborted": 1}).document()
        ledger.heartbeat(name, said(counted=counted))
        ledger.gone(name)
        clock.at += 5
        ledger.find_lost()
        ledger.start([begin(A, round_number), begin(B)])
        ledger.set_ends({A: 100, B: 60})
    assert ledger.losses == 3
    assert ledger.statistics().records == 10
    assert ledger.statistics().batches_rebuilt == {"aborted": 3}


def test_waiting_for_spark_is_noticed_only_while_nothing_runs(ledger: SeedLedger, clock: Clock) -> None:
    assert ledger.idle_seconds() == 0
    name = ledger.give(ledger.ready())
    clock.at = 30.0
    assert ledger.idle_seconds() == 30.0
    ledger.take_up(name)
    assert ledger.idle_seconds() == 0


def test_tasks_that_ran_side_by_side_are_one_loss(clock: Clock) -> None:
    """An executor that dies takes all of its tasks with it, and those not heard of before are noticed in turn."""
    ledger = SeedLedger(clock)
    places = [TopicPartition("t", number) for number in range(9)]

    def begin_all() -> list[str]:
        ledger.start([begin(tp) for tp in places])
        ledger.set_ends(dict.fromkeys(places, 100))
        names = [ledger.give([each]) for each in ledger.ready()]
        for name in names:
            ledger.take_up(name)
        return names

    def lose(names: list[str]) -> None:
        for name in names:
            clock.at += 0.1
            ledger.gone(name)
        clock.at += 5.0
        ledger.find_lost()

    for losses in (1, 2, 3):
        lose(begin_all())
        assert ledger.losses == losses
    names = begin_all()
    ledger.heartbeat(names[0], said(counted=EngineStatistics(records=10).document()))
    lose(names)
    assert ledger.losses == 1


def test_no_partition_is_looked_at_while_rows_of_it_may_still_land(ledger: SeedLedger, clock: Clock) -> None:
    name = give(ledger)
    assert ledger.keep(name, [A]).keys() == {A}
    assert ledger.keep(name, [A, B]).keys() == {A, B}
    ledger.kept([A, B])
    ledger.gone(name)
    clock.at = 5.0
    ledger.find_lost()
    assert [each.tp for each in incidents(ledger)] == [B], "rows of A are on their way into the store"
    assert [each.tp for each in ledger.ready()] == []
    ledger.kept([A])
    assert [each.tp for each in incidents(ledger)] == [A]

    name = give_anew(ledger)
    ledger.keep(name, [A])
    ledger.done(name, [])
    ledger.start([begin(A)])  # the session took it up for another reason
    ledger.kept([A])
    assert [each.tp for each in incidents(ledger)] == [B], "what was to be told is out of date"


def give_anew(ledger: SeedLedger) -> str:
    ledger.start([begin(A), begin(B)])
    ledger.set_ends({A: 100, B: 60})
    return give(ledger)
