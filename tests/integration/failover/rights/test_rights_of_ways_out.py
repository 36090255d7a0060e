"""Commands of rarer days, each with exactly the rights that `drkit acls` prints for it: reprotect, resume, abandon,
store recover, link trim, salvage with a replay."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import StageRecord
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.lab import Lab
from drkit.lab.toolchain import Toolchain
from drkit.state_topic.records import state_topic
from drkit.store import open_store
from tests.support.clusters.secured import verb
from tests.support.collection.sampling import some_of
from tests.support.commands.rights import Grants, as_exact, printed, run
from tests.support.links.estates import OwnLink, mirror, mirroring, own_link, texts
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900), some_of("rights of ways out", 1)]


@pytest.fixture
def exact(own: OwnLink, secure_lab: Lab) -> Iterator[OwnLink]:
    """The same link as the user `exact`, who may do nothing yet."""
    mine = as_exact(own, secure_lab)
    yield mine
    mine.store.close()


def only(grants: Grants, exact: OwnLink, *words: str) -> None:
    """Give the rights of one command, and no other."""
    grants.clear()
    grants.give(printed(exact, *words))


def mirrored(own: OwnLink) -> tuple[str, str]:
    """A topic and a group, mirrored by a super user."""
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("before", 50))
    group = own.commit("primary", "billing", topic, {0: 50, 1: 20})
    assert mirror(own) == 100
    return topic, group


def delete(own: OwnLink, alias: str, topic: str) -> None:
    admin = AdminClient(own.client(alias))
    admin.delete_topics([topic])[topic].result(30)


def stopping_at(wanted: str) -> Any:
    def watch(stage: str, record: StageRecord | None, _text: str) -> None:
        if stage == wanted and record is None:
            raise KeyboardInterrupt

    return watch


def test_a_run_is_given_up_and_another_resumed_with_exactly_the_rights(
    own: OwnLink, exact: OwnLink, grants: Grants
) -> None:
    topic, group = mirrored(own)

    def interrupted() -> str:
        only(grants, exact)
        with exact.estate() as estate:
            stopped = run_failover(
                estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=False, watch=stopping_at("drain")
            )
        assert (stopped.interrupted, stopped.machine.state) == (True, State.FENCED)
        return stopped.run

    first = interrupted()
    only(grants, exact, "--command", "abandon")
    done = run("abandon", exact, first)
    assert (done["serves"], done["open"]) == ("primary", True)
    second = interrupted()
    only(grants, exact, "--command", "resume")
    back = run("resume", exact, second, "--cancel", "--yes", schema="failover")
    assert back["state"] == "cancelled"
    third = interrupted()
    only(grants, exact, "--command", "resume")
    done = run("resume", exact, third, "--yes", schema="failover")
    assert (done["state"], done["evidence"]["fenced"]) == ("closed", True)
    assert own.committed("dr", group) == {(topic, 0): 50, (topic, 1): 20}
    only(grants, exact, "--command", "link")
    assert run("link", exact, "trim", str(exact.link.id))["trimmed"] == []


@pytest.mark.spark
def test_a_cluster_is_reprotected_with_exactly_the_rights(
    own: OwnLink, exact: OwnLink, grants: Grants, secure_lab: Lab, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Salvage, seed and audit are Spark's."""
    del toolchain  # fetched before a command runs
    topic, _ = mirrored(own)
    own.produce("primary", topic, texts("never-mirrored", 3))
    only(grants, exact)
    with exact.estate() as estate:
        done = run_failover(estate, make_plan(estate, PlanRequest("dr", accept_loss="unknown")), accept_unfenced=False)
        assert done.error is None
    own.produce("dr", topic, texts("on-dr", 5))
    only(grants, exact, "--command", "reprotect")
    words = ("--yes", "--cluster-id", secure_lab.cluster_id("primary"), "--engine", "spark")
    kept = verb(exact, "reprotect", *words, "--salvage-dir", str(tmp_path / "kept"), schema="failover")
    assert (kept["state"], kept["salvaged"]["records"], kept["audit"]["verdict"]) == ("closed", 6, "clean")
    assert {stage["outcome"] for stage in kept["stages"]} == {"ok"}
    assert own.values("primary", topic) == own.values("dr", topic)


@pytest.mark.parametrize("words", [(), ("--from-logs",)], ids=["from the copy", "from the logs"])
def test_a_lost_store_is_recovered_with_exactly_the_rights(
    own: OwnLink, exact: OwnLink, grants: Grants, tmp_path: Path, words: tuple[str, ...]
) -> None:
    mirrored(own)
    for each in (own, exact):
        each.store.close()
    if words:  # which are for where there is no copy
        delete(own, "dr", state_topic(own.link))
    (tmp_path / "burnt").mkdir()
    for path in sorted(tmp_path.glob("drkit.db*")):
        shutil.move(path, tmp_path / "burnt")
    only(grants, exact, "--command", "store recover")
    try:
        (found,) = run("store", exact, "recover", "--from", "dr", *words, schema="store-recover")["links"]
        assert (found["topics"], found["partitions"], found["left_out"]) == (1, 2, [])
    finally:
        for each in (own, exact):
            each.store = open_store(each.config.store.plain_url)


def test_the_canary_sings_with_exactly_the_rights_of_a_mirror(
    secure_lab: Lab, grants: Grants, tmp_path: Path, unique_name: str
) -> None:
    own = own_link(secure_lab, tmp_path, unique_name, extra="canary = true")
    exact = as_exact(own, secure_lab)
    try:
        topic = own.create("primary", "orders")
        own.produce("primary", topic, texts("x", 3))
        only(grants, exact, "--command", "mirror", "--command", "status")

        def measured() -> bool:
            (link,) = run("status", exact)["links"]
            assert not link["problems"], link["problems"]
            return any(each["latency"] and each["latency"]["samples"] for each in link["statistics"])

        with mirroring(exact):
            wait_until(measured, 120, "a canary that came through")
    finally:
        for alias in ("primary", "dr"):
            delete(own, alias, str(own.link.canary_topic))
        exact.store.close()
        own.store.close()
