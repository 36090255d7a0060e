"""A target's log that loses its tail while nothing is written to it."""

from __future__ import annotations

from typing import Any

from drkit.mirror.engine.interface import PartitionProgress
from drkit.mirror.health.target_end_watch import TargetEnds
from drkit.model.topology import Link, LinkId, TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Target:
    def __init__(self) -> None:
        self.ends = {TP: 100, OTHER: 50}
        self.asked: list[set[TopicPartition]] = []

    def log_ends(self, tps: Any, **_: Any) -> dict[TopicPartition, int]:
        self.asked.append(set(tps))
        return {tp: self.ends[tp] for tp in tps if tp in self.ends}


def watch(**link: Any) -> tuple[TargetEnds, Target]:
    target = Target()
    return TargetEnds(Link(LinkId("a", "b"), topics=("t",), **link), target), target  # type: ignore[arg-type]  # as it answers here


def test_a_log_that_ends_below_what_was_acknowledged_has_lost_it() -> None:
    ends, target = watch()
    at = {TP: PartitionProgress(100, 100), OTHER: PartitionProgress(50, 50)}
    assert ends.look(at, at) == []
    assert ends.look(at, at) == []
    target.ends[TP] = 40
    (incident,) = ends.look(at, at)
    assert (incident.tp, incident.kind.value) == (TP, "uncertain")
    assert "ends at 40, 100 was acknowledged" in incident.reason


def test_only_partitions_that_rest_and_are_mirrored_are_asked_for() -> None:
    ends, target = watch()
    at = {TP: PartitionProgress(100, 100), OTHER: PartitionProgress(50, 50)}
    ends.look(at, at)
    assert target.asked == []
    ends.look(at | {TP: PartitionProgress(101, 101)}, at)
    assert target.asked == [{OTHER}]
    ends.look(at | {TP: PartitionProgress(101, 101)}, [TP])
    assert target.asked[-1] == {TP}


def test_what_has_no_leader_now_is_not_judged() -> None:
    ends, target = watch()
    at = {TP: PartitionProgress(100, 100)}
    ends.look(at, at)
    del target.ends[TP]
    assert ends.look(at, at) == []
