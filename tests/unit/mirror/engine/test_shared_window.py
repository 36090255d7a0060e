"""The window of a partition with other writers: records land anywhere above, in order."""

from __future__ import annotations

from drkit.mirror.engine.inflight_window import SharedInFlight
from drkit.mirror.engine.interface import PartitionProgress


def test_acknowledgements_count_wherever_they_land() -> None:
    window = SharedInFlight(100, 500)
    first, second = window.send(103, 503), window.send(105, 505)
    assert window.acknowledge(second, 530) == 0, "the first is not known yet"
    assert window.position == PartitionProgress(100, 500)
    assert window.acknowledge(first, 520) == 5
    assert window.position.source_through == 105
    assert window.position.target_end >= 521
    assert window.stopped is None


def test_holes_keep_the_newest_place_known() -> None:
    window = SharedInFlight(0, 10)
    mark = window.send(2, 12)
    window.hole(5)
    assert window.acknowledge(mark, 90) == 2
    assert window.position == PartitionProgress(5, 91)
    window.hole(9)
    assert window.position == PartitionProgress(9, 91)


def test_a_stopped_window_counts_nothing() -> None:
    window = SharedInFlight(0, 0)
    mark = window.send(2, 2)
    window.stop("told so")
    assert window.acknowledge(mark, 1) == 0
    assert window.position == PartitionProgress(0, 0)


def test_an_answer_that_names_an_older_place_stands_for_another_worker_s_batch() -> None:
    """The broker tells copies by their sequence numbers and says where the first one landed."""
    window = SharedInFlight(100, 500)
    mark = window.send(103, 503)
    assert window.acknowledge(mark, 499) == 0
    assert window.position == PartitionProgress(100, 500)
    assert "500 or above was reported at 499" in str(window.stopped)
    window = SharedInFlight(100, 500)
    first, second = window.send(101, 501), window.send(102, 502)
    assert window.acknowledge(first, 510) == 1
    assert window.acknowledge(second, 505) == 0
    assert window.position == PartitionProgress(101, 511)
