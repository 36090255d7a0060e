"""Ctrl-C and SIGTERM at every moment of a command: its exit code says so, no trace is printed, nothing is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from drkit.model.topology import LinkId
from drkit.store import open_store

ROOT = Path(__file__).parents[4]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
COMMAND = ("drkit.cli.main", "config", "show", "--output", "json")
COUNTED = 6
"""Lines at the end in which signals are blocked, or that are none of the program's."""


def struck(line, number, module, *arguments, folder):
    """Run a module's `main` with a signal at a line; what it counted goes to `folder`."""
    command = [sys.executable, "-m", "tests.support.killing.strike", str(line), str(int(number)), module, *arguments]
    environment = os.environ | {"STRIKE_LINES": str(folder / "lines"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def lines_of(module, *arguments, folder, code=0):
    """How many lines it has from when it catches signals to the last that can be struck."""
    done = struck(0, signal.SIGTERM, module, *arguments, folder=folder)
    assert done.returncode == code, done.stderr
    return int((folder / "lines").read_text()) - COUNTED


@pytest.mark.parametrize("every", [16, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("number", CODES)
def test_a_signal_at_any_line_of_a_program_ends_it_with_its_code_and_leaves_nothing(number, every, tmp_path):
    module, folder = "tests.support.killing.interrupted", tmp_path / "made"
    lines = lines_of(module, str(folder), folder=tmp_path, code=5)
    assert lines > 200
    for line in [*range(1, lines, every), lines]:
        done = struck(line, number, module, str(folder), folder=tmp_path)
        assert done.returncode == CODES[number], (line, done.returncode, done.stderr)
        assert done.stderr == "", line
        assert done.stdout in {"", "one\ntwo\n"}, line
        assert not folder.exists(), line


@pytest.mark.parametrize("line", [1, 40_000])
def test_a_signal_while_a_command_is_imported_has_it_answer(line, tmp_path):
    document = answered(line, signal.SIGTERM, tmp_path)
    assert document["error"]["what"] == "ended by SIGTERM"


@pytest.mark.long
@pytest.mark.parametrize("number", CODES)
def test_a_signal_at_any_line_of_a_command_has_it_answer_once(number, tmp_path):
    (tmp_path / "drkit.toml").write_text('[clusters.a]\nbootstrap_servers = "127.0.0.1:1"\n')
    lines = lines_of(*COMMAND, folder=tmp_path)
    drawn = random.Random(int(number))  # noqa: S311 - no secret
    for line in [lines, *(drawn.randint(1, lines) for _ in range(6))]:
        document = answered(line, number, tmp_path)
        assert "error" not in document or document["error"]["exit_code"] == CODES[number]


def answered(line, number, folder):
    """What a command with a signal at a line writes to stdout."""
    done = struck(line, number, *COMMAND, folder=folder)
    assert done.returncode == CODES[number], (line, done.returncode, done.stderr)
    assert "Traceback" not in done.stderr, (line, done.stderr)
    assert "ignored" not in done.stderr, (line, done.stderr)
    return json.loads(done.stdout)


def test_a_signal_that_is_ignored_stays_ignored():
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from drkit.cli.process import interrupts\n"
        "interrupts.catch()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "interrupts.exit_process(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_that_runs_until_it_is_stopped_ends_with_its_own_code_whatever_comes_after():
    program = (
        "import os, signal\n"
        "from drkit.cli.process import interrupts\n"
        "interrupts.catch()\n"
        "with interrupts.stop_on_signals() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    assert stop.wait(10)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "interrupts.exit_process(5)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (5, "")


@pytest.mark.parametrize(("second_ends", "code"), [(True, -signal.SIGTERM), (False, 5)])
def test_a_second_signal_ends_a_command_that_does_not_stop_where_it_says_so(second_ends, code):
    program = (
        "import os, signal\n"
        "from drkit.cli.process import interrupts\n"
        "interrupts.catch()\n"
        f"with interrupts.stop_on_signals(second_ends_process={second_ends}) as stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    assert stop.wait(10)\n"
        "interrupts.exit_process(5)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_process_without_catch_keeps_its_own_handlers():
    program = (
        "import signal\n"
        "before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]\n"
        "import drkit.cli.main, drkit.cli.application\n"
        "from drkit.cli.process import interrupts\n"
        "with interrupts.deferred(): pass\n"
        "interrupts.mark_finished()\n"
        "assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]\n"
        "raise SystemExit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")


def ended(program):
    """What happened to a program that catches signals, and imports what programs here need."""
    begin = (
        "import os, signal, sys, threading, time\n"
        "from drkit.cli.process import interrupts\n"
        "interrupts.catch()\n"
        "def strike(number=signal.SIGTERM):\n"
        "    os.kill(os.getpid(), number)\n"
        "    time.sleep(60)\n"
        "code = 5\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", begin + program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=50
    )
    return done.returncode, done.stdout, done.stderr


def test_a_signal_that_a_library_drops_is_raised_again():
    program = (
        "try:\n"
        "    for _ in range(3):\n"
        "        try:\n"
        "            strike()\n"
        "        except BaseException: pass\n"  # as C code that clears whatever error there is
        "    time.sleep(60)\n"
        "except interrupts.TermSignal:\n"
        "    code = 143\n"
        "interrupts.exit_process(code)\n"
    )
    assert ended(program) == (143, "", "")


def test_a_signal_that_is_kept_without_being_raised_is_raised_at_the_next_safe_point():
    program = (
        "kept = []\n"
        "try:\n"
        "    try:\n"
        "        strike(signal.SIGINT)\n"
        "    except BaseException as error: kept.append(error)\n"
        "    with interrupts.deferred():\n"
        "        print('written')\n"
        "except KeyboardInterrupt:\n"
        "    code = 130\n"
        "interrupts.exit_process(code)\n"
    )
    assert ended(program) == (130, "", "")


def test_a_signal_that_is_on_its_way_cuts_no_clean_up_short():
    program = (
        "try:\n"
        "    try:\n"
        "        strike()\n"
        "    finally:\n"
        "        time.sleep(0.2)\n"
        "        interrupts.check()\n"
        "        with interrupts.deferred():\n"
        "            print('cleaned')\n"
        "except interrupts.TermSignal:\n"
        "    code = 143\n"
        "interrupts.exit_process(code)\n"
    )
    assert ended(program) == (143, "cleaned\n", "")


def test_a_command_that_catches_a_signal_itself_ends_as_it_says():
    program = (
        "interrupts.reraise_lost(enabled=False)\n"
        "try:\n"
        "    strike()\n"
        "except KeyboardInterrupt:\n"
        "    code = 7\n"
        "time.sleep(0.2)\n"
        "interrupts.check()\n"
        "print('done')\n"
        "interrupts.exit_process(code)\n"
    )
    assert ended(program) == (7, "done\n", "")


def test_a_signal_in_a_block_that_fails_is_raised_behind_it():
    program = (
        "try:\n"
        "    try:\n"
        "        with interrupts.deferred():\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "            raise ValueError\n"
        "    except ValueError:\n"
        "        time.sleep(60)\n"
        "except interrupts.TermSignal:\n"
        "    code = 143\n"
        "interrupts.exit_process(code)\n"
    )
    assert ended(program) == (143, "", "")


def test_a_signal_that_another_thread_gets_wakes_the_main_thread():
    program = (
        "done = threading.Event()\n"
        "other = threading.Thread(target=done.wait, daemon=True)\n"
        "other.start()\n"
        "threading.Timer(0.1, signal.pthread_kill, (other.ident, signal.SIGTERM)).start()\n"
        "try:\n"
        "    threading.Event().wait(60)\n"
        "except interrupts.TermSignal:\n"
        "    code = 143\n"
        "interrupts.exit_process(code)\n"
    )
    assert ended(program) == (143, "", "")


def test_what_was_dropped_just_before_the_end_still_gives_the_code():
    program = (
        "try:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept BaseException: pass\ninterrupts.exit_process(code)\n"
    )
    assert ended(program) == (143, "", "")


@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_pyarrow_imports_pandas_is_not_lost(number, tmp_path):
    """pyarrow imports it in C++ where it first needs it, and clears what that raises."""
    (tmp_path / "pandas.py").write_text(
        f"import os, time\nos.kill(os.getpid(), {int(number)})\ntime.sleep(0.2)\n"  # raised while it is imported
    )
    program = (
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import pyarrow\n"
        "try:\n"
        "    pyarrow.infer_type([1.5, None])\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        f"    code = {CODES[number]}\n"
        "interrupts.exit_process(code)\n"
    )
    assert ended(program) == (CODES[number], "", "")


@pytest.fixture
def link_in_store(tmp_path):
    """A folder with a configuration and a store; its link's topics that are paused, when called."""
    url = f"sqlite:///{tmp_path / 'drkit.db'}"
    clusters = "".join(f'[clusters.{alias}]\nbootstrap_servers = "127.0.0.1:{n}"\n' for n, alias in enumerate("ab", 1))
    link = '[[links]]\nsource = "a"\ntarget = "b"\ntopics = ["t[0-9]*"]\n'
    (tmp_path / "drkit.toml").write_text(f'{clusters}[store]\nurl = "{url}"\n{link}')
    open_store(url).close()

    def paused():
        with closing(open_store(url)) as store:
            control = store.link_control(LinkId("a", "b"))
            return frozenset() if control is None else control.paused_topics

    return paused


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize(
    ("where", "changing", "changed"),
    [
        ("drkit.cli.verbs.mirroring.link._check_restored", False, False),
        ("drkit.mirror.control.pause", True, False),
        ("drkit.state_topic.recorded_store.StateRecording.close", True, True),
    ],
    ids=["before", "as it begins", "once it is done"],
)
def test_a_command_that_a_signal_ends_says_that_nothing_was_changed_only_where_nothing_can_have_been(
    where, changing, changed, number, link_in_store, tmp_path
):
    strike = (
        "import os, pkgutil, sys\n"
        "from drkit.cli.process import interrupts\n"
        "interrupts.catch()\n"
        f"*owner, name = {where!r}.split('.')\n"
        "owner = pkgutil.resolve_name('.'.join(owner))\n"
        "real = getattr(owner, name)\n"
        "def struck(*given, **named):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return real(*given, **named)\n"
        "setattr(owner, name, struck)\n"
        "from drkit.cli.main import main\n"
        "sys.argv[1:] = ['link', 'pause', 'a->b', '--topic', 't', '--output', 'json']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", strike], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert link_in_store() == ({"t"} if changed else frozenset())
    assert done.returncode == (7 if changing else CODES[number]), done.stderr
    assert ("Nothing was changed" in done.stdout) is not changing
