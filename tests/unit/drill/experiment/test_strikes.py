"""A run that stands still at a stage: the wrapped journal, and the command that waits for it."""

import json
import signal
from pathlib import Path

from drkit.drill.environment.child_processes import run_command

STANDS = """\
import sys
from pathlib import Path
from drkit.drill.environment.stage_stop import stop_at_stages
from drkit.failover.journal.journal import Journal
from drkit.store import open_store

note, url = Path(sys.argv[1]), sys.argv[2]
stop_at_stages(note, frozenset({"drain", "commit"}))
store = open_store(url, create=True)
journal = Journal(store, "01RUN")
for stage in ("fence", "drain", "translate", "commit", "drain"):
    journal.intent(stage)
    print(stage, flush=True)
print([each.stage for each in store.entries("01RUN")])
store.close()
"""


def test_a_run_stands_still_once_at_each_of_the_stages_with_the_intent_written(tmp_path):
    note = tmp_path / "stage"
    seen = []

    def at_stop(process):
        seen.append(note.read_text())
        assert process.poll() is None

    finished = run_command(
        ["-c", STANDS, str(note), f"sqlite:///{tmp_path / 'store.db'}"], tmp_path / "log", tmp_path, 120, at_stop
    )
    assert finished.exit_code == 0, finished.log
    assert seen == ["drain", "commit"]
    *stages, entries = finished.stdout.splitlines()
    assert stages == ["fence", "drain", "translate", "commit", "drain"]
    assert json.loads(entries.replace("'", '"')) == stages


LINKS_STAND = """\
import sys, threading
from pathlib import Path
from drkit.drill.environment.stage_stop import stop_at_stages
from drkit.failover.journal.journal import Journal
from drkit.store import open_store

note, url = Path(sys.argv[1]), sys.argv[2]
stop_at_stages(note, frozenset({"drain", "commit"}))
store = open_store(url, create=True)
together = threading.Barrier(6)

def link(run):
    journal = Journal(store, run)
    together.wait()
    for stage in ("drain", "commit"):
        journal.intent(stage)

threads = [threading.Thread(target=link, args=(f"01RUN{number}",)) for number in range(6)]
[each.start() for each in threads]
[each.join() for each in threads]
print(sum(len(store.entries(f"01RUN{number}")) for number in range(6)))
store.close()
"""


def test_a_run_of_several_links_stands_still_once_as_the_first_of_them_comes_there(tmp_path):
    note = tmp_path / "stage"
    seen = []
    words = ["-c", LINKS_STAND, str(note), f"sqlite:///{tmp_path / 'store.db'}"]
    finished = run_command(words, tmp_path / "log", tmp_path, 120, lambda _: seen.append(note.read_text()))
    assert (finished.exit_code, finished.stdout) == (0, "12\n"), finished.log
    assert sorted(seen) == ["commit", "drain"]


STOPS = "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('after')\n"


def test_a_command_that_stands_still_can_be_killed(tmp_path):
    def at_stop(process):
        process.kill()
        process.wait()

    finished = run_command(["-c", STOPS], tmp_path / "log", tmp_path, 60, at_stop)
    assert (finished.exit_code, finished.stdout) == (-signal.SIGKILL, "before\n")


def test_an_interrupt_at_a_stage_leaves_no_process(tmp_path):
    pids = []

    def at_stop(process):
        pids.append(process.pid)
        raise KeyboardInterrupt

    try:
        run_command(["-c", STOPS], tmp_path / "log", tmp_path, 60, at_stop)
    except KeyboardInterrupt:
        assert not Path(f"/proc/{pids[0]}").exists()
    else:
        raise AssertionError("the interrupt was lost")


def test_a_command_that_takes_too_long_is_ended_also_where_it_stands_still(tmp_path):
    finished = run_command(["-c", STOPS], tmp_path / "log", tmp_path, 3)
    assert finished.exit_code is None


def test_the_process_that_is_wrapped_is_drkit_itself(tmp_path):
    """Its usage errors and exit codes are the command's own."""
    command = ["-m", "drkit.drill.environment.stage_stop", str(tmp_path / "note"), "commit", "failover", "--nothing"]
    finished = run_command([*command, "--output", "json"], tmp_path / "log", tmp_path, 60)
    assert finished.exit_code == 2
    assert "--nothing" in json.loads(finished.stdout)["error"]["what"]
