"""The clock that dates Cassandra's writes."""

from __future__ import annotations

from drkit.store.cassandra.session import ClusterClock


class Wall:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def test_it_grows_even_where_the_wall_clock_stands_or_goes_back():
    wall = Wall(1000.0)
    clock = ClusterClock(wall)
    first = [clock() for _ in range(3)]
    assert first == [1_000_000_000, 1_000_000_001, 1_000_000_002]
    wall.seconds = 900.0
    assert clock() == 1_000_000_003
    wall.seconds = 1001.0
    assert clock() == 1_001_000_000


def test_a_small_difference_is_taken_for_the_measurements_own():
    clock = ClusterClock(Wall(1000.0))
    clock.compare(1000.4, 999.99, 1000.01)
    assert clock() == 1_000_000_000
    clock.compare(1003.0, 997.0, 1003.0)
    assert clock() == 1_000_000_001, "a slow answer says little"


def test_a_wrong_clock_is_put_right_in_either_direction():
    for skew in (3600, -3600):
        clock = ClusterClock(Wall(10_000.0))
        clock()
        clock.compare(10_000.0 + skew, 9_999.99, 10_000.01)
        assert clock() == (10_000 + skew) * 1_000_000
