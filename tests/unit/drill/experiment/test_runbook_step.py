"""A failover by a runbook: its commands in their order, up to the first one that fails."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from drkit.drill.environment import environment as environment_module
from drkit.drill.environment.child_processes import Finished
from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.base import LinkSpec
from drkit.drill.experiment.steps import Failover, RunbookBlocks

BLOCKS = ["look", "dry-run", "go", "verify"]
RUNS = {
    "runs": [{"run": "01B", "kind": "failover"}, {"run": "01C", "kind": "drill"}, {"run": "01A", "kind": "failover"}]
}


class Commands:
    """Every command of a drill in place of a process. `codes`: by the verb's beginning; else 0. `begun`: the run that
    its failover begins."""

    def __init__(self, begun="01B", **codes):
        self.codes = codes
        self.begun = begun
        self.there = [each for each in RUNS["runs"] if each["run"] != begun]
        self.called = []

    def __call__(self, arguments, *_where, env=None):
        words = [str(each) for each in arguments[2:]]
        self.called.append((words, env))
        if "--output" in words:
            found = {"result": {"run": words[1]}} if words[1].startswith("01") else {"runs": self.there}
            return Finished(0, json.dumps(found), "")
        if words[:2] == ["failover", "--plan"]:
            self.there = RUNS["runs"]
        code = next((code for verb, code in self.codes.items() if " ".join(words).startswith(verb)), 0)
        return Finished(code, f"said by {words[0]}", "; its log ends: why")


def played(tmp_path, monkeypatch, commands):
    monkeypatch.setattr(environment_module, "run_command", commands)
    link = LinkSpec(source="primary", target="dr")
    env = SimpleNamespace(
        lab=SimpleNamespace(config_path=tmp_path / "drkit.toml"),
        folder=tmp_path,
        experiment=SimpleNamespace(moved_by=lambda _: [link]),
        say=lambda _: None,
    )
    for name in ("_failover_since", "_failovers", "_runs"):
        setattr(env, name, partial(getattr(DrillEnvironment, name), env))
    step = Failover(do="failover", runbook=RunbookBlocks(book="unplanned-failover", blocks=BLOCKS))
    return DrillEnvironment.run_runbook(env, step, step.runbook)


def test_the_commands_of_the_page_are_executed_as_they_stand_there(tmp_path, monkeypatch):
    commands = Commands(failover=6)
    done = played(tmp_path, monkeypatch, commands)
    words = [words for words, _ in commands.called if "--output" not in words]
    plan = str(tmp_path / "failover-plan.json")
    assert words == [
        ["status", "--link", "primary->dr"],
        ["doctor", "--to", "dr"],
        ["failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--dry-run", "--out", plan],
        ["failover", "--plan", plan, "--accept-unfenced", "--yes"],
        ["runs"],
        ["status", "--link", "primary->dr"],
    ]
    assert {env["DRKIT_CONFIG"] for words, env in commands.called if "--output" not in words} == {
        str(tmp_path / "drkit.toml")
    }
    assert (done.exit_code, json.loads(done.stdout)) == (6, {"run": "01B"}), "the newest failover that the store has"
    log = Path(tmp_path / "runbook.log").read_text()
    assert "failover --plan" in log
    assert "said by doctor" in log


def test_blocks_that_begin_no_failover_have_none_to_show(tmp_path, monkeypatch):
    assert played(tmp_path, monkeypatch, Commands(begun=None)).stdout == "", "those of before are not theirs"


@pytest.mark.parametrize(("verb", "code", "begun"), [("doctor", 3, 2), ("failover --plan", 7, 4), ("status", None, 1)])
def test_a_command_that_fails_ends_it(tmp_path, monkeypatch, verb, code, begun):
    commands = Commands(**{verb: code})
    done = played(tmp_path, monkeypatch, commands)
    assert done.exit_code == code
    assert len([words for words, _ in commands.called if "--output" not in words]) == begun
    assert done.log.startswith(" of unplanned-failover.md:")
