"""Runs a command at a terminal (a pty) of a given width, types answers, and returns the final screen."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TOKEN = re.compile(
    r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|([\r\n\b])|([^\x1b])"
)
_ROWS = 50
_CHUNK = 65_536
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Shown:
    """A command's final screen, its exit code (negative: the signal), and its duration."""

    screen: str
    code: int
    seconds: float
    raw: str


def at_terminal(
    command: Sequence[str],
    *,
    columns: int = 100,
    answers: Sequence[tuple[str, str | Callable[[], str]]] = (),
    when: Callable[[], bool] | None = None,
    then: Callable[[], object] | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = 600.0,
) -> Shown:
    """Run a command at a terminal.

    Args:
        command: program and arguments.
        columns: the terminal's width.
        answers: what to wait for on the screen, and the line typed then (or what makes it), one after the other.
        when: called while the command runs, until it is true: then `then` is called.
        then: called at that moment (default: SIGKILL the command).
        environment: the command's, in addition to this process's.
        cwd: its working directory.
        seconds: how long it may take.

    Raises:
        AssertionError: it takes longer.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    width = {"COLUMNS": str(columns), "LINES": str(_ROWS), "TERM": "xterm-256color"}
    child = subprocess.Popen(
        list(command),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **width, **(environment or {})},
        cwd=cwd,
        start_new_session=True,
    )
    os.close(theirs)
    started = time.monotonic()
    text, left, looked, look_at = "", list(answers), 0, started
    try:
        while True:
            ready, _, _ = select.select([ours], [], [], 0.05)
            if ready:
                try:
                    got = os.read(ours, _CHUNK)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    break
                if not got:
                    break
                text += got.decode(errors="replace")
            if left and re.search(left[0][0], _plain(text[looked:])) is not None:
                looked = len(text)
                answer = left.pop(0)[1]
                os.write(ours, f"{answer if isinstance(answer, str) else answer()}\n".encode())
            if when is not None and time.monotonic() > look_at:
                look_at = time.monotonic() + _LOOK_SECONDS
                if when():
                    when = None
                    (then or (lambda: os.killpg(child.pid, signal.SIGKILL)))()
            assert time.monotonic() < started + seconds, f"{' '.join(command)} does not end:\n{screen(text)}"
        code = child.wait(30)
        return Shown(screen(text), code, time.monotonic() - started, text)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(30)
        os.close(ours)


def screen(text: str) -> str:
    """The final screen of a terminal after this output: without spinners, each line once."""
    lines: list[list[str]] = [[]]
    row = column = 0
    for token in _TOKEN.finditer(text):
        parameters, letter, control, char = token.groups()
        if char is not None:
            line = lines[row]
            line.extend(" " * (column + 1 - len(line)))
            line[column] = char
            column += 1
        elif control == "\r":
            column = 0
        elif control == "\n":
            row += 1
            lines.extend([] for _ in range(row + 1 - len(lines)))
        elif control == "\b":
            column = max(0, column - 1)
        elif letter == "A":
            row = max(0, row - int(parameters or 1))
        elif letter == "K":
            if parameters == "2":
                lines[row] = []
            else:
                del lines[row][column:]
    return "\n".join("".join(line).rstrip() for line in lines).strip("\n")


def _plain(text: str) -> str:
    return _TOKEN.sub(lambda token: token[4] or token[3] or "", text)
