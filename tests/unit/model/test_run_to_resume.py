"""Which id `drkit resume` continues a link's run by."""

from datetime import UTC, datetime

import pytest

from drkit.failover.context.state_machine import FINAL_STATES
from drkit.model.runs import OVER, PART_OF, RunSummary, run_to_resume

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)


def listed(site_state: str) -> list[RunSummary]:
    return [
        RunSummary("SITE", "site", site_state, AT, AT, "failover of 2 links to dr"),
        RunSummary("PART", "failover", "fenced", AT, AT, f"a->dr unplanned to dr{PART_OF}SITE"),
        RunSummary("ALONE", "failover", "fenced", AT, AT, "b->dr unplanned to dr"),
    ]


@pytest.mark.parametrize(
    ("run", "state", "resumed"),
    [
        ("PART", "fenced", "SITE"),
        ("PART", "closed", "PART"),
        ("ALONE", "fenced", "ALONE"),
        ("SITE", "fenced", "SITE"),
        ("LOST", "fenced", "LOST"),
    ],
)
def test_a_part_is_continued_by_its_site_run_until_that_is_over(run, state, resumed):
    assert run_to_resume(run, listed(state)) == resumed
    assert run_to_resume("PART", listed("fenced")[1:]) == "PART", "the store has no such site run"


def test_over_are_the_final_states():
    assert set(FINAL_STATES) == OVER
