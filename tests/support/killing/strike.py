"""Sends a signal at a chosen line of a program, so that a test can try every moment of its life reproducibly.

    python -m tests.support.killing.strike LINE SIGNAL MODULE ARGUMENT…

runs MODULE's `main` and sends SIGNAL to itself as the LINE-th line of Python begins, counted from the moment at which
the program handles it. LINE 0: no signal; the lines are written to the file that $STRIKE_LINES names.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any


def strike(line: int, number: int) -> None:
    """Send the signal as this line begins."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if event == "line" and callable(signal.getsignal(number)):
            lines += 1
            if lines == line:
                os.kill(os.getpid(), number)
        return trace

    if line == 0:
        end = os._exit

        def counted(code: int) -> None:
            sys.settrace(None)
            Path(os.environ["STRIKE_LINES"]).write_text(str(lines))
            end(code)

        os._exit = counted
    sys.settrace(trace)


if __name__ == "__main__":
    line, number, module, *arguments = sys.argv[1:]
    sys.argv[1:] = arguments
    if int(number) == signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler is not the program's
    strike(int(line), int(number))
    importlib.import_module(module).main()
