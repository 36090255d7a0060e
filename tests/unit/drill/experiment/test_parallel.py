"""Branches of a parallel step: at the same time, in order, ended together by a failure or a signal."""

import json
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from drkit.drill import runner
from drkit.drill.coverage import planned_strikes
from drkit.drill.environment import waiting
from drkit.drill.environment.child_processes import run_command
from drkit.drill.environment.waiting import Cancelled, play_parallel, rest
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.judge.result import SteadyStateResult, StepResult
from drkit.drill.judge.verdict import outcome_of_branches, verdict
from drkit.drill.results.archive import Drills
from drkit.drill.results.recording import write_experiment
from drkit.drill.steps import Played
from drkit.evidence import verifier
from drkit.model.errors import DrkitError
from tests.support.drills.kept_drills import a_history, keep, name

SECONDS = 60.0
TEXT = """\
title: t
hypothesis: h
steady_state: { conditions: [{ condition: answers, cluster: dr }] }
method:
  - do: workload
  - do: mirror
  - do: parallel
    branches:
      - - { do: kill, node: primary }
        - { do: hold, seconds: 1.0 }
      - - do: failover
          accept_unfenced: true
        - { do: move_clients, to: dr }
  - { do: hold, seconds: 2.0 }
checks: [duplicated]
rollbacks:
  - { do: restart, node: primary }
"""
KILL, HOLD, FAILOVER, MOVE = "kill primary", "hold 1 s", "failover to dr", "move clients to dr"


def interrupt():
    """Ctrl-C, which reaches the main thread."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.fixture
def events(monkeypatch):
    """The events that branches share: `cancelled`; `ended`, which is set once a step did not succeed."""
    made = []

    def event():
        made.append(threading.Event())
        return made[-1]

    monkeypatch.setattr(waiting, "threading", SimpleNamespace(Event=event, Thread=threading.Thread))
    return made


# -- threads -------------------------------------------------------------------------------------


def test_branches_are_played_at_the_same_time_and_their_steps_in_order():
    both, seen = threading.Barrier(2, timeout=SECONDS), []

    def step(label):
        def play():
            both.wait()  # passes only if the other branch is at the same step
            seen.append(label)
            return True

        return play

    play_parallel([[step("a1"), step("a2")], [step("b1"), step("b2")]])
    assert [each for each in seen if each.startswith("a")] == ["a1", "a2"]
    assert sorted(seen[:2]) == ["a1", "b1"]


def test_after_a_step_that_does_not_succeed_none_begins_and_the_one_that_is_played_ends(events):
    began, seen = threading.Event(), []

    def fails():
        return not began.wait(SECONDS)

    def takes_longer():
        began.set()
        assert events[1].wait(SECONDS), "the other one did not succeed"
        seen.append("played to its end")
        return True

    play_parallel([[fails, lambda: seen.append("after it")], [takes_longer, lambda: seen.append("beside it")]])
    assert seen == ["played to its end"]


def test_what_a_step_raises_is_raised_when_the_others_have_ended():
    def breaks():
        raise DrkitError("a defect")

    with pytest.raises(DrkitError, match="a defect"):
        play_parallel([[breaks], [lambda: True]])


def test_a_signal_cancels_every_branch_and_is_raised_once_all_have_ended(tmp_path):
    """A child process is ended, a wait ends, and a further signal doesn't let the others run on."""
    running, ended, pids = threading.Barrier(3, timeout=SECONDS), [], tmp_path / "pid"
    command = f"import os, pathlib, time; pathlib.Path({str(pids)!r}).write_text(str(os.getpid())); time.sleep(600)"

    def waits():
        running.wait()
        try:
            rest(600)
        except Cancelled:
            interrupt()
            ended.append("the wait")
            raise

    def runs():
        running.wait()
        try:
            run_command(["-c", command], tmp_path / "log", tmp_path, 600)
        finally:
            ended.append("the command")

    def signals():
        running.wait()
        while not pids.exists() or not pids.read_text():
            rest(0.01)
        interrupt()
        return True

    with pytest.raises(KeyboardInterrupt):
        play_parallel([[waits], [runs, lambda: ended.append("a further step")], [signals]])
    assert sorted(ended) == ["the command", "the wait"]
    assert not Path(f"/proc/{pids.read_text()}").exists()


def test_outside_of_a_branch_nothing_is_cancelled():
    rest(0.0)


# -- the runner ----------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A drill without a lab: `outcomes` by the step's description, `broken` safety rules by it."""
    file = tmp_path / "x.yaml"
    file.write_text(TEXT)
    found = runner._DrillProgress(
        load_experiment(file), "drill-x", datetime(2026, 11, 20, tzinfo=UTC), tmp_path, lambda _: None
    )
    found.outcomes, found.broken, found.asked = {}, {}, []

    def play(_env, step):
        outcome = found.outcomes.get(runner.describe(step), "ok")
        return outcome() if callable(outcome) else Played(outcome, "why" if outcome != "ok" else None)

    def broken_rule(_env, _safety, step, _began):
        found.asked.append(runner.describe(step))
        broken = found.broken.get(runner.describe(step))
        return broken() if callable(broken) else broken

    def steady(_env, course):
        course.steady = SteadyStateResult(reached=True, reason="seen", seconds=0.0)
        return True

    monkeypatch.setattr(runner, "play", play)
    monkeypatch.setattr(runner, "broken_rule", broken_rule)
    monkeypatch.setattr(runner, "_steady", steady)
    monkeypatch.setattr(runner, "add_lab", lambda *_: None)
    return found


def play(course):
    """Play the method and the rollbacks; returns the parallel step and the outcomes of its branches."""
    env = SimpleNamespace(stop_clients=lambda: None, links={}, end_processes=lambda: None, lab=None)
    runner._play_on(env, course)
    (parallel,) = (step for step in course.steps if step.branches)
    return parallel, [[step.outcome for step in branch] for branch in parallel.branches]


def judged(course):
    return verdict(
        steady_state=course.steady, steps=course.steps, checks=[], objectives=[], interrupted=course.interrupted
    )


def test_every_step_of_the_branches_is_in_the_result_and_safety_rules_are_asked_before_each(course):
    parallel, outcomes = play(course)
    assert (parallel.step, parallel.section) == (f"in parallel: {KILL}, {HOLD} | {FAILOVER}, {MOVE}", "method")
    assert (parallel.outcome, parallel.reason, outcomes) == ("ok", None, [["ok", "ok"], ["ok", "ok"]])
    assert [[step.line for step in branch] for branch in parallel.branches] == [[9, 10], [11, 13]]
    assert sorted(course.asked) == sorted([KILL, HOLD, FAILOVER, MOVE, "hold 2 s"])
    assert [step.step for step in course.steps] == [
        "workload",
        "mirror",
        parallel.step,
        "hold 2 s",
        "restart primary",
    ]
    assert judged(course)[:2] == ("passed", 0)


@pytest.mark.parametrize(
    ("outcome", "said", "code"), [("failed", "failed", 1), ("unknown", "unknown", 8)], ids=["failed", "not played"]
)
def test_a_step_that_does_not_succeed_ends_the_method_and_the_rollbacks_run(course, events, outcome, said, code):
    began = threading.Event()

    def kills():
        began.set()
        return Played("ok" if events[1].wait(SECONDS) else "failed")

    course.outcomes = {KILL: kills, FAILOVER: lambda: Played(outcome if began.wait(SECONDS) else "ok", "why")}
    parallel, outcomes = play(course)
    assert outcomes == [["ok", "skipped"], [outcome, "skipped"]]
    assert (parallel.outcome, parallel.reason) == (outcome, f"{FAILOVER} (line 11): why")
    assert [step.outcome for step in course.steps] == ["ok", "ok", outcome, "skipped", "ok"]
    verdict_, exit_code, reasons = judged(course)
    assert (verdict_, exit_code) == (said, code)
    assert f"{FAILOVER} (line 11): why" in reasons[0]


def test_a_safety_rule_ends_every_branch_and_the_method(course, events):
    began = threading.Event()

    def kills():
        began.set()
        return Played("ok" if events[1].wait(SECONDS) else "failed")

    course.outcomes = {KILL: kills}
    course.broken = {FAILOVER: lambda: "the rule" if began.wait(SECONDS) else None}
    parallel, outcomes = play(course)
    assert outcomes == [["ok", "skipped"], ["skipped", "skipped"]]
    assert parallel.branches[1][0].reason == "not played, by a safety rule: the rule"
    assert parallel.outcome == "unknown"
    assert [step.outcome for step in course.steps] == ["ok", "ok", "unknown", "skipped", "ok"]
    verdict_, exit_code, reasons = judged(course)
    assert (verdict_, exit_code) == ("unknown", 8)
    assert reasons[0] == f"aborted before {FAILOVER} (line 11) by a safety rule: the rule"


def test_a_signal_leaves_what_was_played_unknown_and_the_rollbacks_run(course):
    both = threading.Barrier(2, timeout=SECONDS)

    def kills():
        both.wait()
        rest(600)

    def moves():
        both.wait()
        interrupt()
        rest(600)

    course.outcomes = {KILL: kills, FAILOVER: moves}
    parallel, outcomes = play(course)
    assert outcomes == [["unknown", "skipped"], ["unknown", "skipped"]]
    assert parallel.branches[0][0].reason == "interrupted by a signal"
    assert (parallel.outcome, course.signalled) == ("unknown", True)
    assert [step.step for step in course.steps][-2:] == [parallel.step, "restart primary"]
    assert judged(course)[:2] == ("unknown", 8)


def test_a_parallel_that_is_skipped_shows_its_branches(course):
    course.outcomes = {"mirror": "failed"}
    parallel, outcomes = play(course)
    assert (parallel.outcome, outcomes) == ("skipped", [["skipped"] * 2] * 2)


def result(outcome):
    return StepResult(section="method", step="s", line=1, outcome=outcome, reason="r", seconds=0.0)


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ("ok ok", "ok"),
        ("ok failed", "failed"),
        ("unknown failed", "failed"),
        ("ok unknown", "unknown"),
        ("ok skipped", "unknown"),
    ],
)
def test_a_parallel_is_as_good_as_the_worst_of_its_steps(outcomes, said):
    assert outcome_of_branches([[result(each)] for each in outcomes.split()])[0] == said


# -- coverage and evidence -----------------------------------------------------------------------


def test_a_fault_beside_a_run_has_no_stage_and_counts_in_no_state(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(TEXT)
    assert list(planned_strikes(load_experiment(file))) == []
    file.write_text(TEXT.replace("do: failover\n          accept_unfenced: true", "{ do: pause, node: mirror }"))
    found = [(each.cell.fault, each.cell.state, each.line) for each in planned_strikes(load_experiment(file))]
    assert found == [("kill primary", "steady", 9), ("pause mirror", "steady", 11)]
    text = TEXT.replace("        - { do: move_clients, to: dr }", "        - { do: kill, node: dr }")
    file.write_text(text)
    assert [(each.cell.fault, each.cell.state) for each in planned_strikes(load_experiment(file))] == [
        ("kill dr", "failed over")
    ]


@pytest.fixture
def parallel_drill(tmp_path):
    """A kept drill whose kill and failover were one parallel step: 15.0 to 18.5 s after its start."""
    folder = Drills(tmp_path / "drills").path / keep(Drills(tmp_path / "drills"), name(1), a_history())
    experiment, result = (json.loads((folder / each).read_text()) for each in ("experiment.json", "result.json"))
    kill, failover = experiment["experiment"]["method"][1:3]
    step = {"do": "parallel", "branches": [[kill], [failover]]}
    experiment["experiment"]["method"][1:3] = [step]
    lines = experiment["lines"]
    lines["branches"] = [[], [[[line] for line in lines["method"][1:3]]][0], []]
    lines["method"][1:3] = [7]
    played = result["steps"][1:3]
    result["steps"][1:3] = [
        {
            **played[0],
            "step": verifier.describe(step),
            "line": 7,
            "seconds": 3.5,
            "branches": [[each] for each in played],
        }
    ]
    played[1]["started_after_seconds"] = 15.5
    (folder / "experiment.json").write_text(json.dumps(experiment))
    (folder / "result.json").write_text(json.dumps(result))
    assert list(verifier.Drill(folder).problems()) == []
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda step: step["branches"].pop(), "The branches of in parallel"),
        (lambda step: step["branches"][0][0].update(step="kill dr"), "The branches of in parallel"),
        (lambda step: step["branches"][1][0].update(line=99), "The branches of in parallel"),
        (lambda step: step["branches"][1][0].update(outcome="failed"), "is ok, and its branches are failed"),
        (lambda step: step["branches"][1][0].update(outcome="unknown"), "is ok, and its branches are unknown"),
        (lambda step: step["branches"][1][0].update(started_after_seconds=14.0), "overlaps another one of its branch"),
        (lambda step: step["branches"][1][0].update(seconds=9.0), "overlaps another one of its branch"),
        (lambda step: step["branches"][0][0].update(started_after_seconds=None), "was played and has no time"),
        (lambda step: step["branches"][0][0].update(section="setup"), "is in another section"),
        (lambda step: step["branches"][0][0].update(started_after_seconds=16.0), "has a disaster at 1015.0"),
    ],
)
def test_branches_that_were_not_played_so_are_noticed(parallel_drill, change, says):
    result = json.loads((parallel_drill / "result.json").read_text())
    change(result["steps"][1])
    (parallel_drill / "result.json").write_text(json.dumps(result))
    found = list(verifier.Drill(parallel_drill).problems())
    assert any(says in each for each in found), found


def test_the_timeline_has_the_steps_of_both_branches(parallel_drill):
    happened = [(step["step"], fault) for step, fault in verifier.Drill(parallel_drill)._played_steps()]
    assert happened[1:4] == [
        ("in parallel: kill primary | failover to dr", False),
        ("kill primary", True),
        ("failover to dr", False),
    ]


def test_the_lines_of_branches_are_kept_with_the_experiment(tmp_path):
    (tmp_path / "x.yaml").write_text(TEXT)
    write_experiment(tmp_path, load_experiment(tmp_path / "x.yaml"))
    lines = json.loads((tmp_path / "experiment.json").read_text())["lines"]
    assert lines["method"] == [5, 6, 7, 14]
    assert lines["branches"] == [[], [], [[9, 10], [11, 13]], []]
