"""Whatever happens in a drill, its rollbacks are played, its processes end, and its result is kept or told."""

import json
import signal
from collections import defaultdict
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from drkit.drill import runner
from drkit.drill.conditions import ConditionResult
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.experiment.steps import describe
from drkit.drill.judge.history import LinkHistory
from drkit.drill.results.archive import Drills
from drkit.drill.steps import Played
from drkit.evidence import verifier
from tests.support.drills.kept_drills import a_history

TEXT = """\
title: t
hypothesis: h
steady_state: { conditions: [{ condition: answers, cluster: dr }] }
method:
  - do: workload
  - { do: kill, node: primary }
  - { do: restart, node: primary }
checks: [duplicated]
rollbacks:
  - { do: resume, node: dr }
  - { do: resume, node: primary }
"""
FULL = OSError(28, "No space left on device")


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Plays the experiment without a lab; what is named raises its error, or does it."""
    done = []

    def run(**raises):
        def act(what):
            done.append(what)
            if what in raises:
                raises[what]()

        def play_step(_env, step):
            act(describe(step).replace(" ", "_"))
            return Played("ok")

        @contextmanager
        def lab(*_):
            yield None

        env = SimpleNamespace(
            links={"primary->dr": SimpleNamespace(failover=None)},
            **{name: (lambda name=name: act(name)) for name in ("stop_clients", "end_processes")},
            **dict.fromkeys(("lab", "failover", "failback", "reprotect", "may_not_strike")),
        )
        for name, replacement in {
            "_lab": lab,
            "DrillEnvironment": SimpleNamespace(on=lambda *_: env),
            "play": play_step,
            "wait_for": lambda *_: ConditionResult(True, "it is"),
            "broken_rule": lambda *_: None,
            "add_lab": lambda *_: act("add_lab"),
            "_collect": lambda *_: LinkHistory(a_history()),
        }.items():
            monkeypatch.setattr(runner, name, replacement)
        if "keep" in raises:
            monkeypatch.setattr(Drills, "keep", lambda *_: raises["keep"]())
        file = tmp_path / "x.yaml"
        file.write_text(TEXT)
        drills = Drills(tmp_path / "drills")
        began = defaultdict(list)
        result = runner.run_drill(
            load_experiment(file),
            drills,
            lab_dir=None,
            keep_lab=False,
            say=lambda _: None,
            begun=lambda run, _: began[run].append([*done]),
        )
        assert began == {result.run: [[]]}, "it was noted before anything else happened"
        return result, done, [json.loads(line) for line in (drills.path / "chain.jsonl").read_text().splitlines()]

    return run


def fail():
    raise FULL


END = ["stop_clients", "resume_dr", "resume_primary", "end_processes", "add_lab"]


def test_a_drill_is_in_the_chain_from_its_begin_on(play):
    result, done, chain = play()
    assert (result.verdict, done[-5:]) == ("passed", END)
    assert [each["event"] for each in chain] == ["begun", "kept"]
    assert verifier.without_result(chain) == []
    assert verifier.without_result(chain[:1]) == [result.run], "it was killed"


@pytest.mark.parametrize("where", ["kill_primary", *END])
def test_an_error_that_nobody_foresaw_leaves_nothing_undone(play, where):
    result, done, chain = play(**{where: fail})
    assert done[-5:] == END
    assert (result.verdict, result.exit_code) == ("unknown", 8)
    assert "No space left on device" in result.reasons[0]
    assert [each["event"] for each in chain] == ["begun", "kept"]


def test_a_drill_that_cannot_be_kept_has_not_passed(play):
    result, _, chain = play(keep=fail)
    assert (result.verdict, result.exit_code) == ("unknown", 8)
    assert "could not be kept" in result.reasons[-1]
    assert verifier.without_result(chain) == [result.run]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_rolls_back(play, number):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        result, done, _ = play(kill_primary=lambda: signal.raise_signal(number))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (result.interrupted, result.verdict, done[-5:]) == (True, "unknown", END)
