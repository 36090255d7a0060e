"""Progress of Spark's work on a log."""

from __future__ import annotations

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
