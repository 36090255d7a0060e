"""SIGHUP: a signal of somebody's makes a command read its file again; that of a closed terminal ends it."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.wait import wait_until

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, threading
from pathlib import Path
from drkit.cli.wiring.reloading import hangups
said, stop = Path(sys.argv[1]), threading.Event()
def say(word):
    with said.open("a") as file:
        file.write(word + "\\n")
with hangups(stop) as found:
    found.answer(lambda: say("reload"))
    say("ready")
    stop.wait(60)
say("stopped" if stop.is_set() else "nobody stopped it")
"""


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
