"""A loss that only shows behind the fence is compared with its budget, too: the run rolls itself back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import StageRecord
from drkit.failover.plan.loss_budget import OverBudget
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run import service
from drkit.failover.run.runner import RunResult
from drkit.failover.run.service import resume_run, run_failback, run_failover
from drkit.lab import Lab
from drkit.model.errors import PartlyDone
from drkit.model.link_state import Direction
from drkit.model.runs import ACCEPT_LOSS
from tests.support.clusters.secured import verb
from tests.support.commands.running import Commands
from tests.support.links.estates import OwnLink, mirror, own_link, texts
from tests.support.recovery.failback_ports import reading_ports

pytestmark = pytest.mark.lab


@pytest.fixture
def own(lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    mine = own_link(lab, tmp_path, unique_name, max_loss_records=1)
    yield mine
    mine.store.close()


def test_what_is_lost_since_the_plan_was_made_is_found_before_a_group_is_committed(own: OwnLink) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert not any(obstacle.waived_by == ACCEPT_LOSS for obstacle in plan.obstacles)
        own.produce("primary", topic, texts("late", 2))
        result = run_failover(estate, plan, accept_unfenced=True)
        assert isinstance(result.error, OverBudget)
        assert int(result.error.exit_code) == 3
        assert "4 records would be lost, but max_loss_records is 1" in result.error.what
        assert result.machine.state is State.CANCELLED
        control = own.store.link_control(own.link.id)
        assert control is not None
        assert control.direction is Direction.ACTIVE
        assert own.committed("dr", group) == {}
        assert [summary.state for summary in own.store.runs()] == ["cancelled"]

        refused = make_plan(estate, PlanRequest("dr", accept_loss=3))
        assert any(obstacle.waived_by == ACCEPT_LOSS for obstacle in refused.obstacles)
        done = run_failover(estate, make_plan(estate, PlanRequest("dr", accept_loss=4)), accept_unfenced=True)
    assert done.error is None
    assert done.evidence.rpo_records == 4
    assert own.committed("dr", group) == {(topic, 0): 4, (topic, 1): 10}


def test_a_run_that_stood_still_beside_an_unfenced_source_is_judged_by_what_is_lost_when_it_goes_on(
    lab: Lab, tmp_path: Path, unique_name: str
) -> None:
    own = own_link(lab, tmp_path, unique_name, max_loss_seconds=60)
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)

    def killed(stage: str, record: StageRecord | None, _text: str) -> None:
        if stage == "drain" and record is None:
            raise KeyboardInterrupt

    with own.estate() as estate:
        stopped = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True, watch=killed)
        assert (stopped.interrupted, stopped.machine.state) == (True, State.FENCED)
        own.produce("primary", topic, texts("late", 2))
        long_ago(own, minutes=2)
        result = resume_run(estate, stopped.run, None)
    assert isinstance(result.error, OverBudget), result.error
    assert "max_loss_seconds is 60" in result.error.what
    assert result.machine.state is State.CANCELLED
    assert own.committed("dr", group) == {}
    own.store.close()


@pytest.mark.parametrize("word", ["accept_loss", "allow_rewind"])
def test_what_a_plan_file_accepts_cannot_be_changed_in_it(own: OwnLink, tmp_path: Path, word: str) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)
    own.produce("primary", topic, texts("late", 2))
    plan = tmp_path / "plan.json"
    verb(
        own, "failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--out", str(plan), code=3, schema="failover"
    )
    body = json.loads(plan.read_text())
    assert body["plan"][word] in {None, False}
    body["plan"][word] = "unknown" if word == "accept_loss" else True
    plan.write_text(json.dumps(body))
    refused = verb(own, "failover", "--plan", str(plan), "--accept-unfenced", "--yes", code=2)
    assert "was changed after it was written" in refused["error"]["what"]
    assert own.committed("dr", group) == {}


@pytest.mark.parametrize("behind", [0, 5], ids=["its end unseen", "its end seen by the mirror"])
def test_a_failback_without_its_live_cluster_loses_no_more_than_its_budget(
    own: OwnLink, tmp_path: Path, behind: int
) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)
    paused = failed_back_to_the_fence(own, topic, tmp_path)
    own.produce("dr", topic, texts("too late", 5))
    back = own.link.reversed().id
    marks = own.store.watermarks(back).values()
    own.store.put_watermarks(back, [replace(mark, source_end=mark.source_through + behind) for mark in marks])
    with ClusterContext(without_dr(own), own.store, patience_seconds=2.0) as estate:
        ports = reading_ports(own, tmp_path / "salvage")
        with pytest.raises(OverBudget, match="max_loss_records") as refused:
            resume_run(estate, paused.run, ports, unplanned=True)
        assert f"drkit resume {paused.run} --unplanned {ACCEPT_LOSS} unknown" in refused.value.remedy
        assert own.committed("primary", group) == {(topic, 0): 4, (topic, 1): 10} or not own.committed("primary", group)
        done = resume_run(estate, paused.run, ports, unplanned=True, accept_loss="unknown")
    assert (done.error, done.machine.state) == (None, State.CLOSED)
    assert own.committed("primary", group) == {(topic, 0): 4, (topic, 1): 10}
    control = own.store.link_control(own.link.id)
    assert control is not None
    assert control.direction is Direction.ACTIVE


def test_a_live_cluster_that_was_silent_for_a_moment_leaves_nothing_behind(
    own: OwnLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It doesn't answer when the failback is to be finished without it, and answers all that the run asks later."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)
    paused = failed_back_to_the_fence(own, topic, tmp_path)
    own.produce("dr", topic, texts("while it was slow", 5))
    monkeypatch.setattr(service, "_check_live_gone", lambda *_: None)
    with own.estate() as estate:
        ports = reading_ports(own, tmp_path / "salvage")
        again = resume_run(estate, paused.run, ports, unplanned=True, accept_loss="unknown")
        assert again.error is not None
        assert "dr answers again" in again.error.what
        assert f"drkit resume {paused.run}" in again.error.remedy
        assert again.machine.state is State.AUDITED
        done = resume_run(estate, paused.run, ports, accept_unfenced=True)
    assert (done.error, done.machine.state) == (None, State.CLOSED)
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.committed("primary", group) == {(topic, 0): 4, (topic, 1): 10}


def test_a_mirror_copies_what_the_live_cluster_takes_while_a_failback_waits(own: OwnLink, tmp_path: Path) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    mirror(own)
    failed_back_to_the_fence(own, topic, tmp_path)
    own.produce("dr", topic, texts("while it waits", 5))
    assert own.values("primary", topic) != own.values("dr", topic)
    followed = Commands(own.config_path).drkit("mirror", "--link", str(own.link.id), "--until-caught-up")
    assert followed.returncode == 0, followed.stderr
    assert own.values("primary", topic) == own.values("dr", topic)


def failed_back_to_the_fence(own: OwnLink, topic: str, tmp_path: Path) -> RunResult:
    """Failed over, three records written on dr, and a failback that waits before its fence."""

    def wait() -> None:
        raise PartlyDone("waiting before the fence")

    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
        own.produce("dr", topic, texts("on dr", 3))
        plan = make_failback_plan(estate, "primary")
        paused = run_failback(
            estate,
            plan,
            reading_ports(own, tmp_path / "salvage"),
            cluster_id=plan.target.cluster_id or "",
            accept_unfenced=True,
            before_fence=wait,
        )
    assert paused.machine.state is State.AUDITED
    return paused


def long_ago(own: OwnLink, minutes: int) -> None:
    """The link stood still: what its mirror has seen of the source is so much older."""
    marks = own.store.watermarks(own.link.id).values()
    old = [replace(mark, observed_at=mark.observed_at - timedelta(minutes=minutes)) for mark in marks]
    own.store.put_watermarks(own.link.id, old)


def without_dr(own: OwnLink) -> Config:
    """The same configuration, where nothing answers at the address of dr."""
    gone = own.config.clusters["dr"].model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    return own.config.model_copy(update={"clusters": {**own.config.clusters, "dr": gone}})
