"""`drkit …` whose run stands still as stages of it begin: `python -m … NOTE STAGE[,STAGE…] VERB …`.

At the first of these stages whose intent is in the journal, nothing of which is done, the process writes the stage's
name to the file NOTE and sends itself SIGSTOP; woken, it continues, to the next of them. So a drill strikes at exactly
that moment. drkit's runs have nothing of this in them: the journal is wrapped in the process that a drill starts.
"""

from __future__ import annotations

import runpy
import signal
import sys
import threading
from functools import wraps
from pathlib import Path

from drkit.failover.run.journal.journal import Journal


def stand_still(note: Path, stages: frozenset[str]) -> None:
    """Have this process stand still once at each of these stages."""
    left = set(stages)
    plain = Journal.intent

    @wraps(plain)
    def intent(journal: Journal, stage: str) -> None:
        plain(journal, stage)
        if stage in left:
            left.discard(stage)
            note.write_text(stage, encoding="utf-8")
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread: it goes no step further

    Journal.intent = intent  # type: ignore[method-assign, assignment]  # of this process alone


def main() -> None:
    """Wrap the journal, then be `drkit`."""
    note, stages, *arguments = sys.argv[1:]
    stand_still(Path(note), frozenset(stages.split(",")))
    sys.argv[1:] = arguments
    runpy.run_module("drkit", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
