"""The frame of the CLI: help, usage errors, errors as exit codes and documents."""

from __future__ import annotations

import json
import logging
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from typer.main import get_command

from drkit import __version__
from drkit.cli.application import VERBS, application, listing
from drkit.cli.help import EXAMPLES
from drkit.cli.verbs.lab.load import Timestamps
from drkit.cli.wiring.context import set_client_logs
from drkit.lab.datasets import DEFAULT_ORDERS, DEFAULT_SEED
from drkit.lab.datasets.events import TimestampMode
from drkit.lab.lab import START_SECONDS
from drkit.store import open_store

SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"
CONTRACT = (
    "init",
    "config",
    "acls",
    "jars",
    "demo",
    "lab",
    "mirror",
    "status",
    "doctor",
    "translate",
    "link",
    "endpoint",
    "failover",
    "failback",
    "reprotect",
    "fence",
    "resume",
    "abandon",
    "runs",
    "store",
    "audit",
    "salvage",
    "drill",
    "evidence",
    "serve",
)


def drkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "drkit", *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


def test_every_verb_of_the_contract_is_there():
    commands = get_command(application()).commands
    assert set(CONTRACT) <= set(commands)
    assert set(VERBS) == set(CONTRACT)


def test_every_command_helps_and_takes_the_common_options():
    def leaves(command, path):
        subcommands = getattr(command, "commands", None)
        if not subcommands:
            yield path, command
            return
        for name, sub in subcommands.items():
            yield from leaves(sub, [*path, name])

    for path, command in leaves(get_command(application()), ["drkit"]):
        assert command.help, f"{' '.join(path)} has no help"
        names = {option for parameter in command.params for option in parameter.opts}
        assert {"--config", "--output", "--verbose"} <= names, f"{' '.join(path)} lacks a common option"


def test_version(tmp_path):
    done = drkit("--version", cwd=tmp_path)
    assert done.stdout.strip() == f"drkit {__version__}"


@pytest.mark.parametrize("verb", ["status", "doctor", "mirror"])
def test_a_missing_configuration_is_a_usage_error_and_a_document(verb, tmp_path):
    done = drkit(verb, "--output", "json", "--config", "none.toml", cwd=tmp_path)
    assert done.returncode == 2
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((SCHEMAS / "error.schema.json").read_text()))
    assert "none.toml" in document["error"]["what"]
    assert "none.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_flag_is_a_usage_error(tmp_path):
    done = drkit("status", "--lnik", "a->b", cwd=tmp_path)
    assert done.returncode == 2
    assert "--lnik" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "--lnik", "a->b", "--output", "json"], "--lnik"),
        (["failover", "-o", "json", "--planned=maybe"], "--planned"),
        (["flyover", "--output=json"], "flyover"),
        (["mirror", "--output", "json", "--until"], "--until"),
    ],
)
def test_a_usage_error_is_a_document_on_stdout_too(words, said, tmp_path):
    done = drkit(*words, cwd=tmp_path)
    assert done.returncode == 2
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((SCHEMAS / "error.schema.json").read_text()))
    assert (said in document["error"]["what"], document["error"]["exit_code"]) == (True, 2)
    assert said in done.stderr
    assert document["error"]["remedy"].endswith("--help")
    if words[0] == "mirror":
        assert done.stdout.count("\n") == 1, "one object a line"


def test_a_mirror_that_cannot_start_says_so_in_one_line(tmp_path):
    done = drkit("mirror", "--output", "json", "--config", "none.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.count("\n") == 1
    assert "none.toml" in json.loads(done.stdout)["error"]["what"]


def test_only_the_verb_that_is_called_is_loaded(tmp_path):
    loaded = (
        "import sys\n"
        "from drkit.cli.application import application_for\n"
        "application_for(sys.argv[1:])\n"
        "print(*sys.modules)"
    )

    def modules(*arguments: str) -> set[str]:
        command = [sys.executable, "-c", loaded, *arguments]
        return set(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split())

    called = modules("translate", "--config", "none.toml")
    assert "drkit.cli.verbs.mirroring.translate" in called
    assert "drkit.cli.verbs.failover.failover" not in called
    for arguments in ([], ["--help"], ["mirrr"]):
        assert not {each for each in modules(*arguments) if each.startswith(("drkit.cli.verbs", "kafka", "cassandra"))}


HEAVY = {
    "aiokafka",
    "apscheduler",
    "asyncio",
    "cassandra",
    "confluent_kafka",
    "kafka",
    "multiprocessing",
    "numpy",
    "pandas",
    "prometheus_client",
    "psutil",
    "pyarrow",
    "pyspark",
    "sqlite3",
    "yaml",
}
"""Packages that take longer to load than the help of a verb may take (Pydantic is loaded by Typer itself)."""


def test_help_of_a_verb_loads_nothing_heavy(tmp_path):
    shown = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from drkit.cli.application import VERBS, application_for\n"
        f"heavy = {HEAVY!r}\n"
        "for verb in VERBS:\n"
        "    before = set(sys.modules)\n"
        "    said = CliRunner().invoke(application_for([verb]), [verb, '--help']).output\n"
        "    assert 'Example' in said, (verb, said)\n"
        "    assert not heavy & (set(sys.modules) - before), (verb, heavy & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", shown], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_example_is_a_call_that_is_understood():
    root = get_command(application())
    commands = {" ".join(path): command for path, command in _commands(root, []) if path}
    assert set(EXAMPLES) <= set(commands)
    lacking = [path for path in set(commands) - set(EXAMPLES) if "Example" not in (commands[path].help or "")]
    assert lacking == [], "each command has an example"
    for path, examples in EXAMPLES.items():
        for example in examples:
            program, *words = shlex.split(example)
            assert program == "drkit"
            assert example.startswith(f"drkit {path}"), "an example of this command"
            command, context = root, None
            while words and not words[0].startswith("-") and words[0] in getattr(command, "commands", {}):
                command, words = command.commands[words[0]], words[1:]
            context = command.make_context(path, [*words], resilient_parsing=False)
            assert context is not None


def test_no_help_has_a_word_in_brackets_which_markup_would_leave_out():
    for path, command in _commands(get_command(application()), []):
        for text in (command.help, *(getattr(option, "help", None) for option in command.params)):
            assert not re.search(r"(?<!\\)\[(?!dim\])[a-z_]+\]", text or ""), (path, text)


def _commands(command, path):
    yield tuple(path), command
    for name, sub in getattr(command, "commands", {}).items():
        yield from _commands(sub, [*path, name])


def test_defaults_in_the_help_are_those_of_the_lab():
    commands = dict(_commands(get_command(application(["lab"])), []))

    def said(*path: str, option: str) -> str:
        return next(each.help for each in commands[path].params if option in each.opts)

    assert f"(default: {START_SECONDS:.0f})" in said("lab", "up", option="--timeout")
    assert f"(default: {DEFAULT_ORDERS:,})" in said("lab", "load", option="--count")
    assert f"(default: {DEFAULT_SEED})" in said("lab", "load", option="--seed")
    assert {each.value for each in Timestamps} == {each.value for each in TimestampMode}


def test_the_list_of_verbs_is_what_they_say_themselves(tmp_path):
    commands = get_command(application()).commands
    assert {verb: commands[verb].get_short_help_str(200) for verb in VERBS} == VERBS
    listed = get_command(listing()).commands
    assert {verb: each.get_short_help_str(200) for verb, each in listed.items()} == VERBS
    assert "No such command 'failver'" in drkit("failver", cwd=tmp_path).stderr


def test_a_status_loads_no_client_of_the_data_path(tmp_path):
    """Seconds count while a primary is dead, and loading them takes as long as all that a status does."""
    with socket.socket() as east, socket.socket() as west:
        for taken in (east, west):
            taken.bind(("127.0.0.1", 0))  # nobody listens there
        (tmp_path / "drkit.toml").write_text(
            f'[clusters.east]\nbootstrap_servers = "127.0.0.1:{east.getsockname()[1]}"\n'
            f'[clusters.west]\nbootstrap_servers = "127.0.0.1:{west.getsockname()[1]}"\n'
            '[store]\nurl = "sqlite:///drkit.db"\n[[links]]\nsource = "east"\ntarget = "west"\ntopics = [".*"]\n',
            encoding="utf-8",
        )
        open_store(f"sqlite:///{tmp_path / 'drkit.db'}").close()
        looked = (
            "import sys\n"
            "from drkit.cli.application import run\n"
            "assert run(['status', '--output', 'json']) == 0\n"
            "heavy = {'aiokafka', 'asyncio', 'confluent_kafka', 'psutil', 'urllib.request'} & set(sys.modules)\n"
            "assert not heavy, heavy\n"
        )
        done = subprocess.run([sys.executable, "-c", looked], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (link,) = json.loads(done.stdout)["links"]
    assert link["recovery_point"]["records"] is None


CLIENTS = ("kafka", "aiokafka", "drkit.librdkafka")


def test_clients_are_silent_unless_asked_for():
    before = {name: logging.getLogger(name).level for name in CLIENTS}
    try:
        set_client_logs(verbose=False)
        assert not any(logging.getLogger(name).isEnabledFor(logging.ERROR) for name in (*CLIENTS, "aiokafka.conn"))
        set_client_logs(verbose=True)
        assert all(logging.getLogger(name).isEnabledFor(logging.WARNING) for name in CLIENTS)
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
