"""The two-person rule on real clusters: a plan moves groups by two signatures, or in an emergency that is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config import load_config
from drkit.evidence.signing import make_key
from drkit.failover.failback.planner import make_failback_plan
from drkit.failover.run.journal.run_record import load_run
from drkit.failover.run.service import run_failback
from drkit.model.errors import Refused
from tests.support.estates import OwnLink, mirror, texts
from tests.support.failback_ports import reading_ports

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
    keys = "".join(f'{name} = "{make_key(tmp_path / name)}"\n' for name in ("ana", "ben"))
    own.config_path.write_text(f"{own.config_path.read_text()}\n[approvals.operators]\n{keys}")
    own.config = load_config(own.config_path)
    return own, topic, group


def approve(own: OwnLink, folder: Path, name: str, plan: str, *flags: str) -> list[str]:
    out = folder / f"{name}.approval"
    out.unlink(missing_ok=True)
    run(own, "evidence", "approve", plan, "--key", str(folder / name), "--out", str(out), *flags)
    return ["--approval", str(out)]


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
    assert "goes with --accept-unfenced, which was not approved" in refused["what"]
    ben = approve(own, tmp_path, "ben", str(plan), "--accept-unfenced")
    more = run(own, *go, *ana, *ben, "--accept-loss", "7", code=3)["error"]
    assert "goes with --accept-loss 7" in more["what"]
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
