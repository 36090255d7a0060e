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


@pytest.mark.parametrize("width", [80, 120])
def test_each_drill_has_one_line_and_the_reason_of_one_that_failed_is_below(width):
    console = Console(file=StringIO(), width=width, color_system=None)
    drills = [drill(1, "passed", None), drill(2, None, "it left no result: it was killed")]
    show_history(console, DrillHistory(drills=drills))
    lines = console.file.getvalue().splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [[drills[0].run, "passed"], [drills[1].run, "unknown"]]
    assert all(len(line) <= width for line in lines)
    assert " ".join(" ".join(lines[3:]).split()) == f"· {drills[1].run}: it left no result: it was killed"
