"""Leaders that are remembered between looks."""

from __future__ import annotations

from drkit.kafka.admin.logs.log_offsets import RecentLeaders
from drkit.model.topology import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_leaders_are_known_for_a_while_from_when_metadata_named_them() -> None:
    at = [100.0]
    leaders = RecentLeaders(lambda: at[0])
    assert leaders.among([A]) == ({}, [A])
    leaders.learn({A: (1, 7), B: (2, 7)})
    at[0] += 20
    leaders.learn({B: (1, 8), C: (2, 7)})
    epochs: dict[TopicPartition, int] = {}
    assert leaders.among([A, B, C], epochs) == ({1: [A, B], 2: [C]}, [])
    assert epochs == {A: 7, B: 8, C: 7}
    at[0] += 15
    assert leaders.among([A, B, C]) == ({1: [B], 2: [C]}, [A])


def test_one_that_gave_no_answer_is_looked_up_again() -> None:
    leaders = RecentLeaders(lambda: 0.0)
    leaders.learn({A: (1, 7), B: (1, 7)})
    leaders.forget([A, C])
    assert leaders.among([A, B]) == ({1: [B]}, [A])
