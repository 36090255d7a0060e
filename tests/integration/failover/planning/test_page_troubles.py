"""What a person sees on the page, in a real Chromium, where something is wrong that no cluster tells by itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drkit.cli.wiring.page_sources import page_sources
from drkit.lab import Lab
from drkit.observe.history import StatusHistory
from drkit.observe.page.board import Board
from drkit.observe.page.decision import Answer
from drkit.store import open_store
from tests.support.clusters.secured import killed_at, verb, with_writer
from tests.support.commands.running import Commands
from tests.support.killing.frozen_worker import freeze_between_writes
from tests.support.links.estates import OwnLink, mirror, own_link, texts
from tests.support.pages.chromium import chromium, view_of
from tests.support.pages.page import served
from tests.support.pages.page_decision import same, words_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@contextmanager
def page_of(own: OwnLink) -> Iterator[Any]:
    """The page as `drkit serve` shows it, in a browser."""
    sources = page_sources(own.config, own.store, [own.link], None)
    board = Board(sources, StatusHistory(open_store("sqlite:///:memory:"), [own.link.id]), own.config.objectives)
    with chromium() as browser, served(board) as running, view_of(browser, f"{running.url}/") as view:
        view.wait_for_selector("#decisions .decision")
        yield view


def agrees_with_the_command(own: OwnLink) -> Answer:
    """The page's decision, which is what the command beside it says."""
    (found,) = page_sources(own.config, own.store, [own.link], None).decisions()
    ended = Commands(own.config_path).drkit(*words_of(found), "--output", "json")
    same(found, json.loads(ended.stdout), ended.returncode)
    return found.answer


def test_a_mirror_whose_worker_is_frozen_is_no_yes(own: OwnLink) -> None:
    """Its process is there, and holds its connections; once its note has run out nobody waits for it."""
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 20))
    own.commit("primary", "g", topic, {0: 20, 1: 12})
    command = [sys.executable, "-m", "drkit", "mirror", "--config", str(own.config_path)]
    log = own.config_path.with_name("mirror.log")
    with (
        log.open("w") as said,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True) as child,
    ):
        try:

            def mirrored(count: int) -> bool:
                marks = own.store.watermarks(own.link.id)
                return sum(each.source_through for each in marks.values()) >= count

            wait_until(lambda: mirrored(40), 60, "the mirror")
            with page_of(own) as view:
                view.locator("article.link .badge", has_text="mirroring").wait_for()
                assert view.locator(".decision.no").count() == 0
                freeze_between_writes(child, own.config_path.with_name("drkit.db"))
                own.produce("primary", topic, texts("late", 5))
                view.wait_for_selector(".decision.no")
                first = view.locator(".decision .obstructions").inner_text()
                assert "10 records of primary would be lost although it answers" in first
                assert "no mirror runs" in first
                view.locator("article.link .badge", has_text="stopped").wait_for()
                assert view.locator("article.link .badge", has_text="mirroring").count() == 0
                assert "10 records" in view.locator("article.link .pairs").inner_text()
                assert agrees_with_the_command(own) is Answer.NO
                child.send_signal(signal.SIGCONT)
                wait_until(lambda: mirrored(50), 60, "the mirror, awake again")
                view.locator("article.link .badge", has_text="mirroring").wait_for()
                view.wait_for_selector(".decision.unfenced")
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


@pytest.fixture
def fenceable(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link between clusters with an authorizer."""
    mine = with_writer(own_link(secure_lab, tmp_path, unique_name), secure_lab)
    yield mine
    mine.store.close()


def test_a_fence_that_was_left_behind_is_on_the_first_view_until_it_is_lifted(fenceable: OwnLink) -> None:
    own = fenceable
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 20))
    own.commit("primary", "g", topic, {0: 20, 1: 12})
    mirror(own)
    killed_at(own, "planned", ("fence", "outcome", "after"))
    run = own.store.runs()[0].run
    with page_of(own) as view:
        problem = view.locator(
            "article.link .obstructions li", has_text=f"primary is closed to its clients by run {run}"
        )
        problem.wait_for()
        said = problem.inner_text()
        assert "they are to use it" in said
        assert f"drkit resume {run}" in said
        agrees_with_the_command(own)
        verb(own, "resume", run, "--cancel", "--yes", schema="failover")
        problem.wait_for(state="detached")
