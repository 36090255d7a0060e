from dataclasses import replace

import pytest

from bench.cases import BACKLOG
from bench.report import class_verdict, grids, number, significant
from bench.report import render as render_report

LARGE = next(case for case in BACKLOG if case.name == "large")
TEN = next(case for case in BACKLOG if case.name == "ten")


def test_a_target_with_too_much_or_too_little_is_named(results, backlog_run):
    results.backlog += [backlog_run(uneven_partitions=2), backlog_run(repeat=2, uneven_partitions=1)]
    grid = next(grid for grid in grids(results) if grid.title.startswith("Backlog"))
    assert grid.rows[0][1] == "10,000,000 (3 partitions differ from the source)"


def test_a_run_whose_time_ran_out_says_how_far_it_came(results, backlog_run):
    results.backlog.append(backlog_run(complete=False, mirrored_records=123_456))
    grid = next(grid for grid in grids(results) if grid.title.startswith("Backlog"))
    assert grid.rows[0][1] == "10,000,000 (stopped at 123,456)"


@pytest.mark.parametrize(
    ("case", "faster", "cheaper", "verdict"),
    [
        (LARGE, 5.0, 15.0, "met"),
        (LARGE, 4.9, 15.0, "not met: 5 ×"),  # noqa: RUF001
        (LARGE, 4.9, 14.0, "not met: 5 ×, 1/15"),  # noqa: RUF001
        (LARGE, None, 15.0, "not measured"),
        (TEN, 9.0, 9.0, "none"),
    ],
)
def test_each_case_is_judged_by_its_records_a_batch(case, faster, cheaper, verdict):
    assert class_verdict(case, faster, cheaper) == verdict


def test_what_is_not_known_is_a_dash():
    assert number(None) == "-"
    assert significant(None) == "-"
    assert number(1234.5, 1) == "1,234.5"


def test_the_report_names_machine_and_failures(results):
    results.failures.append("live: the producer could not keep the rate\nits last words")
    text = render_report(replace(results, machine={"cores": 2, "kafka": "4.3.1", "cpu": "some CPU"}))
    assert "| Kafka and MirrorMaker 2 | 4.3.1 |" in text
    assert "- live: the producer could not keep the rate\n" in text
    assert "its last words" not in text
