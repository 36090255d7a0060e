"""Progress of Spark's work on a log, and how a signal ends a verb that uses it."""

from __future__ import annotations

import os
import signal

import pytest

from drkit.cli.wiring.context import TermSignal, ending_in_order
from drkit.cli.wiring.spark_options import _Lines


def test_a_log_has_a_line_for_each_step_and_each_quarter_of_its_tasks():
    said: list[str] = []
    lines = _Lines(said.append)
    lines.step("reading both sides")
    for done in range(9):
        lines.tasks(done, 8)
    lines.step("writing findings")
    lines.tasks(1, 2)  # over before anybody reads it
    assert said == [
        "reading both sides",
        "reading both sides: 25% (2 of 8 tasks)",
        "reading both sides: 50% (4 of 8 tasks)",
        "reading both sides: 75% (6 of 8 tasks)",
        "reading both sides: 100% (8 of 8 tasks)",
        "writing findings",
    ]


def test_sigterm_ends_a_block_as_ctrl_c_does_and_only_once():
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(TermSignal), ending_in_order():
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN  # what cleans up is not cut short by another
    finally:
        signal.signal(signal.SIGTERM, before)
    with ending_in_order():
        pass
    assert signal.getsignal(signal.SIGTERM) == before
