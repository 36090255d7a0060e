"""The two-person rule on real clusters: a plan moves groups by two signatures, or in an emergency that is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config import load_config
from drkit.failover.context.state_machine import State
from drkit.failover.journal.run_record import load_run
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.run.service import resume_run, run_failback
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import Direction
from drkit.model.runs import Approval
from tests.support.commands.approving import approval, approved, operators
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.recovery.failback_ports import reading_ports

pytestmark = pytest.mark.lab

TO_DR = ("failover", "--to", "dr", "--unplanned", "--accept-unfenced")


def run(own: OwnLink, *words: str, code: int = 0) -> dict[str, Any]:
    done = CliRunner().invoke(application((words[0],)), [*words, "--output", "json", "--config", str(own.config_path)])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def ruled(own: OwnLink, tmp_path: Path) -> tuple[OwnLink, str, str]:
    """A group in the middle of a topic that is on both sides; `[approvals]` names ana and ben."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 30))
    group = own.commit("primary", "g", topic, {0: 30, 1: 12})
    mirror(own)
    own.config_path.write_text(own.config_path.read_text() + operators(tmp_path))
    own.config = load_config(own.config_path)
    return own, topic, group


def approve(own: OwnLink, folder: Path, name: str, plan: str, *flags: str) -> list[str]:
    return ["--approval", str(approved(own.config_path, folder, name, plan, *flags))]


def test_a_plan_moves_groups_only_with_two_signatures(ruled, tmp_path):
    own, topic, group = ruled
    plan = tmp_path / "plan.json"
    run(own, *TO_DR, "--dry-run", "--out", str(plan))
    go = ("failover", "--plan", str(plan), "--accept-unfenced", "--yes")
    assert "is not approved" in run(own, *go, code=3)["error"]["what"]
    assert "is not approved" in run(own, *TO_DR, "--yes", code=3)["error"]["what"], "without a plan file, too"
    ana = approve(own, tmp_path, "ana", str(plan), "--accept-unfenced")
    assert "only ana did" in run(own, *go, *ana, code=3)["error"]["what"]
    ben = approve(own, tmp_path, "ben", str(plan))
    refused = run(own, *go, *ana, *ben, code=3)["error"]
    assert "uses --accept-unfenced, which was not approved" in refused["what"]
    ben = approve(own, tmp_path, "ben", str(plan), "--accept-unfenced")
    more = run(own, *go, *ana, *ben, "--accept-loss", "7", code=3)["error"]
    assert "uses --accept-loss 7" in more["what"]
    assert (own.committed("dr", group), run(own, "runs")["runs"]) == ({}, []), "nothing of it was begun"
    moved = run(own, *go, *ana, *ben)
    assert moved["state"] == "closed"
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}
    kept = json.loads(load_run(own.store, moved["run"]).journal.entries[0].payload)
    assert kept["origin"]["approval"] == {
        "digest": moved["digest"],
        "operators": ["ana", "ben"],
        "allows": ["--accept-unfenced"],
    }
    with own.estate() as estate:
        back, ports = make_failback_plan(estate, "primary"), reading_ports(own, tmp_path / "salvage")
        with pytest.raises(Refused, match="is not approved"):
            run_failback(estate, back, ports, cluster_id=back.target.cluster_id or "", accept_unfenced=True)
        assert make_failback_plan(estate, "primary").digest == back.digest, "what two can sign"


def test_in_an_emergency_one_moves_groups_alone_and_the_journal_says_so(ruled):
    own, topic, group = ruled
    moved = run(own, *TO_DR, "--yes", "--emergency", "ben is on a plane")
    assert own.committed("dr", group) == {(topic, 0): 30, (topic, 1): 12}
    kept = json.loads(load_run(own.store, moved["run"]).journal.entries[0].payload)
    assert kept["origin"]["approval"] == {"emergency": "ben is on a plane"}


def test_a_failback_needs_two_signatures_and_its_resume_only_for_what_it_accepts_anew(ruled, tmp_path):
    own, topic, group = ruled
    run(own, *TO_DR, "--yes", "--emergency", "the primary burns")
    own.produce("dr", topic, texts("on-dr", 5))
    own.commit("dr", "g", topic, {0: 33, 1: 20})
    unread, ports = own.unread("dr", group, topic), reading_ports(own, tmp_path / "salvage")

    def wait() -> None:
        raise PartlyDone("an operator waits before the fence", remedy="drkit resume")

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        cluster_id = plan.target.cluster_id or ""
        estate.approval = approval(own.config, tmp_path, plan.digest)
        with pytest.raises(Refused, match="uses --accept-unfenced, which was not approved"):
            run_failback(estate, plan, ports, cluster_id=cluster_id, accept_unfenced=True)
        assert [each.kind for each in own.store.runs()] == ["failover"], "nothing of it was begun"
        estate.approval = approval(own.config, tmp_path, plan.digest, "--accept-unfenced")
        waits = run_failback(estate, plan, ports, cluster_id=cluster_id, accept_unfenced=True, before_fence=wait)
    assert isinstance(waits.error, PartlyDone)
    with own.estate() as estate:  # another operator, alone
        with pytest.raises(Refused, match=f"what run {waits.run} is to accept now is not approved"):
            resume_run(estate, waits.run, ports, accept_salvage_only=True)
        done = resume_run(estate, waits.run, ports)
    assert (done.error, done.machine.state) == (None, State.CLOSED)
    entries = load_run(own.store, waits.run).journal.entries
    kept = json.loads(entries[0].payload)["origin"]["approval"]
    assert (kept["digest"], kept["operators"], kept["allows"]) == (plan.digest, ["ana", "ben"], ["--accept-unfenced"])
    (taken,) = [json.loads(each.payload) for each in entries if each.event == "taken"]
    assert "approval" not in taken
    assert own.unread("primary", group, topic) == unread
    control = own.store.link_control(own.link.id)
    assert control is not None
    assert control.direction is Direction.ACTIVE


def test_a_resume_that_accepts_more_than_was_signed_is_an_emergency_that_its_journal_names(ruled, tmp_path):
    own, _topic, _group = ruled
    run(own, *TO_DR, "--yes", "--emergency", "the primary burns")
    ports = reading_ports(own, tmp_path / "salvage")

    def wait() -> None:
        raise PartlyDone("an operator waits before the fence", remedy="drkit resume")

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        estate.approval = approval(own.config, tmp_path, plan.digest, "--accept-unfenced")
        cluster_id = plan.target.cluster_id or ""
        waits = run_failback(estate, plan, ports, cluster_id=cluster_id, accept_unfenced=True, before_fence=wait)
    with own.estate() as estate:
        estate.approval = Approval(emergency="ben is on a plane")
        done = resume_run(estate, waits.run, ports, accept_salvage_only=True)
    assert (done.error, done.machine.state) == (None, State.CLOSED)
    entries = load_run(own.store, waits.run).journal.entries
    (taken,) = [json.loads(each.payload) for each in entries if each.event == "taken"]
    assert taken["approval"] == {"emergency": "ben is on a plane"}
