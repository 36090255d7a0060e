from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from drkit.mirror.progress import _ENDS_KEPT, SeenEnds

START = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def test_caught_up_is_not_behind() -> None:
    ends = SeenEnds()
    ends.note(at(0), 10)
    assert ends.behind_since(10) is None


def test_behind_since_the_first_sight_of_an_end_beyond_the_position() -> None:
    ends = SeenEnds()
    for second, end in enumerate([10, 20, 30, 40]):
        ends.note(at(second), end)
    assert ends.behind_since(5) == at(0)
    assert ends.behind_since(10) == at(1)
    assert ends.behind_since(25) == at(2)
    assert ends.behind_since(40) is None


def test_under_steady_load_the_lag_stays_that_of_the_present_position() -> None:
    """A mirror that is always a second behind is not behind since the beginning."""
    ends = SeenEnds()
    for second in range(100):
        ends.note(at(second), second * 10 + 10)
        assert ends.behind_since(second * 10) == at(second)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=_ENDS_KEPT * 3),
    st.integers(0, 10_000),
)
def test_many_ends_never_make_the_answer_younger(steps: list[int], through: int) -> None:
    ends = SeenEnds()
    seen: list[tuple[datetime, int]] = []
    end = 0
    for second, step in enumerate(steps):
        end += step
        ends.note(at(second), end)
        seen.append((at(second), end))
    truth = next((when for when, value in seen if value > through), None)
    answer = ends.behind_since(through)
    if truth is None:
        assert answer is None
    else:
        assert answer is not None
        assert answer <= truth
