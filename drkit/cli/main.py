"""`drkit`: the process. What a command does is in `application` and below."""

from __future__ import annotations

import sys
from typing import NoReturn

from drkit.cli.wiring import interrupts


def main() -> NoReturn:
    """Entry point: signals are caught before anything else is imported, which takes longer than some commands."""
    code = 1
    try:
        interrupts.catch()
        from drkit.cli.application import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        pass
    number = interrupts.unanswered()
    if number is not None:  # it came before there was a command to answer it
        from drkit.cli.wiring.output import interruption, writer_for

        error = interruption(number, "Nothing was done yet")
        writer_for(sys.argv[1:]).error(error)
        code = int(error.exit_code)
    interrupts.leave(code)


if __name__ == "__main__":
    main()
