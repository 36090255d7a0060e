"""A real Chromium, for tests that look at the page as a person does; skipped with the reason where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

WAIT_MS = 120_000
"""Of each condition that is waited for: a machine that is busy is no failure."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed: pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium is on PATH: apt-get install chromium")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=options, timeout=WAIT_MS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def view_of(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    """A page in a window of its own."""
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    try:
        view = context.new_page()
        view.goto(url)
        yield view
    finally:
        context.close()
