"""Runs `drkit …` so that its run stops as stages begin: `python -m … NOTE STAGE[,STAGE…] VERB …`.

Once the journal has the intent of one of these stages, before its work, the process writes the stage's name to the
file NOTE and sends itself SIGSTOP; when resumed, it continues to the next of them. So a drill injects faults at exactly
that moment. drkit's runs have no code for this: the process that a drill starts wraps the journal.
"""

from __future__ import annotations

import runpy
import signal
import sys
import threading
from functools import wraps
from pathlib import Path

from drkit.failover.journal.journal import Journal


def stop_at_stages(note: Path, stages: frozenset[str]) -> None:
    """Stop this process once at each of these stages; of several links as the first of them comes there."""
    remaining = set(stages)
    one_at_a_time = threading.Lock()  # links run on threads of their own, and the note names one stage
    original = Journal.intent

    @wraps(original)
    def intent(journal: Journal, stage: str) -> None:
        original(journal, stage)
        with one_at_a_time:
            if stage not in remaining:
                return
            remaining.discard(stage)
            note.write_text(stage, encoding="utf-8")
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread, so that it stops here

    Journal.intent = intent  # type: ignore[method-assign, assignment]  # of this process alone


def main() -> None:
    """Wrap the journal, then be `drkit`."""
    note, stages, *arguments = sys.argv[1:]
    stop_at_stages(Path(note), frozenset(stages.split(",")))
    sys.argv[1:] = arguments
    runpy.run_module("drkit", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
