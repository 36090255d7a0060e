"""Fixtures for every test; each room's fixtures are a module of tests/support."""

import signal

pytest_plugins = ["tests.support.lab", "tests.support.joining"]


def pytest_configure() -> None:
    """A test run started in the background by a shell inherits an ignored SIGINT; the tests send it to children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
