"""A small program with all parts of a drkit command: work, a result, and cleanup at its end."""

from __future__ import annotations

import atexit
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from drkit.cli.process import interrupts


class Rubbish:
    """Part of a cycle, so that the garbage collector runs `__del__`, where Python drops exceptions."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        sum(each for each in range(3))


def work(folder: Path) -> None:
    """Create something that must be removed; leave garbage behind; write the result atomically."""
    import gc  # noqa: PLC0415 - as verbs import what they need

    folder.mkdir()
    for _ in range(3):
        Rubbish()
        gc.collect()
    with suppress(BaseException):  # like libraries
        sum(each for each in range(3))
    with interrupts.deferred():
        sys.stdout.write("one\n")
        sys.stdout.write("two\n")
        sys.stdout.flush()


def main() -> None:
    """Run it like `drkit.cli.main` runs a command."""
    code = 5
    folder = Path(sys.argv[1])
    try:
        interrupts.catch()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        work(folder)
        interrupts.mark_finished()
    except interrupts.TermSignal:
        code = 143
    except KeyboardInterrupt:
        code = 130
    interrupts.exit_process(code)
