"""The engine boundary over tasks: given out, handed over, lost, failing. Tasks are played by hand over real lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from drkit.mirror.engine.interface import Incident, PartitionProgress, PartitionStart, Stopped
from drkit.model.errors import DrkitError
from drkit.model.offsets import OffsetMapping
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition
from drkit.seed import engine
from drkit.seed.engine import SparkEngine
from drkit.seed.protocol import DriverConnection, rows_document, start_document, start_from
from tests.support.wait import wait_until

TP = TopicPartition("t", 0)
GOALS = {TopicPartition("t", number): 100 for number in range(3)}


class HandJobs:
    """Takes tasks up only when the test does."""

    host = bind = "127.0.0.1"
    port = 0

    def __init__(self) -> None:
        self.given: list[tuple[str, int, bytes, Callable[[BaseException | None], None]]] = []

    def slots(self) -> int:
        return 2

    def submit(self, task: str, port: int, key: bytes, ended: Callable[[BaseException | None], None]) -> None:
        self.given.append((task, port, key, ended))

    def close(self) -> None:
        """None runs by itself."""

    def take(self, number: int) -> tuple[str, DriverConnection]:
        """The id of the task given so many others before, and a line for it."""
        wait_until(lambda: len(self.given) > number, what="a task")
        name, port, key, _ = self.given[number]
        return name, DriverConnection(self.host, port, key)


class Made:
    def __init__(self) -> None:
        self.jobs = HandJobs()
        self.kept: list[OffsetMapping] = []
        self.may = True
        self.set_back = False
        self.refusal: Exception | None = None
        self.slow: Callable[[Any], None] | None = None
        self.engine = SparkEngine(
            self.jobs,
            lambda: GOALS,
            lambda read: [tp for tp in read if self.set_back],
            keep_rows=self.keep,
            may_produce=lambda: self.may,
        )
        self.engine.start([PartitionStart(TP, "t", 1, 0, 0, 0, 1_000, claim=7)])

    def keep(self, rows: Any, claims: Any) -> None:
        assert claims == {TP: 7}, "those with which the session started them"
        if self.refusal is not None:
            raise self.refusal
        if self.slow is not None:
            self.slow(rows)
        else:
            self.kept += rows


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    monkeypatch.setattr(engine, "VALID_SECONDS", 0.05)  # what a lost task is waited for
    world = Made()
    yield world
    world.engine.close()


def heartbeat(generation: int, through: int, **more: Any) -> dict[str, Any]:
    told = {"incidents": [], "notices": [], "in_flight": 0, "orders": 0, "unsettled": False}
    counted = EngineStatistics(records=through).document()
    return {"parts": [["t", 0, generation, through, through, -1, None]], "counted": counted, **told, **more}


def incident(made: SparkEngine) -> Incident:
    found: list[Incident] = wait_until(lambda: made.poll(0.05), what="an incident")
    return found[0]


def test_rows_are_kept_before_a_task_goes_on_and_progress_is_seen(made: Made) -> None:
    name, line = made.jobs.take(0)
    (work,) = line.ask("work", task=name)["work"]
    start, generation, until = start_from(work)
    assert (start.tp, until) == (TP, 100)
    row = OffsetMapping("t", 0, 1, 10, 12)
    assert line.ask("rows", task=name, rows=rows_document([row])) == {"kept": True, "withdrawn": []}
    assert made.kept == [row]
    answer = line.ask("rows", task=name, rows=rows_document([OffsetMapping("t", 1, 1, 0, 0)]))
    assert answer == {"kept": True, "withdrawn": [["t", 1]]}, "what isn't its own is not kept"
    assert made.kept == [row]
    made.refusal = Stopped()
    assert line.ask("rows", task=name, rows=rows_document([row])) == {"kept": False}
    made.refusal = DrkitError("no", remedy="never")
    assert line.ask("rows", task=name, rows=rows_document([row])) == {"failed": "no. never."}

    assert line.ask("heartbeat", task=name, **heartbeat(generation, 60))["valid"] > 0
    assert made.engine.positions() == {TP: PartitionProgress(60, 60)}
    made.may = False
    assert line.ask("heartbeat", task=name, **heartbeat(generation, 60))["valid"] == 0
    handed = [start_document(PartitionStart(TP, "t", 1, 100, 100, 0, 1_000), generation, 0)]
    line.ask("done", task=name, handed=handed, **heartbeat(generation, 100))
    assert made.engine.positions() == {TP: PartitionProgress(100, 100)}
    assert made.engine.moved() == 100
    assert made.engine.drain(1.0)
    assert line.ask("heartbeat", task=name, **heartbeat(generation, 100))["over"]
    line.close()


@pytest.mark.parametrize("set_back", [True, False])
def test_between_two_ranges_the_source_is_compared_with_what_was_read_last(made: Made, *, set_back: bool) -> None:
    """A cluster that was set back as a whole gives out its leader epochs again, so no fetch tells."""
    name, line = made.jobs.take(0)
    (work,) = line.ask("work", task=name)["work"]
    _, generation, _ = start_from(work)
    made.set_back = set_back
    handed = [start_document(PartitionStart(TP, "t", 1, 60, 60, 0, 1_000), generation, 0)]
    read = heartbeat(generation, 60) | {"parts": [["t", 0, generation, 60, 60, 0, [59, 1234]]]}
    line.ask("done", task=name, handed=handed, **read)
    line.close()
    if set_back:
        assert incident(made.engine).tp == TP
        assert len(made.jobs.given) == 1
        made.engine.start([PartitionStart(TP, "t", 1, 60, 60, 0, 1_000)])
    made.jobs.take(1)[1].close()


def lose_six(made: Made, lose: Callable[[int], None], cause: str) -> None:
    """Lose task after task, by number: five are incidents, the sixth ends the seed."""
    for number in range(6):
        lose(number)
        if number == 5:
            break
        assert "is gone" in incident(made.engine).reason
        made.engine.start([PartitionStart(TP, "t", 1, 0, 0, 0, 1_000)])
    with pytest.raises(RuntimeError, match=cause):
        wait_until(lambda: made.engine.poll(0.05), what="the end")


def test_a_line_that_breaks_is_an_incident_and_the_last_of_many_ends_it_with_the_cause(made: Made) -> None:
    def lose(number: int) -> None:
        name, line = made.jobs.take(number)
        line.ask("work", task=name)
        line.ask("heartbeat", task=name, **heartbeat(0, 0))  # of a generation that is none: nothing of it counts
        line.close()
        made.jobs.given[number][3](RuntimeError(f"cause {number}"))

    lose_six(made, lose, "cause")


def test_a_task_that_fails_before_it_began_ends_the_seed(made: Made) -> None:
    wait_until(lambda: made.jobs.given, what="a task")
    made.jobs.given[0][3](RuntimeError("no such module"))
    with pytest.raises(RuntimeError, match="no such module"):
        made.engine.poll(0.05)


def test_a_worker_that_died_before_it_began_is_a_loss_like_others_and_the_last_of_many_ends_it(made: Made) -> None:
    def lose(number: int) -> None:
        wait_until(lambda: len(made.jobs.given) > number, what="a task")
        made.jobs.given[number][3](RuntimeError(f"Python worker exited unexpectedly (crashed) {number}"))

    lose_six(made, lose, "exited unexpectedly")


def test_spark_may_say_that_a_task_is_over_when_it_is_long_forgotten(made: Made) -> None:
    name, line = made.jobs.take(0)
    line.ask("work", task=name)
    line.close()
    assert "is gone" in incident(made.engine).reason  # and with that it is forgotten
    made.jobs.given[0][3](RuntimeError("Connection reset"))
    made.engine.start([PartitionStart(TP, "t", 1, 0, 0, 0, 1_000)])
    made.jobs.take(1)[1].close()
    made.engine.poll(0.05)


def test_rows_of_partitions_that_are_still_a_task_s_are_kept_beside_those_of_one_taken_away(made: Made) -> None:
    other = TopicPartition("t", 1)
    made.engine.hold([TP, other])
    made.engine.start([PartitionStart(other, "t", 1, 0, 0, 0, 1_000)])
    made.engine.release([TP, other])
    names = {}
    for number in (0, 1):
        name, line = made.jobs.take(number)
        for each in line.ask("work", task=name)["work"]:
            names[start_from(each)[0].tp] = name, line
    name, line = names[TP]
    made.engine.forget([other])
    mine, gone = OffsetMapping("t", 0, 1, 10, 12), OffsetMapping("t", 1, 1, 10, 12)
    assert line.ask("rows", task=name, rows=rows_document([gone, mine])) == {"kept": True, "withdrawn": [["t", 1]]}
    assert made.kept == [mine]


def test_a_lost_partition_is_told_only_when_its_rows_are_in_the_store_or_never_will_be(made: Made) -> None:
    name, line = made.jobs.take(0)
    line.ask("work", task=name)
    rows, asked, go_on = DriverConnection("127.0.0.1", made.jobs.given[0][1], made.jobs.given[0][2]), Event(), Event()

    def slow(kept: Any) -> None:
        asked.set()
        assert go_on.wait(20)
        made.kept += kept

    made.slow = slow
    asking = Thread(target=lambda: rows.ask("rows", task=name, rows=rows_document([OffsetMapping("t", 0, 1, 1, 2)])))
    asking.start()
    assert asked.wait(20)
    made.engine.hold([TP])
    made.engine.start([PartitionStart(TopicPartition("t", 1), "t", 1, 0, 0, 0, 1_000)])
    line.close()
    following, other = made.jobs.take(1)  # a later task is lost and told of meanwhile
    other.ask("work", task=following)
    other.close()
    assert incident(made.engine).tp == TopicPartition("t", 1)
    assert made.kept == []
    go_on.set()
    assert incident(made.engine).tp == TP
    assert len(made.kept) == 1
    asking.join()
    rows.close()


@pytest.mark.parametrize("unsettled", [False, True])
def test_what_a_task_left_unanswered_may_still_be_written_after_the_seed(made: Made, unsettled: bool) -> None:
    name, line = made.jobs.take(0)
    line.ask("work", task=name)
    line.ask("done", task=name, handed=[], **heartbeat(0, 0, unsettled=unsettled))
    assert made.engine.unsettled() is unsettled


def test_tasks_share_the_link_s_limit_as_many_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "VALID_SECONDS", 0.05)
    jobs = HandJobs()
    limited = SparkEngine(
        jobs,
        lambda: GOALS,
        lambda _: (),
        keep_rows=lambda *_: None,
        may_produce=lambda: True,
        bytes_per_second=900,
    )
    try:
        limited.start([PartitionStart(TP, "t", 1, 0, 0, 0, 1_000)])
        name, line = jobs.take(0)
        assert line.ask("work", task=name)["share"] == 900, "one task, whatever room there is for more"
        limited.start([PartitionStart(TopicPartition("t", 1), "t", 1, 0, 0, 0, 1_000)])
        second, other = jobs.take(1)
        assert other.ask("work", task=second)["share"] == 450
        assert line.ask("heartbeat", task=name, **heartbeat(0, 0))["share"] == 450
        other.ask("done", task=second, handed=[], **heartbeat(0, 0))
        assert line.ask("heartbeat", task=name, **heartbeat(0, 0))["share"] == 900
    finally:
        limited.close()
