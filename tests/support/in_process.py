"""A command of drkit's run in this process: a process of its own takes longer to import drkit than most commands take.

For what the process itself does (signals, streams, its end) there are `tests/unit/bad_input/test_processes.py`,
`tests/unit/cli/test_frame.py` and those tests that start one.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from drkit.cli.application import run


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def in_process(arguments: Sequence[str]) -> Ended:
    """Run a command in this process, as `drkit` itself does: what it writes, and its exit code."""
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
