"""How the help of every command looks on a terminal of 80 columns, and what the shell completes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from drkit.cli.application import VERBS, application, application_for
from drkit.cli.help import reflowed


def test_a_paragraph_is_one_line_and_a_list_stays_one():
    text = """Summary.

    A paragraph of
    --two lines.

    - a list
    - of two
    """
    assert reflowed(text) == "Summary.\n\nA paragraph of --two lines.\n\n- a list\n- of two"


@pytest.mark.parametrize("verb", VERBS)
def test_no_flag_seems_to_want_a_value_and_no_example_is_shown_twice(verb):
    shown = CliRunner().invoke(application((verb,)), [verb, "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert shown.exit_code == 0
    assert "<bool>" not in shown.output
    examples = [line.strip() for line in shown.output.splitlines() if line.strip().startswith("drkit ")]
    assert len(set(examples)) == len(examples)


def test_drkit_itself_and_subcommands_have_no_flag_that_seems_to_want_a_value():
    for called in (["--help"], ["drill", "run", "--help"], ["audit", "--help"]):
        assert "<bool>" not in CliRunner().invoke(application(("drill", "audit")), called).output


CONFIG = '[clusters.primary]\nbootstrap_servers = "a:1"\n[clusters.dr]\nbootstrap_servers = "b:1"\n[clusters.drill]\n'


def asked(words: str, *, kind: str = "bash", **more: str) -> list[str]:
    place = str(len(words.split(" ")) - 1)
    environment = {**os.environ, "_DRKIT_COMPLETE": f"complete_{kind}", **more}
    if kind == "bash":
        environment |= {"COMP_WORDS": words, "COMP_CWORD": place}
    else:
        environment |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    command = [sys.executable, "-c", "from drkit.cli.main import main; main()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n") if kind == "bash" else [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_verbs_and_options_are_completed():
    assert {"failover", "failback"} <= set(asked("drkit fail"))
    assert "--to-earliest" in asked("drkit failover --to-e")
    assert "recover" in asked("drkit store rec")
    assert "failover" in asked("drkit failo", kind="fish")


@pytest.mark.parametrize("verb", ["failover", "failback", "doctor"])
def test_clusters_are_those_of_the_configuration(tmp_path, verb):
    file = tmp_path / "drkit.toml"
    file.write_text(CONFIG)
    found = asked(f"drkit {verb} --to dr", DRKIT_CONFIG=str(file))
    assert {"dr", "drill"} <= set(found)
    assert "primary" not in found


@pytest.mark.parametrize("text", ["not toml [", "clusters = 3\n", None])
def test_a_configuration_that_can_not_be_read_completes_nothing_and_says_nothing(tmp_path, text):
    file = tmp_path / "drkit.toml"
    if text is not None:
        file.write_text(text)
    assert [line for line in asked("drkit failover --to x", DRKIT_CONFIG=str(file)) if line] == []


def test_only_the_verb_that_is_typed_is_loaded(monkeypatch):
    monkeypatch.setenv("_DRKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "drkit failover --to ")
    assert [each.name for each in application_for([]).registered_commands] == ["failover"]
    monkeypatch.setenv("COMP_WORDS", "drkit fail")
    assert {each.name for each in application_for([]).registered_commands} == set(VERBS)
