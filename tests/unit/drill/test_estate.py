"""What a drill on an estate refuses, and what its steps mean."""

from types import SimpleNamespace

import pytest

from drkit.drill import estate
from drkit.drill.environment.child_processes import Finished
from drkit.drill.estate import EstateStep, canary_arrives, judge_rehearsal, judged, refuse_experiments
from drkit.drill.experiment.reader import library_files, load_experiment
from drkit.model.errors import Refused, Unreachable
from drkit.model.statistics import Latency


def arrivals(count, waiting=0.4):
    return Latency(0.01, 0.02, 9, 300.0, waiting, count)


CALM = """\
title: Nothing strikes
hypothesis: h
steady_state: { conditions: [{ condition: answers, cluster: dr }] }
method:
  - do: workload
checks: [duplicated]
"""


@pytest.mark.parametrize("file", library_files(), ids=lambda file: file.stem)
def test_no_experiment_of_the_library_is_played_on_an_estate(file):
    with pytest.raises(Refused, match="is not allowed on an estate"):
        refuse_experiments([load_experiment(file)])


def test_nor_is_one_in_which_nothing_strikes(tmp_path):
    file = tmp_path / "calm.yaml"
    file.write_text(CALM)
    with pytest.raises(Refused, match="experiments run only on labs"):
        refuse_experiments([load_experiment(file)])
    refuse_experiments([])


def a_step(outcome):
    return EstateStep(step="rehearse", outcome=outcome, reason="why", seconds=1.0)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["ok"], "passed"),
        (["skipped", "ok"], "passed"),
        (["skipped"], "unknown"),
        ([], "unknown"),
        (["ok", "unknown"], "unknown"),
        (["unknown", "failed"], "failed"),
    ],
)
def test_the_verdict_of_all_steps(outcomes, verdict):
    found, reasons = judged([a_step(each) for each in outcomes])
    assert (found, len(reasons)) == (verdict, sum(each != "ok" for each in outcomes))


@pytest.mark.parametrize(
    ("code", "found", "outcome", "said"),
    [
        (0, {"run": "passed"}, "ok", ""),
        (0, {"run": "unknown"}, "unknown", "unknown: why it is unknown"),
        (
            0,
            {"run": None, "links": [{"run": "passed"}, {"run": "failed"}, {"run": "unknown"}]},
            "failed",
            "failed: why",
        ),
        (0, {"run": None, "links": [{"run": "passed"}, {"run": "passed"}]}, "ok", ""),
        (0, {"kind": "rehearsal"}, "unknown", "no run"),
        (0, {"run": "unreadable"}, "unknown", "no answer of the store"),
        (0, None, "failed", "exit code 0"),
        (3, {"refusals": [{"what": "30 records are behind"}]}, "failed", "would be refused now: 30 records are behind"),
        (3, {"error": {"what": "no link"}}, "failed", "no link"),
        (1, {"error": {"what": "the commit was denied"}}, "failed", "the commit was denied"),
        (8, {"error": {"what": "no answer"}}, "unknown", "no answer"),
        (None, None, "failed", "did not end within"),
    ],
)
def test_what_a_rehearsals_end_means(code, found, outcome, said):
    def judge(run):
        if run == "unreadable":
            raise Unreachable("no answer of the store")
        return run, [f"why it is {run}"]

    played, reason = judge_rehearsal(Finished(code, "", "; its log ends: x"), found, judge)
    assert played == outcome
    assert said in (reason or "")


@pytest.mark.parametrize(
    ("looks", "outcome", "said"),
    [
        ([(1, 0, arrivals(8)), (1, 3, arrivals(9)), (1, 6, arrivals(10))], "ok", "within 0.020 s"),
        ([(1, 0, None), (1, 3, arrivals(9)), (1, 6, arrivals(10)), (1, 9, arrivals(11))], "ok", ""),
        ([(1, 0, arrivals(8)), (1, 3, arrivals(9)), (1, 6, arrivals(9))], "unknown", "none arrived within"),
        ([(1, 0, arrivals(9)), (2, 3, arrivals(20)), (2, 6, arrivals(20))], "unknown", "none arrived within"),
        ([(1, 0, arrivals(9, waiting=31.0))], "failed", "on its way for 31 s; the link is stalled"),
        ([(1, 0, Latency(None, None, 0, 300.0, 0.0))], "unknown", ""),
        ([(1, 0, None)], "unknown", "no worker"),
    ],
)
def test_a_canary_must_arrive_while_it_is_looked_for(monkeypatch, looks, outcome, said):
    """What arrived before, or to another worker, shows nothing; each look: start of the worker, when it saved, what."""
    left = iter([*looks, *[looks[-1]] * 99])

    def status(*_):
        began, at, latency = next(left)
        worker = SimpleNamespace(worker="w", started_at=began, at=at, latency=latency)
        return [SimpleNamespace(statistics=[worker], state="stalled")]

    clock = iter(range(99))
    monkeypatch.setattr(estate, "link_statuses", status)
    monkeypatch.setattr(estate, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    link = SimpleNamespace(id="primary->dr", canary=True)
    found, why = canary_arrives(None, None, link)
    assert (found, said in why) == (outcome, True), why
    assert canary_arrives(None, None, SimpleNamespace(id="primary->dr", canary=False))[0] == "skipped"
