"""Pictures of the status page in a real Chromium, light, dark and on a phone: those in docs/page.md.

    python -m tools.page_pictures docs/pictures

At 10 partitions it is `drkit serve` over a lab that is made for it, with a mirror, a load and a rehearsal. At 10,000 it
is the same server with the statuses that the page's tests have: clusters of that size need more than most machines have
left.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from drkit.config import Objectives
from drkit.model.clock import now
from tests.support.pages.page import board_of, decision, earlier, large, planned, runs, served, sources

WAIT_MS = 240_000
"""Of each condition that is waited for: a machine that is busy is no failure."""
DRAWN_SECONDS = 45.0
"""How long the page is open before the pictures are taken, so that charts have something to show."""
QUALITY = 60
DESK, PHONE = {"width": 1280, "height": 780}, {"width": 390, "height": 844}
TOPICS = ("flights", "flights.archive")
"""Of 6 and of 4 partitions."""
PARTITIONS, GROUPS = 10_000, 5_000


class Shot(NamedTuple):
    """A picture: its name, the view and how it is looked at. `top`: what is scrolled to, by its selector."""

    name: str
    view: str
    phone: bool = False
    dark: bool = False
    top: str | None = None


SHOTS_10 = (
    Shot("page-10-light", "overview"),
    Shot("page-10-dark", "plan", dark=True),
    Shot("page-10-phone", "overview", phone=True, dark=True),
)
SHOTS_10_000 = (
    Shot("page-10000-light", "partitions"),
    Shot("page-10000-dark", "topics", dark=True),
    Shot("page-10000-phone", "groups", phone=True, top="nav"),
)


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        with synthetic() as url:
            take(chromium, url, SHOTS_10_000, folder)
        with small() as url:
            take(chromium, url, SHOTS_10, folder)
    made = sorted(folder.glob("page-*.webp"))
    sys.stdout.writelines(f"{path}  {path.stat().st_size / 1000:.0f} kB\n" for path in made)
    return 0


@contextmanager
def browser() -> Iterator[Browser]:
    """A running Chromium, the one on PATH."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("no Chromium is on PATH: apt-get install chromium")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=options, timeout=WAIT_MS)
        try:
            yield running
        finally:
            running.close()


def take(chromium: Browser, url: str, shots: Sequence[Shot], folder: Path) -> None:
    """Take the pictures; the pages are opened together, and wait together for something to be drawn."""
    with ExitStack() as open_pages:
        pages = [(shot, opened(chromium, url, shot, open_pages)) for shot in shots]
        time.sleep(DRAWN_SECONDS)
        for shot, page in pages:
            page.wait_for_selector("#main-content tbody tr, .charts .uplot canvas")
            if shot.top is not None:
                page.locator(shot.top).evaluate("element => element.scrollIntoView()")
            # by the browser's own command: Playwright's has no WebP, which takes a quarter of PNG's space
            taken = page.context.new_cdp_session(page).send(
                "Page.captureScreenshot", {"format": "webp", "quality": QUALITY}
            )
            (folder / f"{shot.name}.webp").write_bytes(base64.b64decode(taken["data"]))


def opened(chromium: Browser, url: str, shot: Shot, until: ExitStack) -> Page:
    """The view in a window of its own, after its first answer."""
    context = chromium.new_context(
        viewport=PHONE if shot.phone else DESK,
        color_scheme="dark" if shot.dark else "light",
        has_touch=shot.phone,
        reduced_motion="reduce",  # scrolled at once
    )
    until.callback(context.close)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(f"{url}/#{shot.view}")
    page.wait_for_selector("#decisions .decision:not(.unknown)")
    return page


@contextmanager
def synthetic() -> Iterator[str]:
    """The page of 10,000 partitions and 5,000 groups: its address."""
    status = large(PARTITIONS, GROUPS)
    plan = decision(positions=[planned(f"consumer-{n // 4:04d}", n % 4, lost=0) for n in range(4 * GROUPS)])
    before = earlier(runs=runs(60))
    given = sources(
        lambda: [replace(status, observed_at=now())], lambda: [replace(plan, made_at=now())], lambda: before
    )
    with served(board_of(given, Objectives(rto_seconds=60))) as running:
        yield running.url


@contextmanager
def small() -> Iterator[str]:
    """`drkit serve` over a lab with 10 partitions: its address."""
    work = Path(tempfile.gettempdir()) / "drkit-page"  # the page names it: a name that each picture has
    work.mkdir()
    try:
        lab = work / "lab"
        state = {**os.environ, "XDG_STATE_HOME": f"{work}/state"}
        config = ["--config", str(lab / "drkit.toml")]

        def drkit(*words: str, codes: tuple[int, ...] = (0,)) -> None:
            ended = subprocess.run(
                [sys.executable, "-m", "drkit", *words], env=state, capture_output=True, text=True, check=False
            )
            if ended.returncode not in codes:
                raise SystemExit(f"drkit {' '.join(words)} ended with {ended.returncode}: {ended.stderr}")

        with ExitStack() as undo:
            undo.callback(drkit, "lab", "down", "--dir", str(lab), codes=(0, 3))
            drkit("lab", "up", "--store", "sqlite", "--dir", str(lab))
            topics = [word for topic in TOPICS for word in ("--topic", topic)]
            drkit("lab", "load", "flights", *topics, "--limit", "3000", "--dir", str(lab))
            load = ["lab", "load", "flights", *topics, "--rate", "200", "--no-groups", "--dir", str(lab)]
            drkit("mirror", "--until-caught-up", *config)
            for words in (["mirror", *config], load):
                undo.enter_context(running([*words], state))
            drkit("failover", "--to", "dr", "--rehearse", "--yes", *config, codes=(0, 3))
            page = undo.enter_context(
                running(
                    ["serve", "--listen", "127.0.0.1:0", "--output", "json", *config], state, stdout=subprocess.PIPE
                )
            )
            assert page.stdout is not None  # noqa: S101 - a pipe, as asked for
            yield json.loads("".join(page.stdout.readline() for _ in range(3)))["url"]
    finally:
        shutil.rmtree(work)


@contextmanager
def running(words: Sequence[str], state: dict[str, str], stdout: int = subprocess.DEVNULL) -> Iterator[Any]:
    """A command, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "drkit", *words], env=state, stdout=stdout, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
