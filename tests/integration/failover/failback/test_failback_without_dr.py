"""A failback that is finished without its live cluster leaves records there, and they find their way home."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from drkit.failover.context.state_machine import State
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import resume_run, run_failback, run_failover
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import FOREIGN_WRITER
from tests.support.clusters.secured import verb
from tests.support.links.estates import TIMEOUT, OwnLink, mirror, texts
from tests.support.recovery.failback_ports import reading_ports
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def test_what_dr_took_behind_a_failback_without_it_comes_home_by_the_commands_that_the_problem_names(
    own: OwnLink, tmp_path: Path
) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    mirror(own)
    drained = finished_without_dr(own, topic, tmp_path)
    assert "drkit salvage --link 'dr->primary' --out DIR" in drained
    own.produce("primary", topic, texts("after", 2))
    report = MirrorRuntime(own.config, own.link, own.store).run(until_caught_up=True)
    assert report.halted
    problem = next(each for each in own.store.problems(own.link.id) if each.kind == FOREIGN_WRITER)
    out = str(tmp_path / "left")
    salvage, resume = (
        shlex.split(each.replace("DIR", out)) for each in problem.remedy.split("`")[1::2] if each.startswith("drkit")
    )
    kept = verb(own, *salvage[1:], schema="salvage")
    assert kept["records"]["unseen"] == kept["total"] == 8
    # of each partition, clients of the primary have written two of the four keys since
    assert (kept["standings"]["new"], kept["standings"]["conflicting"]) == (4, 4)
    assert f"--replay-to {topic}" in problem.remedy
    words = (*salvage[1:], "--replay-to", topic, "--approve", "new", "--approve", "conflicting")
    assert verb(own, *words, schema="salvage")["replayed"]["written"] == 8
    assert verb(own, *words, schema="salvage")["replayed"]["written"] == 0

    assert f"delete {topic} on dr" in problem.remedy
    admin = AdminClient(own.client("dr"))
    admin.delete_topics([topic])[topic].result(TIMEOUT)
    wait_until(lambda: topic not in own.topic_names("dr"), what="the topic's deletion")
    verb(own, *resume[1:], schema="link")
    mirror(own)
    everything = [texts(name, count) for name, count in (("before", 10), ("on-dr", 3), ("left", 4), ("after", 2))]
    for alias in ("primary", "dr"):
        for partition, values in own.values(alias, topic).items():
            assert Counter(values) == Counter(value for part in everything for value in part[partition])


def test_what_another_client_wrote_to_dr_is_kept_and_takes_no_newer_value_s_place(own: OwnLink, tmp_path: Path) -> None:
    """Nothing was ever brought back, so all that the primary holds of these keys is its own clients'."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    mirror(own)
    own.produce("dr", topic, texts("stray", 2))
    own.produce("primary", topic, texts("newer", 5))
    assert MirrorRuntime(own.config, own.link, own.store).run(until_caught_up=True).halted
    words = ("salvage", "--link", "dr -> primary", "--topic", topic, "--out", str(tmp_path / "left"))
    kept = verb(own, *words, schema="salvage")
    assert (kept["total"], kept["standings"]["conflicting"]) == (4, 4)
    assert verb(own, *words, "--replay-to", topic, schema="salvage")["replayed"]["written"] == 0


def finished_without_dr(own: OwnLink, topic: str, tmp_path: Path) -> str:
    """Failed over, and back without dr, which has taken four records a partition since; what the drain said."""
    paused = waiting_before_its_fence(own, topic, tmp_path)
    own.produce("dr", topic, texts("left", 4))
    gone = own.config.clusters["dr"].model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    config = own.config.model_copy(update={"clusters": {**own.config.clusters, "dr": gone}})
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate(config) as estate:
        done = resume_run(estate, paused, ports, unplanned=True, accept_loss="unknown")
    assert (done.error, done.machine.state) == (None, State.CLOSED)
    return next(stage.reason for stage in done.stages if stage.name == "drain")


def waiting_before_its_fence(own: OwnLink, topic: str, tmp_path: Path) -> str:
    """A failback's run, after three records a partition were written on dr."""

    def wait() -> None:
        raise PartlyDone("waiting before the fence")

    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
        own.produce("dr", topic, texts("on-dr", 3))
        plan = make_failback_plan(estate, "primary")
        paused = run_failback(
            estate,
            plan,
            ports,
            cluster_id=plan.target.cluster_id or "",
            accept_unfenced=True,
            before_fence=wait,
        )
    assert paused.machine.state is State.AUDITED
    return paused.run


def test_a_failback_is_not_resumed_over_another_cluster_than_the_one_that_served(own: OwnLink, tmp_path: Path) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    mirror(own)
    paused = waiting_before_its_fence(own, topic, tmp_path)
    other = own.config.clusters["primary"]
    config = own.config.model_copy(update={"clusters": {**own.config.clusters, "dr": other}})
    entries = own.store.entries(paused)
    with own.estate(config) as estate, pytest.raises(Refused, match="dr is another cluster now") as refused:
        resume_run(estate, paused, reading_ports(own, tmp_path / "salvage"), accept_unfenced=True)
    assert f"drkit abandon {paused}" in refused.value.remedy
    assert own.store.entries(paused) == entries
    with own.estate() as estate:
        done = resume_run(estate, paused, reading_ports(own, tmp_path / "salvage"), accept_unfenced=True)
    assert (done.error, done.machine.state) == (None, State.CLOSED)
