"""A task's own loop, engine and driver played by hand: it settles under the driver's word, and never sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.engine.batch_engine import BatchEngine
from drkit.mirror.engine.interface import BatchBelow, PartitionProgress, PartitionStart, Stopped, Withdrawn
from drkit.mirror.engine.pacing.throttle import Throttle
from drkit.model.offsets import OffsetMapping
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition
from drkit.seed import task
from drkit.seed.protocol import DriverConnection, start_document
from drkit.seed.task import _Task

TP = TopicPartition("t", 0)
START = PartitionStart(TP, "t", 1, 0, 0, 0, 1_000)
ROWS = [OffsetMapping("t", 0, 1, 0, 0), OffsetMapping("t", 1, 1, 0, 0)]


class Driver:
    """The driver's end: `answers` by question, and what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.rows: Callable[[], dict[str, Any]] = lambda: {"kept": True, "withdrawn": []}
        self.valid = 5.0
        self.unsettled: bool | None = None

    def ask(self, what: str, **more: Any) -> dict[str, Any]:
        self.asked.append(what)
        self.unsettled = more.get("unsettled")
        if what == "rows":
            return self.rows()
        return {"valid": self.valid, "share": 700.0, "drop": [], "held": [], "orders": 1}


class Engine:
    """An engine that has read all, and gets so many acknowledgements, one at each look at what is in flight."""

    def __init__(self, unsettled: int, *, reached: bool = True) -> None:
        self.left = unsettled
        self.reached = reached
        self.closed = False
        self.looks = 0
        self.each_look: Callable[[], None] = lambda: None

    def start(self, _: Any) -> None:
        """Nothing is read."""

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        return {TP: PartitionProgress(100 if self.reached else 0, 100)}

    def poll(self, _: float) -> list[Any]:
        self.looks += 1
        assert self.looks < 1_000, "it continues for ever"
        self.each_look()
        return []

    def drain(self, _: float) -> bool:
        self.each_look()
        return self.left == 0

    def hold(self, _: Iterable[TopicPartition]) -> None:
        """Nothing is read."""

    release = forget = hold

    def moved(self) -> int:
        return 100 - self.left

    def in_flight(self) -> int:
        return self.left

    def unsettled(self) -> bool:
        assert self.closed, "nothing is sent any more"
        return self.left > 0

    def batches_below(self, _: object) -> dict[TopicPartition, BatchBelow]:
        return {}

    def notices(self) -> list[Any]:
        return []

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(records=self.moved())

    def close(self) -> None:
        self.closed = True

    def handed_over(self, _: TopicPartition) -> PartitionStart | None:
        return START if self.left == 0 else None


def made(driver: Driver, throttle: Throttle | None = None, valid: float = 5.0) -> _Task:
    order = {"valid": valid, "share": None, "work": [start_document(START, 1, 100)]}
    line, admin = cast("DriverConnection", driver), cast("ClusterAdmin", None)
    return _Task("seed-1", line, line, order, time.monotonic(), admin, throttle or Throttle(None))


def run(driven: _Task, engine: Engine) -> int:
    return driven.run(cast("BatchEngine", engine))


def test_the_right_to_produce_is_renewed_while_the_end_of_a_range_settles() -> None:
    driver, engine, throttle = Driver(), Engine(6), Throttle(1_000.0)
    driven = made(driver, throttle, valid=-1.0)  # the work's own right is over
    rights: list[bool] = []

    def look() -> None:
        if driven.valid():
            engine.left = max(0, engine.left - 1)
        rights.append(driven.valid())

    engine.each_look = look
    assert run(driven, engine) == 100
    assert driver.asked[-1] == "done"
    assert driver.asked.count("heartbeat") >= 2
    assert rights[-1]
    assert not driven.valid(), "nothing is sent after it was handed over"


def test_what_does_not_settle_is_given_up_after_a_while_and_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_SETTLE_SECONDS", 0.0)
    driver, engine = Driver(), Engine(3)
    run(made(driver), engine)
    assert (driver.asked[-1], driver.unsettled) == ("done", True), "the target may still get what wasn't answered"


def test_a_task_whose_rows_line_is_dead_ends_itself() -> None:
    driver, engine = Driver(), Engine(1, reached=False)
    driven = made(driver)

    def cut() -> dict[str, Any]:
        raise ConnectionResetError

    def look() -> None:
        with pytest.raises(Stopped):
            driven.keep_rows(ROWS, {})
        assert not driven.valid()

    driver.rows, engine.each_look = cut, look
    run(driven, engine)
    assert "done" not in driver.asked
    assert driver.asked.count("rows") == 1


def test_rows_that_were_not_kept_for_the_end_of_it_all_end_the_task() -> None:
    driver, engine = Driver(), Engine(1, reached=False)
    driven = made(driver)
    driver.rows = lambda: {"over": True, "kept": False}
    with pytest.raises(Stopped):
        driven.keep_rows(ROWS, {})
    run(driven, engine)
    assert "done" not in driver.asked


def test_partitions_that_are_not_its_own_any_more_are_named() -> None:
    driver = Driver()
    driven = made(driver)
    driver.rows = lambda: {"kept": True, "withdrawn": [["t", 1]]}
    with pytest.raises(Withdrawn) as found:
        driven.keep_rows(ROWS, {})
    assert found.value.tps == {TopicPartition("t", 1)}
    assert driven.valid()


def test_the_share_of_the_limit_is_what_the_driver_said_last() -> None:
    driver, throttle = Driver(), Throttle(10.0, lambda: 0.0, filled=False)
    run(made(driver, throttle), engine := Engine(0))
    assert engine.closed
    settling = Engine(1)
    settling.each_look = lambda: setattr(settling, "left", 0 if "heartbeat" in driver.asked else 1)
    run(made(driver, throttle), settling)
    assert throttle.take(700) == pytest.approx(1.0)
