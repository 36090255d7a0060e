"""pytest-xdist: files whose tests start the same clusters run on one worker, so that these are started once.

Each worker is a process with session fixtures of its own: a lab, a secure lab, a node of Cassandra, a Spark session.
What many tests need, each worker starts; what few need, only the worker does that gets all of them. Every other file is
scheduled by itself (`--dist loadfile`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

TOGETHER = {
    "a lab of three clusters": ("tests/integration/topologies/",),
    "labs of the data sets": ("tests/integration/datasets/",),
    "Cassandra": ("tests/contract/", "tests/integration/test_lab.py"),
    "the secure lab": (
        "tests/integration/audit/test_rights.py",
        "tests/integration/audit/test_secured.py",
        "tests/integration/failover/rights/",
        "tests/integration/failover/test_fence.py",
        "tests/integration/failover/test_frozen.py",
        "tests/integration/failover/test_recovery_walk.py",
        "tests/integration/failover/test_release.py",
        "tests/integration/failover/test_second_disaster.py",
        "tests/integration/kafka/test_acls.py",
        "tests/integration/mirror/test_refusals.py",
        "tests/integration/mirror/test_secured.py",
        "tests/integration/mirror/test_tls.py",
    ),
}
"""What is started once, and the folders and files that need it."""


def scope(nodeid: str) -> str:
    """What a test is scheduled with: all that need the same, else the tests of its file."""
    file = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if file.startswith(paths)), file)


class Scheduling(LoadFileScheduling):
    """As `--dist loadfile`, but by `scope`. The largest begin first."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Ours for `--dist loadfile`; pytest-xdist's own for any other."""
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
