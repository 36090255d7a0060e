from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.lab.datasets.writing import Pacer


class Clock:
    """Time that passes only when waited for, or held up."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def _run(pacer, clock, records, held_up=None):
    """Send records at the pacer's pace; returns when each was sent, counted from the start."""
    started = clock.now
    at = []
    next_question = 0
    for sent in range(records):
        if sent >= next_question:
            clock.now += pacer.delay(sent)
            next_question = sent + pacer.quantum
        if held_up and sent == held_up[0]:
            clock.now += held_up[1]
        at.append(clock.now - started)
    return at


@given(rate=st.floats(0.1, 200_000), records=st.integers(2, 2000))
def test_each_record_is_sent_within_a_hundredth_of_a_second_of_its_time_and_none_late(rate, records):
    clock = Clock()
    pacer = Pacer(rate, clock=clock)
    for number, at in enumerate(_run(pacer, clock, records)):
        due = number / rate
        assert at <= due + 1e-6
        assert at >= due - 0.01 - 1e-6


def test_after_a_hold_up_it_catches_up_so_that_the_mean_is_exact():
    clock = Clock()
    pacer = Pacer(100, clock=clock)
    at = _run(pacer, clock, 1000, held_up=(200, 3.0))
    assert at[200] == pytest.approx(5.0)
    assert at[499] == pytest.approx(5.0)
    assert at[600] == pytest.approx(6.0)
    assert at[999] == pytest.approx(9.99)


def test_without_a_rate_nothing_waits():
    clock = Clock()
    pacer = Pacer(None, clock=clock)
    assert _run(pacer, clock, 5000)[-1] == 0


@pytest.mark.parametrize("rate", [0, -1, -0.5, float("nan")])
def test_a_rate_that_is_not_above_zero_is_refused(rate):
    with pytest.raises(ValueError, match="rate must be above 0"):
        Pacer(rate)
