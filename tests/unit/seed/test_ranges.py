"""Which ranges become which tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drkit.model.topology import TopicPartition
from drkit.seed.ledger import MOST_PARTITIONS, Ready, next_range, share_out


def ready(*lengths: int) -> list[Ready]:
    return [Ready(TopicPartition("t", number), 10, 10 + length) for number, length in enumerate(lengths)]


def test_a_long_partition_is_taken_piece_by_piece_and_short_ones_together() -> None:
    tasks = share_out(ready(5_000, 30, 40, 20), 2, most=1_000)
    assert tasks == [
        [Ready(TopicPartition("t", 0), 10, 1_010)],
        [Ready(TopicPartition("t", number), 10, 10 + length) for number, length in ((2, 40), (1, 30), (3, 20))],
    ]
    assert next_range(Ready(TopicPartition("t", 0), 1_010, 5_010), 1_000).until == 2_010
    assert share_out(ready(1), 0) == []
    assert share_out([], 3) == []


@given(st.lists(st.integers(0, 5_000), max_size=500), st.integers(1, 9), st.integers(1, 2_000))
def test_no_partition_is_with_two_tasks_and_none_gets_more_than_its_range(
    lengths: list[int], slots: int, most: int
) -> None:
    given_out = share_out(ready(*lengths), slots, most)
    flat = [each for task in given_out for each in task]
    assert len({each.tp for each in flat}) == len(flat)
    assert len(given_out) == min(slots, len(lengths))
    assert all(0 < len(task) <= MOST_PARTITIONS for task in given_out)
    assert all(each.until - each.first <= most for each in flat)
    for task in given_out:
        assert len(task) == 1 or sum(each.until - each.first for each in task) <= most
