"""`drkit drill` as it is typed: exit codes, rollbacks whatever happens, nothing left behind, the clock."""

import json
import signal

import pytest

from tests.support.collection.sampling import among, sampled
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]
DRAWN = among("drills that hang", ["interrupted", "interrupted branches", "fails", "clock", "stopped clock"], 2)

HANGS = """\
title: The primary hangs and nobody does anything
hypothesis: Nothing happens
steady_state:
  conditions:
    - { condition: acknowledged, cluster: primary, at_least: 100 }
    - { condition: consumed, cluster: primary, at_least: 50 }
method:
  - do: workload
    records_per_second: 200
  - do: pause
    node: primary
  - do: wait
    until: { condition: silent, cluster: primary }
  - do: wait
    until: { condition: answers, cluster: primary }
    timeout_seconds: %s
checks: [nonmonotonic_poll, duplicated]
rollbacks:
  - do: resume
    node: primary
  - do: restart
    node: dr
"""


def write(tmp_path, text):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return str(file)


@DRAWN("interrupted")
@pytest.mark.parametrize("number", sampled("an interrupted drill", [signal.SIGINT, signal.SIGTERM], 1))
def test_an_interrupt_rolls_back_and_leaves_nothing(play, tmp_path, number):
    drill = play("run", write(tmp_path, HANGS % 300))
    wait_until(lambda: drill.said("wait until answers …"), 90, "the hang")
    drill.process.send_signal(number)
    code, result = drill.end()
    assert (code, result["verdict"], result["exit_code"]) == (8, "unknown", 8)
    assert result["reasons"][0] == "interrupted by a signal"
    rollbacks = [step for step in result["steps"] if step["section"] == "rollbacks"]
    assert [(step["step"], step["outcome"]) for step in rollbacks] == [("resume primary", "ok"), ("restart dr", "ok")]
    assert {check["outcome"] for check in result["checks"]} == {"unknown"}
    assert drill.refused_evidence(result["run"]) == []


BESIDE = """\
  - do: parallel
    branches:
      - - { do: pause, node: primary }
        - { do: hold, seconds: 3000 }
      - - { do: load, dataset: flights, rate: 1, limit: 3000, background: false }
"""


@DRAWN("interrupted branches")
def test_an_interrupt_of_branches_ends_each_and_rolls_back(play, tmp_path):
    text = HANGS[: HANGS.index("  - do: pause")] + BESIDE + HANGS[HANGS.index("checks:") :]
    drill = play("run", write(tmp_path, text))
    wait_until(lambda: drill.said(" s  hold 3000 s …") and drill.said(" s  load flights …"), 90, "both at work")
    drill.process.send_signal(signal.SIGTERM)
    code, result = drill.end()
    assert (code, result["verdict"], result["reasons"][0]) == (8, "unknown", "interrupted by a signal")
    (parallel,) = (step for step in result["steps"] if step["branches"])
    assert [[step["outcome"] for step in branch] for branch in parallel["branches"]] == [["ok", "unknown"], ["unknown"]]
    rollbacks = [step for step in result["steps"] if step["section"] == "rollbacks"]
    assert [(step["step"], step["outcome"]) for step in rollbacks] == [("resume primary", "ok"), ("restart dr", "ok")]
    assert drill.refused_evidence(result["run"]) == []


@DRAWN("fails")
def test_a_method_that_fails_after_the_disturbance_refutes(play, tmp_path):
    drill = play("run", write(tmp_path, HANGS % 2))
    code, result = drill.end()
    assert (code, result["verdict"]) == (1, "failed")
    assert "wait until answers (line 14) failed: after 2 s: primary does not answer" in result["reasons"][0]
    assert result["steady_state"]["reached"] is True
    by_name = {check["check"]: check for check in result["checks"]}
    assert by_name["nonmonotonic_poll"]["outcome"] == "passed"
    assert by_name["duplicated"]["outcome"] == "unknown"  # the topic isn't on dr: nothing was mirrored
    assert result["measured"]["acknowledged"] >= 100
    assert result["measured"]["rpo_records"] is None
    kept = json.loads((drill.kept / result["run"] / "result.json").read_text())
    assert kept == result
    assert drill.refused_evidence(result["run"]) == []


@pytest.mark.long
def test_a_safety_rule_ends_a_drill_with_its_rollbacks(play, tmp_path):
    """The primary hangs after the first step: its broker isn't healthy, so no further step is played."""
    safety = "safety: { healthy_brokers: { primary: 1 }, never_both_sides: true, time_limit_seconds: 400 }\nmethod:"
    drill = play("run", write(tmp_path, (HANGS % 300).replace("method:", safety)))
    code, result = drill.end()
    assert (code, result["verdict"]) == (8, "unknown")
    said = (
        "aborted before wait until silent (line 13) by a safety rule: 0 brokers of primary healthy, at least 1 must be"
    )
    assert result["reasons"][0] == said
    steps = [(step["step"], step["outcome"]) for step in result["steps"]]
    assert steps == [("workload", "ok"), ("pause primary", "ok"), ("resume primary", "ok"), ("restart dr", "ok")]
    assert not result["interrupted"], "no signal came"
    assert {check["outcome"] for check in result["checks"] if check["check"] == "nonmonotonic_poll"} == {"passed"}
    assert drill.refused_evidence(result["run"]) == []


def test_an_experiment_that_is_wrong_is_refused_by_line_before_anything_starts(play, tmp_path):
    drill = play("run", write(tmp_path, HANGS.replace("do: pause", "do: puase") % 2))
    code, document = drill.end(30)
    assert code == 2
    assert "x.yaml:10: method.1.do: 'puase' is unknown" in document["error"]["what"]
    assert not drill.kept.exists()


@DRAWN("clock")
def test_the_clock_plays_a_drill_and_stops_in_order(play, tmp_path):
    """Started at once through the scheduler's own job, then stopped by SIGTERM while it waits for next year."""
    file = write(tmp_path, HANGS % 2)
    clock = play("schedule", file, "--cron", "0 4 1 1 *", "--timezone", "UTC", "--now")
    wait_until(lambda: clock.said("failed (exit code 1)"), 180, "the drill's end")
    clock.process.send_signal(signal.SIGTERM)
    code, document = clock.end(30)
    assert code == 0
    assert [(run["verdict"], run["exit_code"]) for run in document["ran"]] == [("failed", 1)]
    assert document["timezone"] == "UTC"
    assert [at[4:] for at in document["next_runs"]] == ["-01-01T04:00:00.000Z"] * 5
    history = play("history")
    code, listed = history.end(30)
    assert [drill["run"] for drill in listed["drills"]] == [document["ran"][0]["run"]]
    report = play("report", "last")
    code, result = report.end(30)
    assert (code, result["run"]) == (0, document["ran"][0]["run"])


@DRAWN("stopped clock")
def test_stopping_the_clock_ends_a_running_drill_with_its_rollbacks(play, tmp_path):
    clock = play("schedule", write(tmp_path, HANGS % 300), "--cron", "0 4 1 1 *", "--now")
    wait_until(lambda: clock.said("wait until answers …"), 90, "the hang")
    clock.process.send_signal(signal.SIGTERM)
    code, document = clock.end()
    assert code == 0
    assert [(run["verdict"], run["exit_code"]) for run in document["ran"]] == [("unknown", 8)]
    assert clock.said("rolls back first")
    assert clock.said("resume primary: ok")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cron", "0 25 * * *"], "'25' is not a hour"),
        (["--cron", "0 4 * * *", "--timezone", "Mars/Olympus"], "no time zone 'Mars/Olympus'"),
    ],
)
def test_a_wrong_clock_is_refused(play, tmp_path, arguments, said):
    code, document = play("schedule", write(tmp_path, HANGS % 2), *arguments).end(30)
    assert code == 2
    assert said in document["error"]["what"]


def test_a_dry_run_of_the_clock_shows_the_coming_times(play, tmp_path):
    file = write(tmp_path, HANGS % 2)
    code, document = play("schedule", file, "--cron", "30 2 * * 0", "--timezone", "Europe/Vienna", "--dry-run").end(30)
    assert code == 0
    assert len(document["next_runs"]) == 5
    assert document["ran"] == []
