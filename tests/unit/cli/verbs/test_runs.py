"""What `drkit runs` shows of runs and of an audit's journal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from drkit.cli.verbs.failover.runs import _print_list
from drkit.cli.wiring.audit_journal import entry_summary
from drkit.model.runs import JournalEntry, RunSummary

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
RUN = "audit-20260102T030400Z-abcdef"
DETAIL = "primary->dr: 18 lost, 18 corrupted, 18 duplicated, 18 foreign, 36 reordered [bold]"


@pytest.mark.parametrize("width", [60, 80, 130, 300])
def test_a_run_and_its_state_are_shown_however_narrow_the_terminal(width: int):
    out = StringIO()
    _print_list(Console(file=out, width=width), [RunSummary(RUN, "audit", "deviated", AT, AT, DETAIL)])
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert "began (UTC)" in lines[0]
    year = "" if width == 60 else "2026-"
    assert f"{RUN}  audit  deviated  {year}01-02 03:04" in lines[1]
    assert "primary->dr: 18 lost" in out.getvalue()
    assert (DETAIL in out.getvalue()) is (width == 300)


def test_runs_that_are_not_over_are_named_with_what_continues_them():
    listed = [
        RunSummary("SITE", "site", "planned", AT, AT, "failover to c"),
        RunSummary("CHILD", "failover", "committed", AT, AT, "a->c to c, of site run SITE"),
        RunSummary("ALONE", "failback", "fenced", AT, AT, "b->c back to b"),
        RunSummary("DONE", "failover", "closed", AT, AT, "b->c to c"),
        RunSummary(RUN, "audit", "deviated", AT, AT, DETAIL),
    ]
    out = StringIO()
    _print_list(Console(file=out, width=300), listed)
    open_runs = [line for line in out.getvalue().splitlines() if line.startswith("→")]
    assert [line.partition(". ")[0] for line in open_runs] == [
        "→ SITE isn't over: its first stage isn't completed",
        "→ ALONE isn't over: it is fenced",
    ]
    assert all("drkit resume" in line and "drkit runs" in line for line in open_runs)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"found": "t:0 source offsets 1 to 2: 1 lost"}, "t:0 source offsets 1 to 2: 1 lost"),
        ({"batch": 1, "range": "t:0:1", "failed": []}, "called for the alert of t:0:1"),
        ({"batch": 1, "range": "t:0:1", "failed": ["hook page: exit code 1"]}, "hook page: exit code 1"),
    ],
)
def test_an_entry_of_an_audit_says_what_was_found(payload: dict, words: str):
    entry = JournalEntry.chained(None, run=RUN, at=AT, stage="audit", event="x", payload=json.dumps(payload))
    assert entry_summary(entry) == words
