"""What a partition that doesn't move is said to wait for."""

from __future__ import annotations

from drkit.config import ClusterConfig
from drkit.mirror.engine.batch_engine import BatchEngine
from drkit.mirror.engine.interface import PartitionStart
from drkit.model.topology import TopicPartition
from tests.support.wait import wait_until

TP = TopicPartition("orders", 0)
NOBODY = ClusterConfig(bootstrap_servers="127.0.0.1:1")


def test_a_partition_without_a_known_leader_waits_for_that_and_not_for_records() -> None:
    engine = BatchEngine(
        ("primary", NOBODY),
        ("dr", NOBODY),
        keep_rows=lambda *_: None,
        may_produce=lambda: True,
        trim=lambda *_: None,
    )
    try:
        assert engine.waits_for(TP) is None, "it is not mirrored here"
        engine.start([PartitionStart(TP, "orders", 1, 40, 40, 0, 1_000_000)])
        reason = wait_until(lambda: engine.waits_for(TP))
        assert reason == "its leader on the source, which is not known, at source offset 40"
    finally:
        engine.close()
