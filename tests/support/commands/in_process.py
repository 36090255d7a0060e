"""Runs a command of drkit in this process: a separate one takes longer to import drkit than to run most commands.

The process itself (signals, streams, its end) is covered by `tests/unit/bad_input/test_processes.py`,
`tests/unit/cli/process/test_frame.py` and those tests that start one.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from drkit.cli.application import run


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's exit code and output."""

    code: int
    out: str
    err: str


def in_process(arguments: Sequence[str]) -> Ended:
    """Run a command in this process, like `drkit` itself; returns its output and its exit code."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return Ended(code, _written(out), _written(err))


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content = stream.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
    stream.close()
    return content
