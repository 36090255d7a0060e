"""Scheduling for pytest-xdist: test files that need the same clusters run on one worker; the longest run first.

Each worker is a process with its own session fixtures: a lab, a secure lab, a Cassandra node, a Spark session. Every
worker starts what many tests need; for what few tests need, one worker gets all of them. Every other file is scheduled
separately (`--dist loadfile`). The longest files begin first and the unit tests come last: they fill the gaps, so that
all workers end together. `tests/durations.txt` has the duration of each; a run prints its own table of that form.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

DURATIONS = Path(__file__).resolve().parents[2] / "durations.txt"
UNKNOWN_SECONDS = 10.0
"""The assumed seconds of a file that starts clusters and isn't in that table."""
SHOWN_SECONDS = 10.0
TOGETHER = {
    "a lab of three clusters": ("tests/integration/topologies/",),
    "labs of the data sets": ("tests/integration/datasets/",),
    "Cassandra": ("tests/contract/", "tests/integration/test_lab.py"),
    "the secure lab": (
        "tests/integration/audit/command/test_rights.py",
        "tests/integration/audit/command/test_secured.py",
        "tests/integration/failover/rights/",
        "tests/integration/failover/fencing/test_fence.py",
        "tests/integration/failover/fencing/test_shared_command.py",
        "tests/integration/failover/fencing/test_shared_rules.py",
        "tests/integration/failover/running/test_frozen.py",
        "tests/integration/failover/planning/test_page_troubles.py",
        "tests/integration/failover/recovery/test_recovery_walk.py",
        "tests/integration/failover/running/test_refused_by_cluster.py",
        "tests/integration/failover/running/test_release.py",
        "tests/integration/failover/running/test_second_disaster.py",
        "tests/integration/kafka/test_acls.py",
        "tests/integration/mirror/data_path/test_refusals.py",
        "tests/integration/mirror/clusters/test_secured.py",
        "tests/integration/mirror/clusters/test_tls.py",
    ),
}
"""Environments that are started once, with the folders and files that need them."""


def scope(nodeid: str) -> str:
    """The scheduling scope of a test: all tests that need the same environment, else the tests of its file."""
    file = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if file.startswith(paths)), file)


def durations() -> dict[str, float]:
    """The last measured seconds of each long scope."""
    lines = (line.split(maxsplit=1) for line in DURATIONS.read_text().splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name in lines}


def begins_before(known: dict[str, float], name: str) -> tuple[float, str]:
    """The sort key of scopes: the longest first, then those of unknown length, unit tests last."""
    unknown = 0.0 if name.startswith("tests/unit/") else UNKNOWN_SECONDS
    return -known.get(name, unknown), name


class Scheduling(LoadFileScheduling):
    """Like `--dist loadfile`, but by `scope`, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


class Measured:
    """The duration of the tests of each scope, which the controller prints."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[scope(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"what took {SHOWN_SECONDS:.0f} s or more, as in tests/{DURATIONS.name}")
        for name, seconds in sorted(self._seconds.items(), key=lambda each: -each[1]):
            if seconds >= SHOWN_SECONDS:
                terminalreporter.write_line(f"{seconds:.0f} {name}")
        terminalreporter.write_line(f"# {sum(self._seconds.values()):.0f} in all")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """This scheduling for `--dist loadfile`; pytest-xdist's own for any other."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # it would begin with the scopes that have the most tests
    config.pluginmanager.register(Measured())
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make workers collect in the order in which scopes begin."""
    if hasattr(config, "workerinput"):
        known = durations()
        items.sort(key=lambda item: begins_before(known, scope(item.nodeid)))
