"""Kept drills as people read them."""

from io import StringIO

import pytest
from rich.console import Console

from drkit.cli.views.drill_view import show_history
from drkit.drill.judge.result import DrillHistory, DrillSummary
from drkit.model.clock import now

TITLE = "The primary is lost while its consumers lag far behind the end of the log"


def drill(number, verdict, reason):
    return DrillSummary(
        run=f"drill-20261127T14533{number}Z-7f9b22",
        title=TITLE,
        verdict=verdict,
        started_at=now(),
        seconds=41.6,
        rpo_records=0 if verdict else None,
        rto_seconds=7.43 if verdict else None,
        folder="kept",
        reason=reason,
    )


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_each_drill_has_its_whole_title_and_the_reason_of_one_that_failed_is_below(width):
    console = Console(file=StringIO(), width=width, color_system=None)
    drills = [drill(1, "passed", None), drill(2, None, "it left no result: it was killed")]
    show_history(console, DrillHistory(drills=drills))
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    title_at = lines[0].index("title")
    begins = [number for number, line in enumerate(lines) if line.startswith("drill-")]
    assert [lines[number].split()[:2] for number in begins] == [[drills[0].run, "passed"], [drills[1].run, "unknown"]]
    below = next(number for number, line in enumerate(lines) if line.startswith("·"))
    for begin, end in zip(begins, [*begins[1:], below], strict=True):
        assert " ".join(line[title_at:].strip() for line in lines[begin:end]) == TITLE
    assert " ".join(" ".join(lines[below:]).split()) == f"· {drills[1].run}: it left no result: it was killed"


def test_a_narrow_terminal_leaves_out_a_number_and_cuts_no_title():
    console = Console(file=StringIO(), width=70, color_system=None)
    show_history(console, DrillHistory(drills=[drill(1, "passed", None)]))
    assert console.file.getvalue().splitlines()[0].split() == ["run", "verdict", "RTO", "title"]
