"""SIGHUP: a signal of somebody's makes a command read its file again; that of a closed terminal ends it."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wait import wait_until

ROOT = Path(__file__).parents[4]
PROGRAM = """
import sys, threading
from pathlib import Path
from drkit.cli.process.hangup import hangups
said, stop = Path(sys.argv[1]), threading.Event()
def say(word):
    with said.open("a") as file:
        file.write(word + "\\n")
with hangups(stop) as found:
    found.handle_with(lambda: say("reload"))
    say("ready")
    stop.wait(60)
say("stopped" if stop.is_set() else "nobody stopped it")
"""


@pytest.fixture(autouse=True)
def answered_as_by_default():
    """Children take over that signals are ignored: so they are where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def words(said: Path) -> list[str]:
    return said.read_text().split() if said.exists() else []


def test_each_signal_is_answered_where_there_is_no_terminal(tmp_path):
    said = tmp_path / "said"
    command = [sys.executable, "-c", PROGRAM, str(said)]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        for expected in (["ready"], ["ready", "reload"], ["ready", "reload", "reload"]):
            wait_until(lambda expected=expected: words(said) == expected, what=str(expected))
            process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(words(said)) == 4, what="the third answer")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(20)


def test_at_a_terminal_a_signal_is_answered_and_its_end_stops_the_command(tmp_path):
    said = tmp_path / "said"
    ours, its = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n" + PROGRAM,
        str(said),
    ]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdin=its)
    try:
        os.close(its)
        wait_until(lambda: words(said) == ["ready"], what="its start")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: words(said) == ["ready", "reload"], what="its answer")
        os.close(ours)  # the terminal's window
        assert process.wait(30) == 0
        assert words(said) == ["ready", "reload", "stopped"]
    finally:
        process.kill()
        process.wait(20)


EARLY = """
import signal, sys
from importlib.abc import MetaPathFinder
class AtTheFirstImport(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "drkit.cli.application":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGHUP)
        return None
sys.meta_path.insert(0, AtTheFirstImport())
sys.argv = ["drkit", *sys.argv[1:]]
from drkit.cli.main import main
main()
"""
"""drkit, with a SIGHUP as soon as it begins to load its commands."""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["mirror", "--config", "missing.toml"], 2),
        (["serve", "--config", "missing.toml"], 2),
        (["drill", "schedule", "no-such-experiment", "--cron", "0 4 * * 1"], 2),
        (["audit", "watch", "--config", "missing.toml"], 2),
        (["status", "--config", "missing.toml"], -signal.SIGHUP),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_signal_while_the_command_loads_ends_only_those_that_never_answer_it(tmp_path, words, code):
    done = subprocess.run(
        [sys.executable, "-c", EARLY, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr


NOTED = """
import signal, sys, threading
from pathlib import Path
from drkit.cli.process.hangup import hangups, count_early
said, stop = Path(sys.argv[1]), threading.Event()
answered = threading.Semaphore(0)
count_early(["mirror", "--link", "a->b"])
signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGHUP)
with hangups(stop) as found:
    found.handle_with(answered.release)
    for _ in range(2):
        assert answered.acquire(timeout=30), "each is answered"
    signal.raise_signal(signal.SIGHUP)
    assert answered.acquire(timeout=30), "later ones are, too"
signal.raise_signal(signal.SIGHUP)  # while the command ends
said.write_text("ended in order")
"""


def test_what_came_before_the_command_was_ready_is_answered_once_it_is(tmp_path):
    said = tmp_path / "said"
    subprocess.run([sys.executable, "-c", NOTED, str(said)], cwd=ROOT, start_new_session=True, timeout=60, check=True)
    assert words(said) == ["ended", "in", "order"]


HELD_BACK = """
import os, signal, subprocess, sys
from drkit.cli.process.hangup import sighup_blocked
child = '''
import os, signal
from drkit.cli.process.hangup import count_early
os.kill(os.getpid(), signal.SIGHUP)  # blocked: as one that came before the first line
assert signal.SIGHUP in signal.sigpending()
count_early(["mirror"])
assert signal.getsignal(signal.SIGHUP).count == 1
'''
with sighup_blocked():
    process = subprocess.Popen([sys.executable, "-c", child])
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
sys.exit(process.wait(30))
"""


def test_a_worker_that_is_told_before_its_first_line_has_noted_it():
    subprocess.run([sys.executable, "-c", HELD_BACK], cwd=ROOT, start_new_session=True, timeout=60, check=True)
