from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.mirror.engine.inflight_window import InFlight
from drkit.mirror.engine.interface import PartitionProgress


def test_a_stretch_counts_when_its_last_record_landed_where_expected() -> None:
    window = InFlight(100, 40)
    mark = window.send(105, 43)
    assert window.position == PartitionProgress(100, 40)
    assert window.acknowledge(mark, 42) == 3
    assert window.position == PartitionProgress(105, 43)
    assert len(window) == 0


def test_a_later_stretch_waits_for_the_earlier_one() -> None:
    window = InFlight(0, 0)
    first, second = window.send(10, 10), window.send(20, 20)
    assert window.acknowledge(second, 19) == 0
    assert window.position == PartitionProgress(0, 0)
    assert window.acknowledge(first, 9) == 20
    assert window.position == PartitionProgress(20, 20)


@pytest.mark.parametrize("landed", [8, 10, -1])
def test_another_offset_than_expected_stops_the_window(landed: int) -> None:
    window = InFlight(0, 0)
    mark, later = window.send(10, 10), window.send(20, 20)
    assert window.acknowledge(mark, landed) == 0
    assert window.stopped == f"a record expected at target offset 9 landed at {landed}"
    assert window.acknowledge(later, 19) == 0
    assert window.position == PartitionProgress(0, 0)


def test_a_trailing_hole_counts_at_once_when_nothing_is_in_flight() -> None:
    window = InFlight(7, 3)
    window.hole(9)
    assert window.position == PartitionProgress(9, 3)


def test_a_trailing_hole_counts_only_after_what_was_sent_before_it() -> None:
    window = InFlight(100, 40)
    mark = window.send(105, 43)
    window.hole(106)
    assert window.position == PartitionProgress(100, 40)
    assert window.acknowledge(mark, 42) == 3
    assert window.position == PartitionProgress(106, 43)


def test_a_hole_below_what_was_sent_says_nothing() -> None:
    window = InFlight(0, 0)
    window.send(10, 10)
    window.hole(8)
    assert window.position == PartitionProgress(0, 0)
    assert len(window) == 1


def test_the_first_reason_stays() -> None:
    window = InFlight(0, 0)
    window.stop("one")
    window.stop("two")
    assert window.stopped == "one"


@given(
    stretches=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=30),
    seed=st.integers(0, 1000),
)
def test_whatever_the_order_of_acknowledgements_the_position_is_contiguous(
    stretches: list[tuple[int, int]], seed: int
) -> None:
    """The position is always the end of the longest run of acknowledged stretches from the start."""
    window = InFlight(0, 0)
    source = target = 0
    sent = []
    for records, hole in stretches:
        source, target = source + records + hole, target + records
        sent.append((window.send(source, target), PartitionProgress(source, target)))
    order = list(range(len(sent)))
    random.Random(seed).shuffle(order)  # noqa: S311 - repeatable, not secret
    done: set[int] = set()
    completed = 0
    for index in order:
        mark, after = sent[index]
        completed += window.acknowledge(mark, after.target_end - 1)
        done.add(index)
        run = next((i for i in range(len(sent)) if i not in done), len(sent))
        assert window.position == (sent[run - 1][1] if run else PartitionProgress(0, 0))
        assert completed == window.position.target_end
    assert len(window) == 0
