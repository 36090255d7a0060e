"""A second disaster while a run is under way: there is always a command that lets clients write somewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from drkit.failover.context.interfaces import PATIENCE_SECONDS
from drkit.failover.context.state_machine import Mode, State
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.recovery.fence_command import why_unreached
from drkit.failover.run.service import resume_run, run_failback, run_failover, standing_obstacles
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.failover.stages.failback_stages import FENCED_PATIENCE_SECONDS
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import Direction
from drkit.model.runs import ACCEPT_UNFENCED
from drkit.model.topology import Link
from drkit.state_topic.records import state_topic
from drkit.store.workers import mirror_at_work
from tests.support.clusters.secured import allow, denials, fenced_problems, killed_at, put, verb, with_writer, write
from tests.support.collection.sampling import some_of
from tests.support.links.estates import (
    OwnLink,
    failed_over,
    mirror,
    mirroring,
    open_link,
    own_link,
    texts,
    without_primary,
)
from tests.support.recovery.failback_ports import reading_ports, salvaged
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("second disasters", 2)]

DENIED = "TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link whose clients are the user `app`; drkit is a super user."""
    mine = with_writer(own_link(secure_lab, tmp_path, unique_name), secure_lab)
    for alias in ("primary", "dr"):
        put(mine, alias, *(allow(mine.name, kind, "all") for kind in ("topic", "group")))
    yield mine
    mine.store.close()


@pytest.fixture
def away(own: OwnLink) -> tuple[str, str]:
    return failed_over(own, accept_unfenced=False)


def written_file(own: OwnLink, tmp_path: Path, *, without: str) -> Path:
    """The link's configuration, where nothing answers at one cluster's address."""
    address = own.config.clusters[without].bootstrap_servers
    gone = without_primary(own).clusters["primary"].bootstrap_servers
    file = tmp_path / f"without-{without}.toml"
    file.write_text(
        own.config_path.read_text().replace(f'bootstrap_servers = "{address}"', f'bootstrap_servers = "{gone}"')
    )
    return file


def complete_failback(own: OwnLink, tmp_path: Path) -> None:
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        assert not standing_obstacles(plan, waived=frozenset({ACCEPT_UNFENCED}))  # where dr can't be fenced
        ports = reading_ports(own, tmp_path / "salvage")
        result = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True)
    assert result.error is None
    assert result.machine.state is State.CLOSED


def test_the_old_primary_dies_again_after_dr_was_fenced(
    own: OwnLink, away: tuple[str, str], secure_lab: Lab, tmp_path: Path
) -> None:
    topic, group = away
    killed_at(own, "failback", ("drain", "outcome", "after"), str(tmp_path / "salvage"))
    assert write(secure_lab, "dr", topic) == DENIED
    alone = written_file(own, tmp_path, without="primary")
    (told,) = fenced_problems(own, alone)
    assert "dr is closed to its clients by run" in told
    verb(own, "doctor", code=3, schema="doctor", config=alone)
    run = own.store.runs()[0].run
    kept = sorted((tmp_path / "salvage").rglob("*.jsonl"))
    assert kept

    done = verb(own, "abandon", run, schema="abandon", config=alone)

    assert (done["serves"], done["open"], done["state_before"]) == ("dr", True, "drained")
    assert write(secure_lab, "dr", topic) == "written"
    assert denials(own, "dr") == set()
    assert fenced_problems(own, alone) == []
    assert sorted((tmp_path / "salvage").rglob("*.jsonl")) == kept
    verb(own, "resume", run, "--yes", schema="failover")  # it is over: nothing is done
    unread = own.unread("dr", group, topic)

    complete_failback(own, tmp_path)  # the primary is back, with what the first failback had brought there
    assert own.values("primary", topic) == own.values("dr", topic)
    assert "later" in own.values("primary", topic)[0]
    assert own.unread("primary", group, topic) == unread
    assert write(secure_lab, "primary", topic) == "written"
    assert own.store.link_control(own.link.id).direction is Direction.ACTIVE


def test_dr_opened_by_hand_is_fenced_anew_by_resume(
    own: OwnLink, away: tuple[str, str], secure_lab: Lab, tmp_path: Path
) -> None:
    topic, _group = away
    killed_at(own, "failback", ("translate", "outcome", "after"), str(tmp_path / "salvage"))
    (lifted,) = verb(own, "fence", "--lift", schema="fence")["links"]
    assert (lifted["cluster"], lifted["fenced"]) == ("dr", False)
    assert write(secure_lab, "dr", topic) == "written"
    own.commit("dr", "g", topic, {0: 16})
    run = next(found.run for found in own.store.runs() if found.kind == "failback")
    with own.estate() as estate:
        result = resume_run(estate, run, reading_ports(own, tmp_path / "salvage"))
    assert result.error is None
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.values("primary", topic)[0][-1] == "later"
    assert own.committed("primary", f"{own.name}.g")[topic, 0] == 16
    assert write(secure_lab, "dr", topic) == DENIED


def test_dr_is_opened_at_once_where_the_move_back_fails_behind_its_fence(
    own: OwnLink, away: tuple[str, str], secure_lab: Lab, tmp_path: Path
) -> None:
    topic, group = away
    ports = reading_ports(own, tmp_path / "salvage")
    waits = PartlyDone("the failback waits before its fence", remedy="drkit resume")

    def wait() -> None:
        assert denials(own, "dr") == set()
        raise waits

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        paused = run_failback(
            estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True, before_fence=wait
        )
        assert paused.error is waits
        assert paused.machine.state is State.AUDITED
        assert write(secure_lab, "dr", topic) == "written"
        reader = Consumer({**own.client("primary"), "group.id": group, "enable.auto.commit": False})
        try:  # Kafka takes a position from outside only while a group has no members
            reader.subscribe([topic])
            wait_until(lambda: reader.poll(0.1) or reader.assignment(), what="the consumer's assignment")
            failed = resume_run(estate, paused.run, ports)
        finally:
            reader.close()
        assert isinstance(failed.error, PartlyDone)
        assert "Clients still use dr" in failed.error.meaning
        assert failed.machine.state is State.AUDITED
        assert denials(own, "dr") == set()
        assert write(secure_lab, "dr", topic) == "written"
        done = resume_run(estate, paused.run, ports)
    assert done.error is None
    assert own.values("primary", topic) == own.values("dr", topic)
    assert own.values("primary", topic)[0][-2:] == ["later", "later"]


def mirrored(own: OwnLink) -> str:
    """A topic with a group's positions, all of it mirrored."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    own.commit("primary", "g", topic, {0: 3, 1: 10})
    mirror(own)
    return topic


@pytest.mark.parametrize("move", ["failback", "planned", "unplanned"])
def test_what_is_written_where_somebody_opens_the_fence_in_the_middle_of_a_move_is_counted_kept_and_closed_again(
    own: OwnLink, request: pytest.FixtureRequest, secure_lab: Lab, tmp_path: Path, move: str
) -> None:
    """Clients complain that they are denied; an impatient administrator removes the rules with Kafka's own tool. Then
    somebody creates a topic there, too."""
    back = move == "failback"
    if back:
        topic, _group = request.getfixturevalue("away")
        left = "dr"
    else:
        topic, left = mirrored(own), "primary"

    def opened_by_hand(stage: str, record: object, _said: str) -> None:
        if stage == "commit" and record is None and not written:  # all is drained
            with ClusterAdmin(left, own.config.clusters[left]) as admin:
                assert admin.delete_acls(denials(own, left)) == {}
            wait_until(lambda: write(secure_lab, left, topic) == "written", what="a client that is let in again")
            written.append(len(own.values(left, topic)[0]))
            if move == "unplanned":
                own.produce(left, own.create(left, "new"), {0: ["x", "y"]})

    written: list[int] = []
    with own.estate() as estate:
        if back:
            plan = make_failback_plan(estate, "primary")
            ports = reading_ports(own, tmp_path / "salvage")
            result = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id or "", watch=opened_by_hand)
        else:
            moved = make_plan(estate, PlanRequest("dr", mode=Mode(move)))
            result = run_failover(estate, moved, accept_unfenced=False, watch=opened_by_hand)
    assert result.error is None
    new = {f"{own.topic('new')}:0": (0, 2)} if move == "unplanned" else {}
    assert result.machine.facts.late == {f"{topic}:0": (written[0] - 1, written[0]), **new}
    assert (result.evidence.rpo_records, result.evidence.fenced) == (3 if new else 1, True)
    assert not result.evidence.rpo_lower_bound
    said = " ".join(stage.reason for stage in result.stages)
    assert f"somebody opened {left} behind its fence (closed again" in said
    assert write(secure_lab, left, topic) == DENIED
    if back:
        (kept,) = (tmp_path / "salvage").glob("*-late/*.jsonl")
        assert '"later"' in kept.read_text()


def test_what_a_super_user_writes_behind_the_drain_of_a_failback_counts_where_it_is_killed_and_its_mirror_begins(
    own: OwnLink, away: tuple[str, str], tmp_path: Path
) -> None:
    topic, _ = away
    salvage = tmp_path / "salvage"
    killed_at(own, "failback", ("commit", "outcome", "after"), str(salvage))
    own.produce("dr", topic, texts("late", 5))
    killed_at(own, "resume", ("switch", "set_link_control", "after"), str(salvage))
    with mirroring(own), own.estate() as estate:
        wait_until(lambda: mirror_at_work(estate.store, own.link.id), what="the mirror")
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, salvage))
    assert result.error is None
    assert result.machine.facts.late == {f"{topic}:0": (15, 20), f"{topic}:1": (15, 20)}
    assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (10, False)
    assert {f"late-{partition}-{number}" for partition in (0, 1) for number in range(5)} <= salvaged(salvage)


@pytest.mark.parametrize("late", [3, 0], ids=["late", "none"])
def test_what_others_write_beside_the_mirror_before_a_failback_is_closed_counts_and_what_the_mirror_writes_does_not(
    own: OwnLink, away: tuple[str, str], tmp_path: Path, late: int
) -> None:
    topic, _ = away
    salvage = tmp_path / "salvage"
    killed_at(own, "failback", ("switch", "outcome", "after"), str(salvage))
    with mirroring(own), own.estate() as estate:
        own.produce("primary", topic, texts("after", 5))
        wait_until(lambda: own.values("dr", topic) == own.values("primary", topic), what="the mirror")
        own.produce("dr", topic, texts("late", late))
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, salvage))
    assert result.error is None
    assert result.machine.facts.late == ({f"{topic}:{number}": (20, 23) for number in (0, 1)} if late else {})
    assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (2 * late, False)
    assert result.evidence.fenced is True


@pytest.mark.parametrize("late", [3, 0], ids=["late", "none"])
def test_a_mirror_that_ran_and_stopped_before_a_failback_is_closed_is_no_stranger(
    own: OwnLink, away: tuple[str, str], tmp_path: Path, late: int
) -> None:
    """A scheduled `mirror --until-caught-up`, or a restart."""
    topic, _ = away
    salvage = tmp_path / "salvage"
    killed_at(own, "failback", ("switch", "outcome", "after"), str(salvage))
    own.produce("primary", topic, texts("after", 5))
    assert mirror(own) == 10
    own.produce("dr", topic, texts("late", late))
    with own.estate() as estate:
        result = resume_run(estate, own.store.runs()[0].run, reading_ports(own, salvage))
    assert result.error is None
    assert result.machine.facts.late == ({f"{topic}:{number}": (20, 23) for number in (0, 1)} if late else {})
    assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (2 * late, False)
    assert ("somebody opened dr behind its fence" in " ".join(stage.reason for stage in result.stages)) is bool(late)


@pytest.mark.parametrize("mode", [Mode.PLANNED, Mode.UNPLANNED])
def test_where_the_last_look_at_a_fenced_primary_fails_the_loss_is_a_lower_bound_until_it_is_counted(
    own: OwnLink, secure_lab: Lab, mode: Mode
) -> None:
    """A fence binds no super user: one writes after all was counted, and the primary is gone before the close."""
    topic = mirrored(own)

    def strikes(stage: str, record: object, _said: str) -> None:
        if stage == "commit" and record is None:
            own.produce("primary", topic, {0: ["x", "y", "z"]})
            secure_lab.pause("primary")

    try:
        with own.estate() as estate:
            plan = make_plan(estate, PlanRequest("dr", mode=mode))
            result = run_failover(estate, plan, accept_unfenced=False, watch=strikes)
        evidence = result.evidence
        assert result.error is None
        assert (evidence.rpo_records, evidence.rpo_lower_bound, evidence.fenced) == (0, True, True)
        assert "what super users" in (evidence.rpo_reason or "")
    finally:
        secure_lab.resume("primary")
    with own.estate() as estate:
        wait_until(lambda: why_unreached(estate, "primary") is None, what="the primary")
        counted = complete_evidence(estate, own.link)
    assert counted is not None
    assert (counted.records, counted.lower_bound) == (3, False)


@pytest.mark.parametrize("mode", [Mode.PLANNED, Mode.UNPLANNED])
def test_records_of_a_topic_that_is_recreated_on_the_primary_in_the_middle_of_a_move_count_as_lost(
    own: OwnLink, mode: Mode
) -> None:
    topic = mirrored(own)

    def strikes(stage: str, record: object, _said: str) -> None:
        if stage == "commit" and record is None:
            with ClusterAdmin("primary", own.config.clusters["primary"]) as admin:
                admin.delete_topics([topic])
            assert own.create("primary", "t") == topic
            own.produce("primary", topic, {0: ["x", "y", "z"]})

    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr", mode=mode))
        result = run_failover(estate, plan, accept_unfenced=False, watch=strikes)
    assert result.error is None
    assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (3, False)
    (link,) = verb(own, "status", schema="status")["links"]
    assert link["recovery_point"]["records"] == 3
    assert [each["topic"] for each in link["problems"] if each["kind"] == "topic_recreated"] == [topic]
    checks = {each["check"]: each for each in verb(own, "doctor", code=3, schema="doctor")["links"][0]["checks"]}
    assert "3 records" in checks["left behind"]["reason"]


def test_a_fence_that_a_killed_run_left_is_lifted_by_whoever_is_given_up(own: OwnLink, secure_lab: Lab) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    mirror(own)
    killed_at(own, "planned", ("fence", "create_acls", "after"))
    assert write(secure_lab, "primary", topic) == DENIED
    (told,) = fenced_problems(own)
    assert "primary is closed to its clients by run" in told
    assert "abandon" in verb(own, "doctor", code=3, schema="doctor")["links"][0]["checks"][3]["remedy"]
    own.produce("primary", topic, texts("late", 3))  # by drkit's own listener: no mirror runs, so it can't drain
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr", mode=Mode.UNPLANNED))
        blind = own.config.clusters["primary"].model_copy(update={"fence": type(own.config.clusters["dr"].fence)()})
    config = own.config.model_copy(update={"clusters": {**own.config.clusters, "primary": blind}})
    with own.estate(config) as estate:  # its fence can't be shown, so it is refused and gives itself up
        result = run_failover(estate, plan, accept_unfenced=False)
    assert isinstance(result.error, Refused)
    assert {found.state for found in own.store.runs()} == {State.CANCELLED}
    assert denials(own, "primary") == set()
    assert fenced_problems(own) == []
    assert write(secure_lab, "primary", topic) == "written"


def test_a_fence_whose_store_is_lost_is_found_by_its_mark(own: OwnLink, secure_lab: Lab, tmp_path: Path) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    own.commit("primary", "g", topic, {0: 3})
    mirror(own)
    killed_at(own, "planned", ("fence", "outcome", "after"))
    file = tmp_path / "anew.toml"
    file.write_text(own.config_path.read_text().replace("drkit.db", "anew.db"))
    mirrored = open_link(file, own.name)
    with own.estate() as estate:
        estate.admin("dr").delete_topics([state_topic(own.link)])  # else `drkit store recover` knows of the fence
    try:
        mirror(mirrored)
        (told,) = fenced_problems(mirrored)
        assert told == "primary is closed to its clients, and they are to use it"
        (lifted,) = verb(mirrored, "fence", "--lift", schema="fence")["links"]
        assert "that the store didn't know is lifted: 2 rules removed" in lifted["reason"]
        assert fenced_problems(mirrored) == []
    finally:
        mirrored.store.close()
    assert denials(own, "primary") == set()
    assert write(secure_lab, "primary", topic) == "written"


def test_an_old_primary_that_is_back_and_open_is_shown_and_nobody_is_told_to_stop_the_groups_of_dr(
    own: OwnLink, secure_lab: Lab
) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    group = own.commit("primary", "g", topic, {0: 3, 1: 10})
    mirror(own)
    with own.estate(without_primary(own)) as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    assert write(secure_lab, "primary", topic) == "written"
    reader = Consumer({**own.client("dr"), "group.id": group, "enable.auto.commit": False})
    try:
        reader.subscribe([topic])
        wait_until(lambda: reader.poll(0.1) or reader.assignment(), what="the group at work on dr")
        (link,) = verb(own, "doctor", code=3, schema="doctor")["links"]
    finally:
        reader.close()
    said = {check["check"]: check for check in link["checks"]}
    assert said["left behind"]["reason"] == "on primary and not on dr: 1 record"
    assert said["problem: unfenced"]["remedy"].startswith(f"drkit fence --link '{own.link.id}'")
    assert "groups on the target" not in said
    assert said["clusters"]["reason"] == "dr serves; both answer"

    verb(own, "fence", schema="fence")
    assert write(secure_lab, "primary", topic) == DENIED
    (link,) = verb(own, "status", schema="status")["links"]
    assert link["problems"] == []


def test_a_damaged_journal_blocks_no_link(own: OwnLink, away: tuple[str, str], tmp_path: Path) -> None:
    topic, _group = away
    run = own.store.runs()[0].run
    with sqlite3.connect(tmp_path / "drkit.db") as store:
        store.execute("UPDATE journal SET payload = payload || ' ' WHERE run = ? AND seq = 2", (run,))
    with own.estate() as estate:
        (obstacle,) = make_failback_plan(estate, "primary").obstacles
        assert f"drkit abandon {run}" in obstacle.remedy
        done = abandon_run(estate, run, print)
    assert "was changed after it was written" in str(done.journal)
    assert (done.serves, done.open) == ("dr", True)
    assert own.store.link_control(own.link.id).direction is Direction.SEALED
    complete_failback(own, tmp_path)
    assert own.values("primary", topic) == own.values("dr", topic)


def test_the_old_primary_comes_back_as_a_new_empty_cluster(
    lab: Lab, secure_lab: Lab, tmp_path: Path, unique_name: str
) -> None:
    own = own_link(lab, tmp_path, unique_name)
    topic = own.create("primary", "t", retention_ms="123456789")
    own.produce("primary", topic, texts("before", 10))
    group = own.commit("primary", "g", topic, {0: 3, 1: 10})
    mirror(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    own.produce("dr", topic, texts("on-dr", 5))
    own.commit("dr", "g", topic, {0: 12, 1: 14})
    old, new = lab.bootstrap("primary"), secure_lab.bootstrap("primary")
    own.config_path.write_text(own.config_path.read_text().replace(old, new))
    own.store.close()
    own = open_link(own.config_path, own.name)
    try:
        with own.estate() as estate:
            plan = make_failback_plan(estate, "primary")
            assert any("is another cluster" in said for said in plan.warnings)
        complete_failback(own, tmp_path)
        assert own.records("primary", topic) == own.records("dr", topic)
        assert own.committed("primary", group) == {(topic, 0): 12, (topic, 1): 14}
        with own.estate() as estate:
            settings = estate.admin("primary").topic_configs([topic], keys=("retention.ms",))
        assert settings[topic]["retention.ms"] == "123456789"
        own.produce("primary", topic, texts("after", 5))
        assert mirror(own) == 10
        own.produce("primary", own.create("primary", "theirs"), texts("x", 1))
    finally:
        own.store.close()


def test_what_a_failover_lost_is_not_counted_on_another_cluster_nor_on_logs_that_are_gone(
    lab: Lab, secure_lab: Lab, tmp_path: Path, unique_name: str
) -> None:
    """The primary was dead when the failover was planned, so only the mirror knew which cluster it was."""
    own = own_link(lab, tmp_path, unique_name)
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2))
    with own.estate(without_primary(own)) as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
        assert result.error is None
    run = str(result.run)
    old, new = lab.bootstrap("primary"), secure_lab.bootstrap("primary")
    text = own.config_path.read_text()
    own.config_path.write_text(text.replace(old, new))
    told = verb(own, "runs", run, "--audit", code=3)["error"]
    assert "is another cluster now" in told["what"]
    replaced = open_link(own.config_path, own.name)
    with closing(replaced.store), replaced.estate() as estate:
        assert any("is another cluster" in said for said in make_failback_plan(estate, "primary").warnings)
    own.config_path.write_text(text)
    with own.estate() as estate:
        estate.admin("primary").delete_topics([topic])
    own.create("primary", "t")
    told = verb(own, "runs", run, "--audit", code=3)["error"]
    assert f"what run {run} lost can't be counted on primary" in told["what"]
    assert f"{topic} is another topic than the one mirrored" in told["what"]
    shown = verb(own, "runs", run, schema="runs")["result"]["evidence"]
    assert (shown["rpo_basis"], shown["rpo_lower_bound"]) == ("observed", True)
    own.store.close()


def test_behind_the_fence_a_primary_that_hangs_is_waited_for_no_longer_than_clients_can_be_kept_out(
    own: OwnLink, away: tuple[str, str], secure_lab: Lab, tmp_path: Path
) -> None:
    """It is frozen as the draining begins, with records left to bring over."""
    topic, _group = away
    ports = reading_ports(own, tmp_path / "salvage")
    asked: list[float] = []

    class Freezes:
        def catch_up(
            self, link: Link, say: Callable[[str], None], /, *, patience_seconds: float = PATIENCE_SECONDS
        ) -> str:
            asked.append(patience_seconds)
            if denials(own, "dr"):
                secure_lab.pause("primary")
            return ports.mirror.catch_up(link, say, patience_seconds=patience_seconds)

    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        try:
            result = run_failback(
                estate,
                plan,
                replace(ports, mirror=Freezes()),
                cluster_id=plan.target.cluster_id or "",
                accept_unfenced=True,
                before_fence=lambda: own.produce("dr", topic, texts("late", 2)),
            )
            assert write(secure_lab, "dr", topic) == "written", "it is open again while the primary hangs"
        finally:
            secure_lab.resume("primary")
    assert asked == [PATIENCE_SECONDS, FENCED_PATIENCE_SECONDS]
    assert result.error is not None
    assert "can't catch up" in result.error.what
    assert result.machine.state is State.AUDITED
    assert denials(own, "dr") == set()
    with own.estate() as estate:
        done = resume_run(estate, result.run, ports)
    assert done.error is None
    assert own.values("primary", topic) == own.values("dr", topic)
