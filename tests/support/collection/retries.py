"""Prints why each attempt that was tried again failed: pytest shows only a test's last one.

A test that failed and then passed is a defect with a seed, and a shared lab that one test broke fails the next ones for
a reason of its own: the first attempt's reason is the one that counts.
"""

from __future__ import annotations

import pytest

_WIDTH = 600
"""The characters of an attempt's reason that are printed."""


class Retried:
    """The attempts that failed and were tried again, which the run's own process prints."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":  # pytest-rerunfailures' word
            self._lines.append(f"{report.nodeid} ({report.when}): {reason(report)}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section("attempts that failed and were tried again")
            for line in self._lines:
                terminalreporter.write_line(line)


def reason(report: pytest.TestReport) -> str:
    """An attempt's error in one line, with the line of the test or helper that raised it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    said = report.longreprtext if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
    return " ".join(said.split())[-_WIDTH:] if crash is None else " ".join(said.split())[:_WIDTH]


def pytest_configure(config: pytest.Config) -> None:
    """Only where the report is printed: not in a worker of pytest-xdist."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Retried())
