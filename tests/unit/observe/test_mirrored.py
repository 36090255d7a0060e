"""What is said to be mirrored once a problem tells that the logs aren't those any more that were mirrored."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.model.link_state import Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import TopicPartition
from drkit.observe.purges import purged_from_target
from drkit.observe.status import PartitionStatus, RecoveryPoint, _recovery_point, _state, still_mirrored

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
MARK = Watermark("t", 0, 1, 1_000, 1_000, 0, 1_000, 0, AT)
TRUNCATED = Problem("source_truncated", "t", 0, "", "", halted=True, since=AT, unsure_from=940)
RECREATED = Problem("topic_recreated", "t", None, "", "", halted=True, since=AT)


@pytest.mark.parametrize(
    ("problems", "through"),
    [
        ([], (1_000, None)),
        ([TRUNCATED], (940, AT)),
        ([replace(TRUNCATED, partition=1)], (1_000, None)),
        ([replace(TRUNCATED, topic="other")], (1_000, None)),
        ([replace(TRUNCATED, unsure_from=2_000)], (1_000, AT)),
        ([replace(TRUNCATED, kind="foreign_writer")], (940, AT)),
        ([replace(TRUNCATED, kind="records_misplaced", halted=False)], (1_000, None)),
        ([RECREATED], (None, AT)),
        ([replace(RECREATED, kind="target_recreated")], (None, AT)),
    ],
)
def test_what_still_is_mirrored(problems, through):
    assert still_mirrored(MARK, problems) == through


PURGED = replace(TRUNCATED, kind="target_purged", halted=False, unsure_from=100, unsure_until=300)


@pytest.mark.parametrize(("source_start", "stretch"), [(0, (100, 300)), (150, (150, 300)), (300, None), (900, None)])
def test_what_was_removed_from_the_target_counts_as_far_as_the_source_holds_it(source_start, stretch):
    found = purged_from_target(TopicPartition("t", 0), [TRUNCATED, PURGED], source_start)
    assert (None if found is None else (found.begin, found.until)) == stretch
    assert purged_from_target(TopicPartition("t", 1), [PURGED], 0) is None


def test_one_partition_that_is_not_known_makes_the_recovery_point_unknown():
    known = PartitionStatus("t", "t", 0, 0, 10, 10, 0, 10, 0, 3, 1.0)
    unknown = replace(known, lag_records=None, lag_seconds=None)
    assert _recovery_point([known, known], lower_bound=False) == RecoveryPoint(6, 1.0)
    assert _recovery_point([known, known], lower_bound=True) == RecoveryPoint(6, 1.0, lower_bound=True)
    assert _recovery_point([known, unknown], lower_bound=True) == RecoveryPoint(None, None)


def test_a_mirror_that_runs_beside_a_silent_cluster_is_not_said_to_mirror():
    state, reason = _state(None, [], ["primary"], running=True, known=True)
    assert (state, "primary can't be read" in (reason or "")) == ("degraded", True)
    assert _state(None, [], [], running=True, known=True) == ("mirroring", None)
    assert _state(None, [], ["primary"], running=False, known=True)[0] == "stopped"
