"""Verbs of one link: where several qualify and none is named, exit 2 says the commands, one after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drkit.model.clock import now
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import LinkId
from drkit.store import open_store

LINKS = (LinkId("east", "dr"), LinkId("west", "dr"))
CONFIG = "\n".join(
    [
        *(
            f'[clusters.{alias}]\nbootstrap_servers = "127.0.0.1:{port}"'
            for port, alias in enumerate(("east", "west", "dr"), 1)
        ),
        *(f'[[links]]\nsource = "{link.source}"\ntarget = "dr"\ntopics = ["{link.source}[.].*"]' for link in LINKS),
    ]
)


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        (
            ("failback",),
            ["drkit failback --to east --link 'east->dr'", "drkit failback --to west --link 'west->dr'"],
        ),
        (
            ("salvage", "--out", "kept"),
            ["drkit salvage --link 'east->dr' --out kept-east", "drkit salvage --link 'west->dr' --out kept-west"],
        ),
    ],
)
def test_the_way_is_named(tmp_path: Path, words: tuple[str, ...], commands: list[str]) -> None:
    (tmp_path / "drkit.toml").write_text(CONFIG)
    store = open_store(f"sqlite:///{tmp_path}/drkit.db")
    for link in LINKS:
        sealed = LinkControl(link, Direction.SEALED, version=1, changed_at=now(), reason="failed over")
        assert store.set_link_control(sealed, expected_version=None)
    store.close()
    ended = subprocess.run(
        [sys.executable, "-m", "drkit", *words, "--output", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 2, ended.stderr
    error = json.loads(ended.stdout)["error"]
    assert error["exit_code"] == 2
    assert error["remedy"].endswith("; ".join(commands))
