"""A mirror is running that keeps another store than the operator's configuration names: two that decide apart."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.failover.context.state_machine import Mode
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import Direction
from drkit.model.runs import ACCEPT_UNFENCED, patterns_checksum
from drkit.model.topology import worker_group
from tests.support.links.estates import OwnLink, mirror, mirroring, open_link, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

FAIL_OVER = ("failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes")


@pytest.fixture
def other(own: OwnLink, tmp_path: Path) -> Iterator[OwnLink]:
    """The same link in another operator's configuration, whose store is a copy of the first one."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    own.commit("primary", "g", topic, {0: 3, 1: 5})
    mirror(own)
    folder = tmp_path / "other"
    folder.mkdir()
    with (
        closing(sqlite3.connect(own.config_path.with_name("drkit.db"))) as here,
        closing(sqlite3.connect(folder / "drkit.db")) as there,
    ):
        here.backup(there)
    path = folder / "drkit.toml"
    path.write_text(own.config_path.read_text().replace(str(own.config_path.parent), str(folder)))
    elsewhere = open_link(path, own.name)
    yield elsewhere
    elsewhere.store.close()


def wait_for_worker(own: OwnLink) -> None:
    """Until a mirror of this link is a member of its group."""
    mine, group = f"/{patterns_checksum(own.link):08x}/", worker_group(own.link.id)
    with own.estate() as estate:
        wait_until(lambda: any(mine in each for each in estate.groups("dr").client_ids(group)), what="a mirror")


def run(own: OwnLink, *words: str, code: int) -> dict[str, object]:
    done = CliRunner().invoke(application((words[0],)), [*words, "--output", "json", "--config", str(own.config_path)])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}"
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_beside_a_mirror_with_another_store_nothing_is_moved_and_no_second_mirror_begins(own, other):
    with mirroring(own):
        wait_for_worker(own)
        refused = run(other, *FAIL_OVER, code=3)["error"]
        assert "is running that keeps another store: process" in refused["what"]
        assert "store.url" in refused["remedy"]
        (link,) = run(other, "doctor", code=3)["links"]
        (check,) = [check for check in link["checks"] if check["check"] == "copy of the store"]
        assert (check["outcome"], "keeps another store" in check["reason"]) == ("fail", True)
        with pytest.raises(Refused, match="keeps another store"):
            mirror(other)
        assert own.store.link_control(own.link.id) is None
        assert other.store.link_control(own.link.id) is None
        with own.estate() as estate:  # the mirror's own store is no other one
            found = make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED)).obstacles
        assert {obstacle.waived_by for obstacle in found} <= {ACCEPT_UNFENCED}
    assert run(other, *FAIL_OVER, code=0)["state"] == "closed"


def test_a_mirror_with_another_store_that_starts_after_the_plan_stops_the_run_before_its_commit(own, other):
    with other.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        with mirroring(own):
            wait_for_worker(own)
            result = run_failover(estate, plan, accept_unfenced=True)
            assert isinstance(result.error, PartlyDone)
            assert "keeps another store" in result.error.what
            assert other.committed("dr", f"{own.name}.g") == {}
    control = other.store.link_control(own.link.id)
    assert control is not None
    assert control.direction is Direction.SEALED
    assert run(other, "resume", "--yes", "--accept-unfenced", code=0)["state"] == "closed"
