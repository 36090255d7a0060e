"""The same by real processes: streams that take nothing, other locales, limits, and signals while a command starts."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from drkit.store import open_store
from tests.support.commands.bad_input import CONFIG, ROOT, Bad, check, contents, lay, rows
from tests.support.commands.in_process import Ended
from tests.unit.bad_input import test_configuration, test_files, test_flags, test_stores_and_hosts

TABLES = (test_configuration.ROWS, test_flags.ROWS, test_files.ROWS, test_files.PROPERTIES, test_stores_and_hosts.ROWS)


def environment(folder, **variables):
    own = {name: value for name, value in os.environ.items() if not name.upper().startswith("DRKIT_")}
    return own | {"PYTHONPATH": str(ROOT), "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), **variables}


def drkit(*arguments, folder, **options):
    """Run drkit as a shell would."""
    return subprocess.run(
        [sys.executable, "-m", "drkit", *arguments],
        cwd=folder,
        env=options.pop("env", environment(folder)),
        text=True,
        errors="replace",
        check=False,
        timeout=120,
        **options,
    )


def piped(*arguments, folder, **options):
    return drkit(*arguments, folder=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def laid(folder, config=CONFIG):
    lay(Bad("", "", config=config), folder)
    return folder


def test_the_tables_are_long_enough():
    assert sum(map(len, TABLES)) >= 200


@rows([test_configuration.ROWS[13], test_flags.ROWS[0], test_files.ROWS[2], test_stores_and_hosts.ROWS[30]])
def test_a_process_is_refused_as_a_call_is(bad, tmp_path):
    lay(bad, tmp_path)
    before = contents(tmp_path)
    arguments = bad.arguments or ["config", "show"]
    ended = [
        piped(*arguments, *mode, folder=tmp_path, env=environment(tmp_path, **bad.variables))
        for mode in ((), ("--output", "json"))
    ]
    check(bad, *(Ended(each.returncode, each.stdout, each.stderr) for each in ended))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("mode", [[], ["--output", "json"]])
def test_a_result_that_a_full_disk_takes_not_is_no_success(mode, tmp_path):
    with Path("/dev/full").open("w") as full:
        ended = drkit("config", "show", *mode, folder=laid(tmp_path), stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert "stdout accepts no more: its disk is full" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_remarks_that_a_full_disk_takes_not_change_no_exit_code(tmp_path):
    with Path("/dev/full").open("w") as full:
        good = drkit("config", "show", folder=laid(tmp_path), stdout=subprocess.PIPE, stderr=full)
        bad = drkit("status", "--output", "json", folder=tmp_path, stdout=subprocess.PIPE, stderr=full)
    assert (good.returncode, bad.returncode) == (0, 3)
    assert json.loads(bad.stdout)["error"]["exit_code"] == 3


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_change_no_exit_code(closed, tmp_path):
    laid(tmp_path)
    for words, code in (("config show", 0), ("status -o json", 3), ("status --nope", 2)):
        command = f"exec {sys.executable} -m drkit {words} {closed}"
        ended = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == code, (words, ended.stderr)
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}])
@pytest.mark.parametrize("words", [["failover", "--to", "Zürich→dr"], ["status", "--link", "ü→💥"]])
def test_another_locale_is_no_reason_to_fail_otherwise(variables, words, tmp_path):
    laid(tmp_path)
    open_store(f"sqlite:///{tmp_path}/drkit.db").close()
    env = environment(tmp_path, **variables)
    people, programs = (piped(*words, *mode, folder=tmp_path, env=env) for mode in ((), ("-o", "json")))
    assert (people.returncode, programs.returncode) == (2, 2), people.stderr
    assert words[-1] in json.loads(programs.stdout)["error"]["what"]
    assert "Traceback" not in people.stderr + programs.stderr


def test_bytes_that_are_no_text_are_told_in_every_locale(tmp_path):
    env = environment(tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    ended = piped("status", "--config", b"\xff\xfe.toml", "-o", "json", folder=tmp_path, env=env)
    assert ended.returncode == 2
    assert json.loads(ended.stdout)["error"]["remedy"]


def test_a_file_that_may_not_grow_is_told(tmp_path):
    """As a full disk, of which a test can't have one: `ulimit -f` is met at the first block."""
    laid(tmp_path)
    open_store(f"sqlite:///{tmp_path}/drkit.db").close()
    before = contents(tmp_path)

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    for words in (
        ["store", "backup", "--out", "b.gz"],
        ["init", "--offline", "--source", "h:1", "--target", "i:1", "--config", "new.toml"],
        ["evidence", "key", "--out", "k"],
        ["link", "pause", "primary->dr"],
    ):
        ended = piped(*words, folder=tmp_path, preexec_fn=limited)
        assert ended.returncode == 1, (words, ended.stderr)
        assert ended.stderr.count("error: ") == 1, ended.stderr
        assert "do: " in ended.stderr
        assert "Traceback" not in ended.stderr
        assert "internal error" not in ended.stderr
        left = {name: found for name, found in contents(tmp_path).items() if not name.endswith(("-wal", "-shm"))}
        assert left == before, words  # SQLite can't tidy up its own files then


WAITING = (  # for a minute where that can be said: on a busy machine two seconds are over before the signal is sent
    "status --timeout 60",
    "doctor --timeout 60",
    "config check --connect --timeout 60",
    "failover --to dr --dry-run",
    "init --source {servers} --target i:1 --config new.toml --timeout 60",
)


@pytest.mark.parametrize(
    ("words", "number"), [*((each, signal.SIGINT) for each in WAITING), (WAITING[0], signal.SIGTERM)]
)
def test_a_signal_while_a_command_waits_for_a_cluster_ends_it_quietly(words, number, tmp_path):
    asked = threading.Event()
    children: list[subprocess.Popen[str]] = []

    def silent(connection):
        connection.recv(4096)
        while children:  # held once, or a command that waits for two seconds may be over before it is signalled
            children.pop().send_signal(signal.SIGSTOP)
        asked.set()
        connection.recv(4096)

    with test_stores_and_hosts.server(silent) as port:
        servers = f"127.0.0.1:{port}"
        laid(tmp_path, CONFIG.replace("127.0.0.1:1", servers))
        open_store(f"sqlite:///{tmp_path}/drkit.db").close()
        before = contents(tmp_path)
        child = subprocess.Popen(
            [sys.executable, "-m", "drkit", *words.format(servers=servers).split()],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        try:
            assert asked.wait(90), "the command never asked"
            child.send_signal(number)
            child.send_signal(signal.SIGCONT)
            out, err = child.communicate(timeout=90)
        finally:
            child.kill()
            child.communicate()
    assert child.returncode == 128 + number, err
    assert err.count("error: ") == 1, err
    assert ("interrupted by the keyboard" if number == signal.SIGINT else "ended by SIGTERM") in err
    assert "Traceback" not in err
    assert out == ""
    if not words.startswith("mirror"):
        assert contents(tmp_path) == before
