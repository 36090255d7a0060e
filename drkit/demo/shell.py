"""Runs drkit as an operator would: the same commands, as child processes, in JSON."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from drkit.model.errors import DrkitError

_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's output. `document` is its JSON, None if stdout had none."""

    command: str
    code: int
    document: dict[str, Any] | None
    stderr: str

    def expect(self, *codes: int) -> dict[str, Any]:
        """The document, if the exit code is one of these.

        Raises:
            DrkitError: another exit code, or no document; with the command's own words.
        """
        self.expect_code(*codes)
        if self.document is None:
            raise DrkitError(f"`{self.command}` wrote no document")
        return self.document

    def expect_code(self, *codes: int) -> None:
        """Raise a DrkitError with the command's own words unless it exited with one of these codes."""
        if self.code not in codes:
            said = " ".join(self.stderr.split()[-80:]) or "nothing"
            raise DrkitError(f"`{self.command}` exited {self.code}", meaning=f"It said: {said}")


def command_line(arguments: Sequence[str]) -> str:
    """The command as typed in a shell."""
    return shlex.join(["drkit", *arguments])


class Shell:
    """Runs drkit's commands with one lab's configuration; tracks running ones, and ends them."""

    def __init__(self, config: Path, log_dir: Path) -> None:
        self._config = config
        self._logs = log_dir
        self._children: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def run(self, *arguments: str, timeout: float = 300.0, lines: bool = False) -> CommandResult:
        """Run a command to its end, in JSON; `lines`: it writes one object a line, which are left aside."""
        line = command_line(arguments)
        full = [sys.executable, "-m", "drkit", *arguments, "--config", str(self._config), "--output", "json"]
        try:
            done = subprocess.run(full, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as error:
            raise DrkitError(f"`{line}` did not end within {timeout:.0f} s") from error
        document = None
        if done.stdout.strip() and not lines:
            try:
                document = json.loads(done.stdout)
            except ValueError as error:
                raise DrkitError(f"`{line}` wrote something else than one JSON document") from error
        return CommandResult(line, done.returncode, document, done.stderr)

    def start(self, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        """Start a command that continues; its output goes to a file of the lab."""
        stream = (self._logs / log).open("ab")
        full = [sys.executable, "-m", "drkit", *arguments, "--config", str(self._config), "--output", "json"]
        child = subprocess.Popen(full, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, start_new_session=True)
        self._children.append((child, stream))
        return child

    def stop(self, child: subprocess.Popen[bytes]) -> int:
        """SIGTERM, wait, and SIGKILL if that does not help. Returns the exit code."""
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            return child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def close(self) -> None:
        """End all running commands."""
        for child, stream in self._children:
            self.stop(child)
            stream.close()
        self._children.clear()
