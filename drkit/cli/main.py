"""`drkit`: the process. What a command does is in `application` and below."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from drkit.cli.process import hangup, interrupts
from drkit.model.process import keep_private


def main() -> NoReturn:
    """Entry point: signals are caught before anything else is imported, which takes longer than some commands."""
    code, began = 1, False
    number: int | None = None
    try:
        _open_standard_streams()
        interrupts.catch()
        hangup.count_early(sys.argv[1:])
        keep_private()
        from drkit.cli.application import run

        code = run(sys.argv[1:])
        number = interrupts.unacknowledged()
        interrupts.mark_finished()
    except KeyboardInterrupt:
        began = interrupts.is_finished()  # it struck in the few lines by which a command ends
        interrupts.mark_finished()
        number = interrupts.pending()
    if number is not None:  # there was no command to answer it
        from drkit.cli.output import OutputWriter, interruption, writer_for

        writer = writer_for(sys.argv[1:])
        writer.emitted = OutputWriter.wrote
        error = interruption(number, "`drkit runs` lists what was kept" if began else "Nothing was done yet")
        writer.error(error)
        code = int(error.exit_code)
    interrupts.exit_process(code)


def _open_standard_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr an empty one: the next file that it opens would
    get that number, and whatever a library writes to stderr.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
