"""The fence of clusters that allow everything no rule is about: the first rule must not shut the mirror out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Mode
from drkit.failover.fencing.cluster_fence import ClusterFence
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.fence_command import CommandFenceContext
from drkit.failover.run.service import run_failback, run_failover
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.write_block import WriteProbe
from drkit.lab import Lab
from drkit.model.topics.acls import Acl
from tests.support.clusters.guard import Guard
from tests.support.links.estates import OwnLink, mirror, mirroring, own_link, texts
from tests.support.recovery.failback_ports import reading_ports

pytestmark = pytest.mark.lab

OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def open_lab(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("open")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite", broker_config=OPEN)
    yield lab
    lab.down()


def rules(own: OwnLink, alias: str) -> frozenset[Acl]:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        return admin.acls()


def writable(own: OwnLink, alias: str, topic: str) -> bool:
    with WriteProbe(alias, own.config.clusters[alias], timeout_seconds=10) as probe:
        return all(probe.may_write([topic]).values())


def test_a_planned_move_and_back_where_no_rule_means_everybody(open_lab: Lab, tmp_path: Path, unique_name: str) -> None:
    own = own_link(open_lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t")
        own.produce("primary", topic, texts("x", 20))
        group = own.commit("primary", "g", topic, {0: 3, 1: 20})
        mirror(own)
        with mirroring(own), own.estate() as estate:
            moved = run_failover(estate, make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED)), accept_unfenced=False)
        assert moved.error is None
        assert moved.machine.facts.fenced is True
        assert "2 log ends did not move" in (moved.machine.facts.fence_reason or "")
        assert not own.store.problems(own.link.id), "the mirror was shut out"
        assert (writable(own, "primary", topic), writable(own, "dr", topic)) == (False, True)
        assert len(own.values("primary", topic)) == 2, "it can be read: only writing is denied"
        put = rules(own, "primary")
        assert {(rule.resource, rule.permission) for rule in put} == {
            (kind, what) for kind in ("topic", "group") for what in ("allow", "deny")
        }
        assert not {rule for rule in put if "probe" in rule.name}
        with own.estate() as estate, RunLease(own.store, own.link.id, "again") as lease:
            again = ClusterFence(CommandFenceContext(estate, own.link, "again", lease, print), "primary").close()
        assert again.proven, again.reason
        assert rules(own, "primary") == put, "closing it again changes nothing"
        own.produce("dr", topic, texts("on-dr", 5))
        own.commit("dr", "g", topic, {0: 22, 1: 25})
        with own.estate() as estate:
            plan = make_failback_plan(estate, "primary")
            back = run_failback(
                estate, plan, reading_ports(own, tmp_path / "salvage"), cluster_id=plan.target.cluster_id or ""
            )
        assert back.error is None
        assert rules(own, "primary") == frozenset()
        assert own.committed("primary", group) == {(topic, 0): 22, (topic, 1): 25}
        assert any("can't be kept closed; a rule lets everybody in" in stage.reason for stage in back.stages)
        own.produce("primary", topic, texts("after", 5))
        assert mirror(own) == 10
        assert own.values("primary", topic) == own.values("dr", topic)
    finally:
        own.store.close()
