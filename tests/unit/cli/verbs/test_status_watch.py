"""`drkit status --watch` at a terminal and for programs, with a group whose name would clear the screen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from drkit.model.clock import now
from drkit.model.offsets import GroupPosition
from drkit.model.topology import LinkId
from drkit.store import open_whole_store
from tests.support.commands.bad_input import CONFIG, ROOT
from tests.support.commands.terminal import at_terminal
from tests.support.links.filled_store import fill_store

HOSTILE = "billing\x1b[2J\u202egnillib"
WORDS = ("status", "--watch", "--interval", "0.2")


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Its beginning; no cluster answers, the store has the group."""
    (tmp_path / "drkit.toml").write_text(CONFIG)
    link = LinkId("primary", "dr")
    store = open_whole_store(f"sqlite:///{tmp_path}/drkit.db")
    try:
        fill_store(store, link)
        store.put_group_positions(link, [GroupPosition(HOSTILE, "flights", 0, 900, "", now())])
    finally:
        store.close()
    return [sys.executable, "-m", "drkit", *WORDS, "--config", str(tmp_path / "drkit.toml")]


def test_it_draws_again_in_place_and_nothing_in_a_name_is_obeyed(command: list[str], tmp_path: Path) -> None:
    shown = at_terminal(
        command,
        columns=120,
        answers=[("gnillib", ""), ("gnillib", lambda: _interrupted(command))],
        environment={"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        seconds=120,
    )
    assert shown.code == 0
    assert "\x1b[?1049h" in shown.raw, "a picture of its own, which is drawn again"
    assert "billing\ufffd[2J\ufffdgnillib" in shown.raw
    assert HOSTILE not in shown.raw


def _interrupted(command: list[str]) -> str:
    running = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    (child,) = [each for each in running if each.cmdline() == command]
    child.send_signal(signal.SIGINT)
    return ""


def test_for_programs_each_picture_is_a_line(command: list[str], tmp_path: Path) -> None:
    watching = subprocess.Popen(
        [*command, "--output", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert watching.stdout is not None
        pictures = [json.loads(watching.stdout.readline()) for _ in range(2)]
        assert {each["group"] for each in pictures[1]["links"][0]["groups"]} == {"billing", HOSTILE}
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
        assert watching.returncode == 0
    finally:
        watching.kill()
        watching.communicate()
