"""What a link's recovery point and state are."""

from dataclasses import replace

from drkit.observe.status import ClusterLogEnds, PartitionStatus, _recovery_point, _state

KNOWN = PartitionStatus("t", "t", 0, 0, 10, 10, 0, 10, 0, 3, 1.0)


def test_one_partition_that_is_not_known_makes_it_unknown_with_the_reason():
    unknown = replace(KNOWN, partition=1, lag_records=None, lag_seconds=None, lag_reason="nobody looked")
    assert _recovery_point([KNOWN, KNOWN], ClusterLogEnds()).records == 6
    point = _recovery_point([KNOWN, unknown], ClusterLogEnds())
    assert (point.records, point.seconds, point.reason) == (
        None,
        None,
        "how much is missing isn't known of t:1: nobody looked",
    )
    assert _recovery_point([], ClusterLogEnds()).reason == "nothing was mirrored yet"


def test_a_source_that_does_not_answer_makes_it_a_lower_bound():
    point = _recovery_point([KNOWN], ClusterLogEnds(reason="no broker"))
    assert (point.records, point.lower_bound, point.reason) == (3, True, "the source does not answer: no broker")


def test_a_mirror_that_runs_beside_a_silent_cluster_is_not_said_to_mirror():
    state, reason = _state(None, [], ["primary"], running=True, known=True)
    assert (state, "primary can't be read" in (reason or "")) == ("degraded", True)
    assert _state(None, [], [], running=True, known=True) == ("mirroring", None)
    assert _state(None, [], ["primary"], running=False, known=True)[0] == "stopped"
