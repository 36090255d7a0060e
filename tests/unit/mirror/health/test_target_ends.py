"""A target's log that loses its tail, or takes another client's records, while the mirror writes nothing to it."""

from __future__ import annotations

from typing import Any

import pytest

from drkit.mirror.engine.interface import PartitionProgress, PartitionStart
from drkit.mirror.health.truncation_watches import TargetEnds
from drkit.model.topology import Link, LinkId, TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Target:
    def __init__(self) -> None:
        self.ends = {TP: 100, OTHER: 50}
        self.epochs = {TP: 5, OTHER: 5}
        self.asked: list[set[TopicPartition]] = []
        self.quiet: dict[TopicPartition, PartitionProgress] = {}

    def leader_epochs(self, tps: Any) -> dict[TopicPartition, int]:
        return {tp: self.epochs[tp] for tp in tps}

    def log_ends(self, tps: Any, **_: Any) -> dict[TopicPartition, int]:
        self.asked.append(set(tps))
        return {tp: self.ends[tp] for tp in tps if tp in self.ends}


def watch(**link: Any) -> tuple[TargetEnds, Target]:
    target = Target()
    return TargetEnds(Link(LinkId("a", "b"), topics=("t",), **link), target, lambda: target.quiet), target  # type: ignore[arg-type]  # as it answers here


def test_a_log_that_ends_below_what_was_acknowledged_has_lost_it() -> None:
    ends, target = watch()
    at = {TP: PartitionProgress(100, 100), OTHER: PartitionProgress(50, 50)}
    assert ends.check(at, at) == []
    assert ends.check(at, at) == []
    target.ends[TP] = 40
    (incident,) = ends.check(at, at)
    assert (incident.tp, incident.kind.value) == (TP, "uncertain")
    assert "ends at 40, 100 was acknowledged" in incident.reason


def test_only_partitions_that_rest_and_are_mirrored_are_asked_for() -> None:
    ends, target = watch()
    at = {TP: PartitionProgress(100, 100), OTHER: PartitionProgress(50, 50)}
    ends.check(at, at)
    assert target.asked == []
    ends.check(at | {TP: PartitionProgress(101, 101)}, at)
    assert target.asked == [{OTHER}]
    ends.check(at | {TP: PartitionProgress(101, 101)}, [TP])
    assert target.asked[-1] == {TP}


def test_what_has_no_leader_now_is_not_judged() -> None:
    ends, target = watch()
    at = {TP: PartitionProgress(100, 100)}
    ends.check(at, at)
    del target.ends[TP]
    assert ends.check(at, at) == []


def test_where_others_write_too_another_leaders_time_is_what_tells() -> None:
    ends, target = watch(shares_target=True)
    at = {TP: PartitionProgress(100, 100), OTHER: PartitionProgress(50, 50)}
    ends.begin(PartitionStart(tp, "t", 1, 0, 0, 0, 1_000, target_leader_epoch=5) for tp in at)
    assert ends.check(at, at) == []
    target.epochs[TP] = 6
    (incident,) = ends.check(at, at)
    assert (incident.tp, incident.kind.value) == (TP, "uncertain")
    assert ends.check(at, at) == [], "it is taken up again"
    assert ends.check(at, [OTHER]) == []


def test_a_log_that_ends_above_what_rests_twice_was_written_by_others() -> None:
    ends, target = watch()
    at = target.quiet = {TP: PartitionProgress(100, 100), OTHER: PartitionProgress(0, 0)}
    ends.check(at, at)
    target.ends = {TP: 101, OTHER: 3}
    assert ends.check(at, at) == [], "it may be on its way to the position"
    assert {(each.tp, each.kind.value) for each in ends.check(at, at)} == {(TP, "uncertain"), (OTHER, "uncertain")}
    assert ends.check(at, at) == [], "it is taken up again"


@pytest.mark.parametrize("what", ["in flight", "acknowledged since", "a way back"])
def test_what_the_mirror_may_have_written_itself_is_nobody_elses(what: str) -> None:
    """Behind a failback's switch clients write to the target of the way back."""
    ends, target = watch(inverse=what == "a way back")
    at = {TP: PartitionProgress(100, 100)}
    target.quiet = {"in flight": {}, "acknowledged since": {TP: PartitionProgress(101, 101)}}.get(what, at)
    target.ends[TP] = 101
    assert [ends.check(at, at) for _ in range(4)] == [[]] * 4
