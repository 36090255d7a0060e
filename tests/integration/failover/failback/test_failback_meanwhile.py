"""What others do while a failback is under way: an operator at work on dr, a second one with a store of his own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import INTENT
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.run.runner import Watch, nobody_watches
from drkit.failover.run.service import resume_run, run_failback
from drkit.failover.stages.audit_stage import AuditFailed
from drkit.lab import Lab
from drkit.mirror.control import accept_recreated, pause, resume_link
from drkit.model.errors import DrkitError, PartlyDone
from drkit.model.link_state import Direction
from drkit.state_topic.recorded_store import StateRecording
from drkit.store import open_store
from tests.support.clusters.secured import killed_at
from tests.support.collection.sampling import sampled
from tests.support.commands.kafka_tools import consumer_groups
from tests.support.killing.killed_process import killed
from tests.support.links.estates import TIMEOUT, OwnLink, failed_over, mirror, open_link, own_link, texts
from tests.support.recovery.failback_ports import reading_ports, salvaged
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def away(own: OwnLink) -> tuple[str, str]:
    return failed_over(own, accept_unfenced=True)


def test_partitions_that_are_added_on_dr_in_the_middle_of_a_failback_come_back_too(
    own: OwnLink, away: tuple[str, str], tmp_path: Path
) -> None:
    topic, group = away

    def at_work(name: str, record: object, _said: str) -> None:
        if name == "reseed" and record is None and len(own.values("dr", topic)) == 2:
            admin = AdminClient(own.client("dr"))
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT)
            wait_until(lambda: len(own.values("dr", topic)) == 3, what="the new partition")
            own.produce("dr", topic, texts("added", 4, [2]))
            own.commit("dr", "g", topic, {2: 2})

    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        result = run_failback(
            estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True, watch=at_work
        )
        told = []
        while result.error is not None:
            told.append(str(result.error))
            assert len(told) < 4, told
            result = resume_run(estate, result.run, ports, accept_unfenced=True)
    assert result.machine.state is State.CLOSED
    assert own.records("primary", topic) == own.records("dr", topic)
    assert len(own.values("primary", topic)) == 3
    assert own.committed("primary", group) == {(topic, 0): 12, (topic, 1): 14, (topic, 2): 2}


def test_a_group_that_reads_on_on_the_old_primary_in_the_middle_of_a_failback_is_moved_by_the_command_told(
    own: OwnLink, away: tuple[str, str], tmp_path: Path
) -> None:
    topic, group = away
    ports = reading_ports(own, tmp_path / "salvage")

    def reads_on() -> None:
        own.commit("primary", "g", topic, {0: 15, 1: 3})

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        stopped = run_failback(
            estate,
            plan,
            ports,
            cluster_id=plan.target.cluster_id or "",
            accept_unfenced=True,
            before_fence=reads_on,
        )
        assert isinstance(stopped.error, PartlyDone)
        assert f"{group} would be moved back on primary" in stopped.error.what
        assert "--cancel" not in stopped.error.remedy
        assert f"drkit resume {stopped.run}" in stopped.error.remedy
        (command,) = re.findall("kafka-consumer-groups.sh .+?--delete-offsets", stopped.error.remedy)
        consumer_groups(command)
        assert own.committed("primary", group) == {(topic, 1): 3}
        result = resume_run(estate, stopped.run, ports)
    assert result.error is None
    assert own.committed("primary", group) == {(topic, 0): 12, (topic, 1): 14}


def test_a_link_that_is_paused_before_a_failback_has_told_its_clients_keeps_its_record(
    own: OwnLink, away: tuple[str, str], tmp_path: Path
) -> None:
    """It had activated the link; a mirror copied, and stopped, since."""
    topic, group = away
    salvage = tmp_path / "salvage"
    killed_at(own, "failback", ("switch", "set_link_control", "after"), str(salvage))
    own.produce("primary", topic, texts("after", 4))
    assert mirror(own) == 8
    pause(own.store, own.link)
    marks = own.store.watermarks(own.link.id)
    assert {mark.source_through for mark in marks.values()} == {19}
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, salvage))
    assert result.error is None
    assert own.store.watermarks(own.link.id) == marks
    assert own.store.link_control(own.link.id).direction is Direction.PAUSED
    said = " ".join(stage.reason for stage in result.stages)
    assert f"{own.link.id} is paused" in said
    assert own.committed("primary", group) == {(topic, 0): 12, (topic, 1): 14}
    resume_link(own.store, own.link)
    own.produce("primary", topic, texts("later", 1))
    assert mirror(own) == 2
    assert own.records("primary", topic) == own.records("dr", topic)


def test_a_topic_that_is_recreated_on_dr_and_accepted_before_the_audit_is_no_client_s_write_to_the_old_primary(
    own: OwnLink, away: tuple[str, str], tmp_path: Path
) -> None:
    """What was brought back of the former one stands below the new one's records."""
    topic, _ = away
    ports = reading_ports(own, tmp_path / "salvage")
    killed(own, "failback", tmp_path / "salvage", ("audit", INTENT, "after"))
    former = own.values("dr", topic)
    assert own.values("primary", topic) == former
    with own.estate() as estate:
        dr, primary = estate.admin("dr"), estate.admin("primary")
        assert not dr.delete_exact({topic: dr.topics([topic])[topic].topic_id}, wait=True)
        own.create("dr", "t")
        own.produce("dr", topic, texts("anew", 5))
        accept_recreated(own.store, own.link.reversed(), topic, source=dr, target=primary)
        ports.mirror.catch_up(own.link.reversed(), print)
        run = own.store.runs()[0].run
        stopped = resume_run(estate, run, ports, accept_unfenced=True)
        assert isinstance(stopped.error, AuditFailed), stopped.error
        assert f"{topic} (" in stopped.error.what
        assert "deleted or recreated on dr after primary was scrubbed" in stopped.error.what
        assert f"drkit resume {run} --accept-salvage-only" in stopped.error.remedy
        done = resume_run(estate, run, ports, accept_unfenced=True, accept_salvage_only=True)
    assert done.error is None, done.error
    assert own.values("primary", topic) == {
        number: values + own.values("dr", topic)[number] for number, values in former.items()
    }


def test_a_way_back_that_is_paused_once_all_is_back_is_sealed_all_the_same(
    own: OwnLink, away: tuple[str, str], tmp_path: Path
) -> None:
    topic, _group = away
    back = own.link.reversed()
    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        result = run_failback(
            estate,
            plan,
            ports,
            cluster_id=plan.target.cluster_id or "",
            accept_unfenced=True,
            before_fence=lambda: pause(own.store, back) and None,
        )
        assert result.error is None
    assert own.records("primary", topic) == own.records("dr", topic)


def test_a_way_back_that_is_paused_with_records_left_says_what_resumes_it_and_stays_paused(
    own: OwnLink, away: tuple[str, str], tmp_path: Path
) -> None:
    topic, _group = away
    back = own.link.reversed()
    ports = reading_ports(own, tmp_path / "salvage")

    def held() -> None:
        own.produce("dr", topic, texts("meanwhile", 3))
        pause(own.store, back)

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        stopped = run_failback(
            estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True, before_fence=held
        )
        assert f"drkit link resume '{back.id}'" in stopped.error.remedy
        assert own.store.link_control(back.id).direction is Direction.PAUSED
        resume_link(own.store, back)
        assert resume_run(estate, stopped.run, ports).error is None
    assert own.records("primary", topic) == own.records("dr", topic)


@pytest.mark.parametrize("stage", sampled("a failback in another one", ["scrub", "reseed", "commit"], 1))
def test_a_second_operator_with_a_store_of_his_own_destroys_nothing(
    own: OwnLink, away: tuple[str, str], tmp_path: Path, stage: str
) -> None:
    """Both have recovered, or copied, the store: no lease keeps them apart. The second one's failback comes to its end
    in the middle of the first one's, clients return to the primary, and the first one continues."""
    topic, group = away
    other = tmp_path / "other"
    other.mkdir()
    text = own.config_path.read_text()
    own.store.close()
    for file in own.config_path.parent.glob("drkit.db*"):
        shutil.copy(file, other)
    own.store = open_store(own.config.store.plain_url)
    (other / "drkit.toml").write_text(text.replace(f"{own.config_path.parent}/drkit.db", f"{other}/drkit.db"))
    second = open_link(other / "drkit.toml", own.name)
    told: list[str] = []

    def meanwhile(name: str, record: object, _said: str) -> None:
        if name == stage and record is None and not told:
            told.append(failed_back(second, tmp_path / "other-salvage"))
            if told == ["closed"]:
                own.produce("primary", topic, texts("since", 3))
                own.commit("primary", "g", topic, {0: 18, 1: 18})

    acknowledged = values(own, topic)
    try:
        first = failed_back(own, tmp_path / "salvage", meanwhile)
        told.append(first)
        kept = values(own, topic) | salvaged(tmp_path)
        assert acknowledged <= kept, told
        if told[0] == "closed":
            assert {f"since-{p}-{n}" for p in (0, 1) for n in range(3)} <= set(flat(own, "primary", topic)), told
            assert own.committed("primary", group) == {(topic, 0): 18, (topic, 1): 18}, told
    finally:
        second.store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own for the store."""
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted: that needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("stage", sampled("a disk full in a failback", ["scrub", "commit"], 1))
def test_a_disk_that_is_full_for_the_store_stops_a_failback_where_it_can_be_resumed(
    lab: Lab, small_disk: Path, tmp_path: Path, unique_name: str, stage: str
) -> None:
    """The real disk, by the kernel: journal, decisions, mapping and watermarks of the way back are on it."""
    own = own_link(lab, tmp_path, unique_name, f"sqlite:///{small_disk}/drkit.db")
    topic, group = failed_over(own, accept_unfenced=True)
    acknowledged = values(own, topic)
    filler = small_disk / "filler"

    def full(name: str, record: object, _said: str) -> None:
        if name == stage and record is None and not filler.exists():
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(b"\0" * 4096)

    ports = reading_ports(own, tmp_path / "salvage")
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        try:
            told = run_failback(
                estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True, watch=full
            ).error
        except DrkitError as error:
            told = error
        assert "disk is full" in str(told)
        assert filler.exists()
        filler.unlink()
        assert acknowledged <= values(own, topic) | salvaged(tmp_path)
        result = resume_run(estate, own.store.runs()[0].run, ports, accept_unfenced=True)
        assert result.error is None, result.error
    assert result.machine.state is State.CLOSED
    assert own.records("primary", topic) == own.records("dr", topic)
    assert acknowledged <= values(own, topic) | salvaged(tmp_path)
    assert own.committed("primary", group) == {(topic, 0): 12, (topic, 1): 14}
    own.store.close()


def failed_back(own: OwnLink, folder: Path, watch: Watch = nobody_watches) -> str:
    """How a failback ends."""
    with (
        closing(StateRecording(own.config, own.store)) as recording,
        replace(own, store=recording.store).estate() as estate,
    ):
        try:
            plan = make_failback_plan(estate, "primary")
            result = run_failback(
                estate,
                plan,
                reading_ports(own, folder),
                cluster_id=plan.target.cluster_id or "",
                accept_unfenced=True,
                watch=watch,
            )
        except DrkitError as error:
            return str(error)
    return "closed" if result.error is None else f"{result.machine.state}: {result.error}"


def flat(own: OwnLink, alias: str, topic: str) -> list[str]:
    return [value for values in own.values(alias, topic).values() for value in values]


def values(own: OwnLink, topic: str) -> set[str]:
    return {value for alias in ("primary", "dr") for value in flat(own, alias, topic)}
