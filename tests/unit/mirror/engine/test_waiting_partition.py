"""What a partition that doesn't move is said to wait for, and where it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from drkit.config import ClusterConfig
from drkit.mirror.engine.batch_engine import BatchEngine
from drkit.mirror.engine.interface import PartitionProgress, PartitionStart
from drkit.model.topology import TopicPartition
from tests.support.wait import wait_until

TP = TopicPartition("orders", 0)
NOBODY = ClusterConfig(bootstrap_servers="127.0.0.1:1")


@pytest.fixture
def engine() -> Iterator[BatchEngine]:
    made = BatchEngine(
        ("primary", NOBODY),
        ("dr", NOBODY),
        keep_rows=lambda *_: None,
        may_produce=lambda: True,
        trim=lambda *_: None,
    )
    yield made
    made.close()


def test_a_partition_without_a_known_leader_waits_for_that_and_not_for_records(engine: BatchEngine) -> None:
    assert engine.waits_for(TP) is None, "it is not mirrored here"
    engine.start([PartitionStart(TP, "orders", 1, 40, 40, 0, 1_000_000)])
    reason = wait_until(lambda: engine.waits_for(TP))
    assert reason == "its leader on the source, which is not known, at source offset 40"


def test_one_that_waits_for_its_next_start_is_nowhere(engine: BatchEngine) -> None:
    """Where its former start had brought it says nothing of where it will be."""
    engine.start([PartitionStart(TP, "orders", 1, 40, 40, 0, 1_000_000)])
    wait_until(lambda: engine.positions() == {TP: PartitionProgress(40, 40)}, what="its position")
    busy = threading.Event()
    engine._call(busy.wait, 10)
    engine.start([PartitionStart(TP, "orders", 1, 30, 40, 10, 1_000_000)])
    assert engine.positions() == engine.at_rest() == {}
    busy.set()
    wait_until(lambda: engine.positions() == {TP: PartitionProgress(30, 40)}, what="its position")


def test_an_engine_is_unsettled_by_what_a_partition_that_left_has_in_flight(engine: BatchEngine) -> None:
    engine.start([PartitionStart(TP, "orders", 1, 40, 40, 0, 1_000_000)])
    wait_until(lambda: TP in engine._partitions(), what="its start")
    engine._partitions()[TP].ask_end()
    engine.forget([TP])
    wait_until(lambda: engine.positions() == {}, what="its end")
    assert engine.unsettled()
