"""A failback that is finished without its live cluster leaves records there, and they find their way home."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from drkit.config import Config
from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import INTENT
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.recovery.component_conditions import advise, unfinished_runs
from drkit.failover.run.service import resume_run, run_failback, run_failover
from drkit.failover.stages import failover_stages
from drkit.failover.stages.failover_stages import commit_groups
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import FOREIGN_WRITER, Direction
from tests.support.clusters.secured import verb
from tests.support.killing.killed_process import killed
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
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate(without_dr(own)) as estate:
        done = resume_run(estate, paused, ports, unplanned=True, accept_loss="unknown")
    assert (done.error, done.machine.state) == (None, State.CLOSED)
    return next(stage.reason for stage in done.stages if stage.name == "drain")


def without_dr(own: OwnLink) -> Config:
    gone = own.config.clusters["dr"].model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    return own.config.model_copy(update={"clusters": {**own.config.clusters, "dr": gone}})


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


def with_another_cluster_as_dr(own: OwnLink) -> Config:
    """Another cluster answers at dr's address, with topics and groups of the same names: the primary."""
    clusters = {**own.config.clusters, "dr": own.config.clusters["primary"]}
    return own.config.model_copy(update={"clusters": clusters})


def test_a_failback_is_not_resumed_over_another_cluster_than_the_one_that_served(own: OwnLink, tmp_path: Path) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    mirror(own)
    paused = waiting_before_its_fence(own, topic, tmp_path)
    entries = own.store.entries(paused)
    with (
        own.estate(with_another_cluster_as_dr(own)) as estate,
        pytest.raises(Refused, match="dr is another cluster now") as refused,
    ):
        resume_run(estate, paused, reading_ports(own, tmp_path / "salvage"), accept_unfenced=True)
    assert f"drkit resume {paused} --unplanned moves groups to what was brought back" in refused.value.remedy
    assert "nothing further was changed" in refused.value.meaning
    assert own.store.entries(paused) == entries
    with own.estate() as estate:
        done = resume_run(estate, paused, reading_ports(own, tmp_path / "salvage"), accept_unfenced=True)
    assert (done.error, done.machine.state) == (None, State.CLOSED)


def test_before_its_audit_a_failback_can_t_do_without_the_cluster_that_served(own: OwnLink, tmp_path: Path) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    mirror(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    own.produce("dr", topic, texts("on-dr", 3))
    killed(own, "failback", tmp_path / "salvage", ("audit", INTENT, "after"))
    run = own.store.runs()[0].run
    with own.estate(with_another_cluster_as_dr(own)) as estate:
        with pytest.raises(Refused, match="dr is another cluster now") as refused:
            resume_run(estate, run, reading_ports(own, tmp_path / "salvage"), unplanned=True)
        assert f"drkit abandon {run}" in refused.value.remedy
        abandon_run(estate, run, print)
        obstacle = next(
            each for each in make_failback_plan(estate, "primary").obstacles if "another cluster" in each.what
        )
        assert "drkit doctor" in obstacle.remedy
        assert "before the failover" not in obstacle.remedy, "the failback has deleted these records"
        way = advise(estate, own.link, None).way
    assert "drkit fence --lift --cluster primary --yes --link 'primary->dr'" in way.costs


def within_its_commit(own: OwnLink, paused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The failback is finished without dr, and ends as a killed one does once a first group is committed; that one."""
    first: list[str] = []

    def killed_after_one(coordinator: object, wanted: dict[str, object], *more: object) -> None:
        first.append(min(wanted))
        commit_groups(coordinator, {first[0]: wanted[first[0]]}, *more)  # type: ignore[arg-type]
        raise SystemExit

    monkeypatch.setattr(failover_stages, "commit_groups", killed_after_one)
    with own.estate(without_dr(own)) as estate, pytest.raises(SystemExit):
        resume_run(estate, paused, reading_ports(own, tmp_path / "salvage"), unplanned=True, accept_loss="unknown")
    monkeypatch.setattr(failover_stages, "commit_groups", commit_groups)
    return first[0]


@pytest.mark.parametrize("within_commit", [False, True], ids=["audited", "within its commit"])
def test_an_audited_failback_is_finished_without_dr_where_another_cluster_answers_in_its_place(
    own: OwnLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within_commit: bool
) -> None:
    """dr is gone for good, and was set up anew at its address; nothing of the new cluster is taken for dr's."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    groups = [own.commit("primary", name, topic, {0: 4, 1: 10}) for name in ("g", "h")]
    mirror(own)
    paused = waiting_before_its_fence(own, topic, tmp_path)
    own.commit("dr", "g", topic, {0: 6})
    brought_back = own.values("primary", topic)
    if within_commit:
        assert within_its_commit(own, paused, tmp_path, monkeypatch) == groups[0]
        assert own.committed("primary", groups[0])
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate(with_another_cluster_as_dr(own)) as estate:
        with pytest.raises(Refused, match="dr is another cluster now") as refused:
            resume_run(estate, paused, ports)
        assert f"drkit resume {paused} --unplanned" in refused.value.remedy
        left = next(each for each in unfinished_runs(estate, own.link) if each.run == paused)
        assert advise(estate, own.link, left).way.commands == (f"drkit resume {paused} --unplanned",)
        done = resume_run(estate, paused, ports, unplanned=True, accept_loss="unknown")
        again = resume_run(estate, paused, ports)
    assert (done.error, done.machine.state) == (None, State.CLOSED), done.error
    assert again.machine.state is State.CLOSED
    loss = done.machine.facts.loss
    assert loss is not None
    assert (loss.records is None or loss.lower_bound, done.machine.facts.fenced) == (True, False)
    assert own.values("primary", topic) == brought_back
    for group in groups:
        assert own.committed("primary", group) == {(topic, 0): 4, (topic, 1): 10}
    control = own.store.link_control(own.link.id)
    assert control is not None
    assert control.direction is Direction.ACTIVE


def test_an_audited_failback_is_finished_without_a_dr_that_was_emptied(own: OwnLink, tmp_path: Path) -> None:
    """It has its id, as who sets a cluster up anew may give it the old one, and none of its topics."""
    topic, other = (own.create("primary", name) for name in ("t", "u"))
    for each in (topic, other):
        own.produce("primary", each, texts("before", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)
    paused = waiting_before_its_fence(own, topic, tmp_path)
    ports, admin = reading_ports(own, tmp_path / "salvage"), AdminClient(own.client("dr"))
    admin.delete_topics([topic])[topic].result(TIMEOUT)
    wait_until(lambda: topic not in own.topic_names("dr"), what="the topic's deletion")
    with own.estate() as estate, pytest.raises(Refused, match="dr answers"):
        resume_run(estate, paused, ports, unplanned=True, accept_loss="unknown")
    admin.delete_topics([other])[other].result(TIMEOUT)
    wait_until(lambda: other not in own.topic_names("dr"), what="the topic's deletion")
    with own.estate() as estate:
        done = resume_run(estate, paused, ports, unplanned=True, accept_loss="unknown")
    assert (done.error, done.machine.state) == (None, State.CLOSED), done.error
    assert own.committed("primary", group) == {(topic, 0): 4, (topic, 1): 10}


def test_what_was_switched_needs_no_dr_and_takes_nothing_of_another_cluster_for_it(
    own: OwnLink, tmp_path: Path
) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    own.produce("dr", topic, texts("on-dr", 3))
    killed(own, "failback", tmp_path / "salvage", ("switch", INTENT, "after"))
    run = own.store.runs()[0].run
    own.produce("primary", topic, texts("no record of dr", 5))
    with own.estate(with_another_cluster_as_dr(own)) as estate:
        done = resume_run(estate, run, reading_ports(own, tmp_path / "salvage"))
    assert (done.error, done.machine.state) == (None, State.CLOSED), done.error
    assert done.machine.facts.late == {}
    assert own.committed("primary", group) == {(topic, 0): 4, (topic, 1): 10}
