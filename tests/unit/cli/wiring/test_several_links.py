"""Verbs of several links: what has to be said of each, and what of all together, before any cluster is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drkit.cli.wiring.context import LinkFailure, combined_error, failure_documents
from drkit.cli.wiring.site_outcome import cluster_ids_given
from drkit.model.clock import now
from drkit.model.errors import ConfigError, OutcomeUnknown, PartlyDone, Refused, Unreachable
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import LinkId
from drkit.store import open_store

EAST, WEST = LINKS = (LinkId("east", "dr"), LinkId("west", "dr"))
CONFIG = "\n".join(
    [
        *(
            f'[clusters.{alias}]\nbootstrap_servers = "127.0.0.1:{port}"'
            for port, alias in enumerate(("east", "west", "dr"), 1)
        ),
        *(f'[[links]]\nsource = "{link.source}"\ntarget = "dr"\ntopics = ["{link.source}[.].*"]' for link in LINKS),
    ]
)


def error_of(folder: Path, *words: str) -> dict[str, Any]:
    """What a verb is refused for, where both links were failed over and no cluster answers."""
    (folder / "drkit.toml").write_text(CONFIG)
    store = open_store(f"sqlite:///{folder}/drkit.db")
    for link in LINKS:
        sealed = LinkControl(link, Direction.SEALED, version=1, changed_at=now(), reason="failed over")
        assert store.set_link_control(sealed, expected_version=None)
    store.close()
    ended = subprocess.run(
        [sys.executable, "-m", "drkit", *words, "--output", "json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    error: dict[str, Any] = json.loads(ended.stdout)["error"]
    assert error["exit_code"] == ended.returncode, ended.stderr
    return error


def test_a_cluster_id_says_of_which_old_primary_it_is(tmp_path: Path) -> None:
    error = error_of(tmp_path, "failback", "--yes", "--cluster-id", "X")
    assert error["exit_code"] == 2
    assert error["remedy"] == "Give --cluster-id east=ID --cluster-id west=ID"


def test_a_replay_is_of_one_link(tmp_path: Path) -> None:
    error = error_of(tmp_path, "salvage", "--out", "kept", "--replay-to", "t")
    assert error["exit_code"] == 2
    assert f"drkit salvage --link 'west->dr' --out {tmp_path}/kept/west-to-dr --replay-to t" in error["remedy"]


def test_a_salvage_that_is_there_is_found_before_any_link_is_read(tmp_path: Path) -> None:
    there = tmp_path / "kept" / "east-to-dr"
    there.mkdir(parents=True)
    (there / "manifest.json").touch()
    error = error_of(tmp_path, "salvage", "--out", "kept")
    assert error["exit_code"] == 3
    assert "--link 'west->dr'" in error["remedy"]
    assert "--link 'east->dr'" not in error["remedy"]


@pytest.mark.parametrize(
    ("given", "aliases", "found"),
    [
        ([], ["east", "west"], {}),
        (["X"], ["east"], {"east": "X"}),
        (["east=X"], ["east"], {"east": "X"}),
        (["west=Y", "east=X", "east=X"], ["east", "west"], {"east": "X", "west": "Y"}),
    ],
)
def test_cluster_ids_by_alias(given: list[str], aliases: list[str], found: dict[str, str]) -> None:
    assert cluster_ids_given(given, aliases) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["X"], "of which cluster"),
        (["north=X"], "nothing goes back to 'north'"),
        (["east=X", "east=Y"], "two ids for east"),
    ],
)
def test_cluster_ids_that_can_t_be_meant(given: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        cluster_ids_given(given, ["east", "west"])
    assert caught.value.remedy == "Give --cluster-id east=ID --cluster-id west=ID"


def of(link: LinkId, error: Refused | Unreachable | OutcomeUnknown) -> LinkFailure:
    return LinkFailure(link, error, f"drkit fence --link '{link}'")


def test_the_exit_code_of_several_links() -> None:
    gone, held, unknown = Unreachable("east is gone", remedy="Bring it up"), Refused("held"), OutcomeUnknown("silence")
    assert combined_error([], 2) is None
    none_done = combined_error([of(EAST, gone), of(WEST, held)], 0)
    assert isinstance(none_done, Unreachable)
    assert none_done.what == "east->dr: east is gone; west->dr: held"
    some = combined_error([of(EAST, gone)], 1)
    assert isinstance(some, PartlyDone)
    assert some.what == "1 of 2 links failed: east->dr: east is gone"
    assert some.remedy == "Bring it up; then drkit fence --link 'east->dr'"
    assert isinstance(combined_error([of(EAST, unknown)], 1), OutcomeUnknown)
    assert isinstance(combined_error([of(EAST, unknown), of(WEST, held)], 1), PartlyDone)
    assert gone.what == "east is gone", "the error itself is as it was"
    (document,) = failure_documents([of(WEST, held)])
    assert (document["link"], document["what"], document["exit_code"]) == ("west->dr", "held", 3)
