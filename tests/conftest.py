"""Fixtures for every test; each room's fixtures are a module of tests/support."""

import os
import shutil
import signal
import tempfile

from hypothesis import settings

pytest_plugins = [
    "tests.support.clusters.lab",
    "tests.support.links.joining",
    "tests.support.collection.retries",
    "tests.support.collection.sampling",
    "tests.support.collection.scheduling",
]

settings.register_profile("drkit", deadline=None)  # a busy machine is no failure
settings.load_profile("drkit")


def pytest_configure(config) -> None:
    """A test run started in the background by a shell inherits an ignored SIGINT; the tests send it to children.

    What drkit keeps in the user's state directory (salvages, anchors of journals) is the tests' own.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash_state = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="drkit-state-")


def pytest_unconfigure(config) -> None:
    shutil.rmtree(getattr(config, "stash_state", ""), ignore_errors=True)
