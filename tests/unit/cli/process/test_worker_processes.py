"""A parent of workers hears a signal to stop whenever it comes, and passes it on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from drkit.cli.output import OutputMode, OutputWriter
from drkit.cli.process.worker_processes import WorkerProcesses
from drkit.model.errors import ExitCode
from tests.support.killing.slow_signals import slow_signals
from tests.support.wait import wait_until

CHILD = """#!{python}
import os, signal, sys, time
from pathlib import Path

def leave(*_):
    Path({folder!r}, f"{{os.getpid()}}.left").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
Path({folder!r}, f"{{os.getpid()}}.begun").touch()
while True:
    time.sleep(60)
"""


def test_signals_that_take_longer_to_answer_than_it_waits_do_not_stop_it(tmp_path: Path, monkeypatch) -> None:
    child = tmp_path / "child"
    child.write_text(CHILD.format(python=sys.executable, folder=str(tmp_path)))
    child.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(child))
    writer = OutputWriter.for_mode(OutputMode.HUMAN)
    children, stop, ended = WorkerProcesses(2, (), writer, until_done=False), threading.Event(), threading.Event()

    def stop_them(answered: list[int]) -> None:
        wait_until(lambda: len(list(tmp_path.glob("*.begun"))) == 2, 60, "both children")
        wait_until(lambda: len(answered) > 3, 60, "some signals")
        stop.set()
        if not ended.wait(30):  # it would wait for ever
            for begun in tmp_path.glob("*.begun"):
                os.kill(int(begun.stem), signal.SIGKILL)

    with slow_signals(0.3) as answered:
        stopper = threading.Thread(target=stop_them, args=(answered,))
        stopper.start()
        code = children.run(stop)
    ended.set()
    stopper.join()
    assert code is ExitCode.OK
    assert len(list(tmp_path.glob("*.left"))) == 2, "they were told to stop"
