"""Whether the clocks of both clusters and of this machine agree, as far as Kafka tells the time."""

from __future__ import annotations

import pytest

from drkit.kafka.admin.cluster_description import ControllerClock
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.clocks_check import ClusterClock, judged_clocks

HERE = ClusterClock("primary", ControllerClock(1, -0.02, 0.03))


def dr(least: float, most: float, others: tuple[int, ...] = ()) -> ClusterClock:
    return ClusterClock("dr", ControllerClock(7, least, most), others=others)


def test_clocks_that_agree_are_said_to_as_far_as_they_are_told():
    found = judged_clocks([HERE, dr(-0.1, 0.2)])
    assert found.outcome is CheckOutcome.OK
    assert found.reason == (
        "the active controller of primary (node 1) and the active controller of dr (node 7): no more than 5 s from "
        "this machine's"
    )
    assert "tells no time of other brokers (8, 9 of dr)" in judged_clocks([HERE, dr(-0.1, 0.2, (9, 8))]).reason


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (90.0, 90.1, "the active controller of dr (node 7) is at least 90.0 s ahead of this machine"),
        (-90.2, -90.1, "the active controller of dr (node 7) is at least 90.1 s behind this machine"),
    ],
)
def test_a_clock_that_is_surely_off_is_a_warning(least, most, said):
    found = judged_clocks([HERE, dr(least, most)])
    assert found.outcome is CheckOutcome.WARN
    assert said in found.reason
    assert "NTP" in found.remedy
    assert "`--at`" in found.remedy


def test_clusters_that_are_apart_from_each_other_are_named_though_each_is_near_this_machine():
    found = judged_clocks([ClusterClock("primary", ControllerClock(1, 3.0, 3.1)), dr(-3.1, -3.0)])
    assert found.reason == "the active controller of primary (node 1) is at least 6.0 s ahead of that of dr"


def test_an_answer_that_took_long_shows_nothing():
    found = judged_clocks([HERE, dr(-4.0, 6.0)])
    assert (found.outcome, "dr: its answer took 10.0 s" in found.reason) == (CheckOutcome.UNKNOWN, True)
    assert judged_clocks([HERE, dr(6.0, 16.0)]).outcome is CheckOutcome.WARN, "surely ahead"


def test_a_cluster_that_tells_no_time_is_unknown_with_the_reason():
    found = judged_clocks([HERE, ClusterClock("dr", reason="it tells no time")])
    assert found.outcome is CheckOutcome.UNKNOWN
    assert found.reason == "how far they are apart isn't known of dr: it tells no time"
    assert "date -u" in found.remedy
    both = judged_clocks(
        [ClusterClock("primary", ControllerClock(1, 8.0, 8.1)), ClusterClock("dr", reason="it is gone")]
    )
    assert both.outcome is CheckOutcome.WARN
    assert "not known of dr: it is gone" in both.reason
