"""What a drill on an estate refuses, and what its steps mean."""

from types import SimpleNamespace

import pytest

from drkit.drill import estate
from drkit.drill.environment.child_processes import Finished
from drkit.drill.estate import EstateStep, canary_arrives, judge_rehearsal, judged, refuse_experiments
from drkit.drill.experiment.reader import library_files, load_experiment
from drkit.model.errors import Refused
from drkit.model.statistics import Latency

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
        (0, {"kind": "rehearsal"}, "ok", ""),
        (0, None, "failed", "exit code 0"),
        (3, {"refusals": [{"what": "30 records are behind"}]}, "failed", "would be refused now: 30 records are behind"),
        (3, {"error": {"what": "no link"}}, "failed", "no link"),
        (1, {"error": {"what": "the commit was denied"}}, "failed", "the commit was denied"),
        (8, {"error": {"what": "no answer"}}, "unknown", "no answer"),
        (None, None, "failed", "did not end within"),
    ],
)
def test_what_a_rehearsals_end_means(code, found, outcome, said):
    played, reason = judge_rehearsal(Finished(code, "", "; its log ends: x"), found)
    assert played == outcome
    assert said in (reason or "")


@pytest.mark.parametrize(
    ("latencies", "outcome"),
    [
        ([Latency(0.01, 0.02, 9, 300.0, 0.4)], "ok"),
        ([Latency(0.01, 0.02, 9, 300.0, 31.0)], "failed"),
        ([Latency(None, None, 0, 300.0, 0.0)], "unknown"),
        ([None], "unknown"),
        ([], "unknown"),
    ],
)
def test_whether_a_canary_arrives(monkeypatch, latencies, outcome):
    status = SimpleNamespace(statistics=[SimpleNamespace(latency=each) for each in latencies], state="mirroring")
    monkeypatch.setattr(estate, "link_statuses", lambda *_: [status])
    link = SimpleNamespace(id="primary->dr", canary=True)
    assert canary_arrives(None, None, link)[0] == outcome
    assert canary_arrives(None, None, SimpleNamespace(id="primary->dr", canary=False))[0] == "skipped"
