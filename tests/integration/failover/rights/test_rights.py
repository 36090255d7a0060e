"""A principal that has exactly the rights that `drkit acls` prints for a command carries it out; with one taken away it
fails as the table says, and its plan and `drkit doctor` tell before."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drkit.cli.wiring.page_sources import page_sources
from drkit.failover.context.state_machine import Mode
from drkit.failover.journal.journal import StageRecord
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.runner import RunResult
from drkit.failover.run.service import run_failback, run_failover
from drkit.failover.stages import scrub_stage
from drkit.failover.stages.late_commits import commits_end
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.lab import Lab
from drkit.lab.toolchain import Toolchain, ensure
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs import FenceMethod
from drkit.model.topology import TopicPartition
from drkit.observe.page.decision import Answer
from tests.support.clusters.secured import verb
from tests.support.collection.sampling import some_of
from tests.support.commands.rights import Grants, as_exact, printed, run
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.recovery.failback_ports import reading_ports

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900), some_of("rights of commands", 2)]


@pytest.fixture
def exact(own: OwnLink, secure_lab: Lab, grants: Grants) -> Iterator[OwnLink]:
    """The same link as the user `exact`, who has the rights of all commands and no other."""
    mine = as_exact(own, secure_lab)
    grants.give(printed(mine))
    yield mine
    mine.store.close()


def mirrored(own: OwnLink, exact: OwnLink) -> tuple[str, str]:
    """A topic and a group, mirrored with drkit's own rights."""
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("before", 50))
    group = own.commit("primary", "billing", topic, {0: 50, 1: 20})
    assert mirror(exact) == 100
    return topic, group


def gone_over(own: OwnLink, exact: OwnLink) -> tuple[str, str]:
    """Failed over as the user `exact`; the primary holds records that dr hasn't."""
    topic, group = mirrored(own, exact)
    own.produce("primary", topic, texts("never-mirrored", 3))
    with exact.estate() as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=False)
    assert result.error is None
    own.produce("dr", topic, texts("on-dr", 5))
    return topic, group


def fail_back(exact: OwnLink, folder: Path) -> RunResult:
    with exact.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        return run_failback(
            estate,
            plan,
            reading_ports(exact, folder / "salvage"),
            cluster_id=estate.admin("primary").cluster_id(),
            accept_unfenced=False,
        )


def mirror_to_its_end(own: OwnLink) -> None:
    """`drkit mirror --until-caught-up` as a process of its own."""
    command = [sys.executable, "-m", "drkit", "mirror", "--until-caught-up", "--config", str(own.config_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def groups_of(own: OwnLink, alias: str) -> set[str]:
    with own.estate() as estate:
        return set(estate.groups(alias).list_groups())


def page_answers(own: OwnLink) -> tuple[Answer, tuple[str, ...]]:
    """What the page says to whether one may fail over, and its obstacles."""
    (decision,) = page_sources(own.config, own.store, [own.link], None).decisions()
    return decision.answer, tuple(each.what for each in decision.obstructions)


SHOWN_TO_DOCTOR = (
    "access rules",
    "client settings",
    "clocks",
    "disks of the target",
    "retention on the source",
    "topic settings",
    "versions",
)
"""Checks of what a failover doesn't need, for which doctor has optional rights."""


@pytest.mark.spark
def test_each_command_is_carried_out_with_exactly_its_rights(
    own: OwnLink, exact: OwnLink, secure_lab: Lab, grants: Grants, toolchain: Toolchain, tmp_path: Path
) -> None:
    """The failback's salvage and audit are Spark's."""
    del toolchain  # fetched before a command runs

    def only(command: str) -> None:
        grants.clear()
        grants.give(printed(exact, "--command", command))

    topic = own.create("primary", "orders", retention_ms="123456789")
    own.produce("primary", topic, texts("before", 50))
    group = own.commit("primary", "billing", topic, {0: 50, 1: 20})
    only("mirror")
    mirror_to_its_end(exact)
    only("status")
    (status,) = run("status", exact)["links"]
    assert (status["problems"], status["recovery_point"]["records"]) == ([], 0)
    only("translate")
    assert run("translate", exact, "--group", group)["positions"][0]["translation"] == "exact"
    only("doctor")
    checks = {each["check"]: each for each in run("doctor", exact, code=3)["links"][0]["checks"]}
    failed = [name for name, each in checks.items() if each["outcome"] == "fail"]
    assert not {checks[name]["outcome"] for name in SHOWN_TO_DOCTOR} & {"unknown", "fail"}
    assert failed == ["failover", "rights"], "who looks can't commit: a failover with these rights is refused"
    only("rehearse")
    assert run("failover", exact, "--to", "dr", "--rehearse", code=3)["state"] == "closed", "nor who rehearses"
    assert not [name for name in groups_of(own, "dr") if name.startswith("drkit.rehearsal.") and own.name in name]
    only("serve")
    assert page_answers(exact) == (Answer.YES, ())

    only("failover")
    checks = {each["check"]: each for each in run("doctor", exact)["links"][0]["checks"]}
    assert (checks["rights"]["outcome"], checks["fence"]["outcome"]) == ("ok", "ok"), checks
    planned = run("failover", exact, "--to", "dr", "--planned", "--yes")
    assert (planned["state"], planned["evidence"]["fenced"]) == ("closed", True)
    assert own.committed("dr", group) == {(topic, 0): 50, (topic, 1): 20}
    only("runs")
    run("runs", exact, planned["run"])

    own.produce("primary", topic, texts("past-the-fence", 3))  # by a super user
    own.produce("dr", topic, texts("on-dr", 5))
    on_dr = own.values("dr", topic)
    only("failback")
    words = ("--yes", "--cluster-id", secure_lab.cluster_id("primary"), "--salvage-dir", str(tmp_path / "kept"))
    back = verb(exact, "failback", *words, schema="failover")
    assert (back["state"], back["evidence"]["fenced"], back["salvaged"]["records"]) == ("closed", True, 6)
    assert (back["audit"]["verdict"], {stage["outcome"] for stage in back["stages"]}) == ("clean", {"ok"})
    assert own.values("primary", topic) == on_dr

    only("mirror")
    own.produce("primary", topic, texts("later", 5))
    assert mirror(exact) == 10
    only("failover")
    unplanned = run("failover", exact, "--to", "dr", "--unplanned", "--yes")
    assert (unplanned["state"], unplanned["evidence"]["fenced"]) == ("closed", True)
    only("fence")
    assert [each["fenced"] for each in run("fence", exact)["links"]] == [True]


def removed_from_dr(own: OwnLink, topic: str, at: str) -> Callable[[str, StageRecord | None, str], None]:
    """What watches a run, and removes the first 5 records of a partition of dr once that stage has ended."""

    def watch(stage: str, record: StageRecord | None, _text: str) -> None:
        if stage == at and record is not None:
            with own.estate() as estate:
                estate.admin("dr").delete_records({TopicPartition(topic, 0): 5})

    return watch


def test_what_retention_removes_on_dr_meanwhile_stops_no_planned_move_with_its_rights(
    own: OwnLink, exact: OwnLink, grants: Grants
) -> None:
    hour = 3_600_000
    topic = own.create("primary", "orders", retention_ms=str(hour))
    own.produce("primary", topic, texts("about-an-hour-old", 10), stamp=int(time.time() * 1000) - hour + 20_000)
    group = own.commit("primary", "billing", topic, {0: 10, 1: 10})
    mirror(exact)
    grants.clear()
    grants.give(printed(exact, "--command", "failover"))
    with exact.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED))
        done = run_failover(estate, plan, accept_unfenced=False, watch=removed_from_dr(own, topic, "drain"))
    assert done.error is None, done.error
    assert (done.evidence.rpo_records, done.evidence.rpo_lower_bound) == (0, False)
    assert own.committed("dr", group) == {(topic, 0): 10, (topic, 1): 10}


def test_what_dr_lost_since_counts_at_most_without_the_right_to_read_its_retention_on_the_source(
    own: OwnLink, secure_lab: Lab, grants: Grants
) -> None:
    """What retention may have removed can't be told from what somebody deleted."""
    exact = as_exact(own, secure_lab)
    grants.give(printed(exact, "--command", "mirror"))
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("before", 50))
    assert mirror(exact) == 100
    grants.clear()
    rights = printed(exact, "--command", "failover")
    grants.give(rights)
    shows = [
        each for each in rights["primary"] if (each["resource"], each["operation"]) == ("topic", "describe_configs")
    ]
    assert all(each["optional"] for each in shows)
    grants.take("primary", shows)
    (warned,) = [each for each in run("doctor", exact)["links"][0]["checks"] if each["check"] == "rights"]
    assert warned["outcome"] == "warn"
    assert (
        f"drkit lacks DescribeConfigs on 1 topic of primary: {topic}: where records of the target" in warned["reason"]
    )
    with exact.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr", mode=Mode.UNPLANNED))
        done = run_failover(estate, plan, accept_unfenced=False, watch=removed_from_dr(own, topic, "verify"))
    exact.store.close()
    assert done.error is None, done.error
    loss = done.machine.facts.loss
    assert loss is not None
    assert (loss.records, loss.upper_bound) == (5, True)
    assert f"drkit may not read the retention of {topic} on primary (grant DESCRIBE_CONFIGS)" in (loss.reason or "")


def test_a_plan_misses_every_right_that_its_run_cannot_do_without(own: OwnLink, exact: OwnLink, grants: Grants) -> None:
    def refused(command: str) -> list[str]:
        with exact.estate() as estate:
            try:
                plan = (
                    make_plan(estate, PlanRequest("dr")) if command == "failover" else make_failback_plan(estate, None)
                )
            except DrkitError as error:
                return [str(error)]
            return [each.what for each in plan.obstacles]

    def missed(command: str, alias: str) -> list[str]:
        """Rights without which the command's plan has nothing in its way."""
        found = []
        for right in printed(exact, "--command", command, "--cluster", alias, "--required")[alias]:
            given = [each for each in everything[alias] if _includes(each, right)]
            grants.take(alias, given)
            if not refused(command):
                found.append(f"{right['operation']} on {right['name']}")
            grants.give({alias: given})
        return found

    everything = printed(exact)
    mirrored(own, exact)
    neighbour = replace(own, name=f"x{own.name}")  # a group that isn't the link's: a failback has to see it, too
    neighbour.commit("primary", "bystander", neighbour.create("primary", "outside"), {0: 0})
    assert refused("failover") == []
    assert missed("failover", "dr") == []
    own.produce("primary", f"{own.name}.orders", texts("never-mirrored", 3))
    with exact.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=False).error is None
    assert refused("failback") == []
    assert missed("failback", "primary") == []
    assert missed("failback", "dr") == []


def _includes(right: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a right that was given lets one do what another one does."""
    same = (right["resource"], right["operation"]) == (other["resource"], other["operation"])
    if other["operation"] == "describe" and right["resource"] == other["resource"]:
        same = right["operation"] in {"describe", "read", "write", "delete", "alter"}
    if other["operation"] == "describe_configs" and right["resource"] == other["resource"]:
        same = right["operation"] in {"describe_configs", "alter_configs"}
    return same and right["name"] == other["name"]


def test_without_the_right_to_commit_a_failover_is_refused_before_anything_changes(
    own: OwnLink, exact: OwnLink, grants: Grants
) -> None:
    _, group = mirrored(own, exact)
    rights = printed(exact, "--command", "failover", "--cluster", "dr")["dr"]
    taken = [right for right in rights if (right["resource"], right["operation"]) == ("group", "read")]
    assert not any(right["optional"] for right in taken)
    grants.give({"dr": [{**right, "operation": "describe"} for right in taken]})
    grants.take("dr", [right for right in taken if right["name"].startswith(own.name)])
    refused = run("failover", exact, "--to", "dr", "--yes", code=3, schema="error")["error"]
    assert f"drkit lacks Read on 1 group of dr: {group}" in refused["what"]
    assert "the commit is denied" in refused["meaning"]
    assert "drkit acls --command failover --cluster dr" in refused["remedy"]
    checks = {each["check"]: each for each in run("doctor", exact, code=3)["links"][0]["checks"]}
    assert checks["rights"]["outcome"] == "fail"
    assert group in checks["rights"]["reason"]
    assert own.store.runs() == []
    with exact.estate() as estate:
        result = run_failover(
            estate, replace(make_plan(estate, PlanRequest("dr")), obstacles=()), accept_unfenced=False
        )
    assert result.error is not None, "the table says that the commit is denied"
    assert "GROUP_AUTHORIZATION_FAILED" in str(result.error) or "denied" in str(result.error)
    assert own.committed("dr", group) == {}


def test_doctor_says_before_the_failover_which_rights_other_commands_will_lack(
    own: OwnLink, exact: OwnLink, grants: Grants
) -> None:
    topic, group = mirrored(own, exact)

    def rights_said() -> dict[str, Any]:
        checks = run("doctor", exact, "--to", "dr")["links"][0]["checks"]  # 0: a failover is accepted
        return {each["check"]: each for each in checks if each["check"].startswith("rights")}

    whole = rights_said()
    assert set(whole) == {"rights", "rights of other commands"}
    assert {each["outcome"] for each in whole.values()} == {"ok"}
    there = printed(exact, "--command", "failback", "--cluster", "primary")["primary"]
    wanted = {("group", "delete"), ("topic", "delete")}
    taken = [each for each in there if (each["resource"], each["operation"]) in wanted]
    grants.take("primary", [each for each in taken if each["name"].startswith(own.name)])
    said = rights_said()
    assert {name for name, each in said.items() if each["outcome"] == "warn"} == {
        "rights of failback",
        "rights of reprotect",
    }
    assert said["rights"]["outcome"] == "ok"
    failback = said["rights of failback"]
    assert f"drkit lacks Delete on 1 group of primary: {group}: the scrub stops" in failback["reason"]
    assert f"drkit lacks Delete on 1 topic of primary: {topic}: nothing is deleted" in failback["reason"]
    assert "drkit acls --command failback --cluster primary" in failback["remedy"]


def test_without_the_right_to_alter_the_cluster_it_cannot_be_fenced(
    own: OwnLink, exact: OwnLink, grants: Grants
) -> None:
    mirrored(own, exact)
    rights = printed(exact, "--command", "failover", "--cluster", "primary")["primary"]
    taken = [right for right in rights if (right["resource"], right["operation"]) == ("cluster", "alter")]
    grants.give({"primary": [{**right, "operation": "describe"} for right in taken]})
    grants.take("primary", taken)
    with exact.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert plan.fence == FenceMethod.NONE
        assert "lacks Alter" in plan.fence_reason
        with pytest.raises(Refused, match="primary can't be fenced"):
            run_failover(estate, plan, accept_unfenced=False)


def test_kafkas_own_tool_takes_what_is_printed(own: OwnLink, secure_lab: Lab, grants: Grants, tmp_path: Path) -> None:
    (found,) = run("acls", as_exact(own, secure_lab), "--command", "failback", "--cluster", "primary")["clusters"]
    tools = ensure("mirrormaker")
    java = [str(tools.java), "-Xmx128m", "-cp", tools.classpath("mirrormaker"), "org.apache.kafka.tools.AclCommand"]
    (tmp_path / "admin-primary.properties").write_text("")
    kinds = (" --cluster", " --group '*' ", f" --topic {own.name}. ")
    for kind in kinds:  # one each of the forms that there are: a call takes a second of Java
        (printed_call,) = [each for each in found["kafka_acls"] if kind in f"{each} "]
        tool, option, servers, *words = shlex.split(printed_call)
        assert (tool, option, servers) == (
            "kafka-acls.sh",
            "--bootstrap-server",
            secure_lab.bootstrap("primary", sasl=True),
        )
        call = [*java, option, secure_lab.bootstrap("primary"), *words]
        done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    names = {("cluster", "kafka-cluster"), ("group", "*"), ("topic", f"{own.name}.")}
    assert grants.has_exactly(
        "primary", [each for each in found["rights"] if (each["resource"], each["name"]) in names]
    )


@pytest.mark.parametrize(("operation", "without"), [("read", "the commit is denied"), ("delete", "the scrub stops")])
def test_a_failback_tells_behind_the_fence_which_right_it_will_lack(
    own: OwnLink, exact: OwnLink, grants: Grants, tmp_path: Path, operation: str, without: str
) -> None:
    _, group = gone_over(own, exact)
    rights = printed(exact, "--command", "failback", "--cluster", "primary")["primary"]
    of_groups = [right for right in rights if right["resource"] == "group" and right["name"].startswith(own.name)]
    assert {right["operation"] for right in of_groups} == {"read", "delete"}
    grants.take("primary", [right for right in of_groups if right["operation"] == operation])
    with pytest.raises(Refused, match=f"drkit lacks {operation.capitalize()} on 1 group of primary: {group}") as caught:
        fail_back(exact, tmp_path)
    assert without in caught.value.meaning
    assert "drkit acls --command failback" in caught.value.remedy
    assert [each.kind for each in own.store.runs()] == ["failover"]


@pytest.mark.parametrize("verb", ["failback", "reprotect"])
def test_the_dry_run_of_a_way_back_is_refused_for_each_right_that_is_missing_on_either_cluster(
    own: OwnLink, exact: OwnLink, grants: Grants, verb: str
) -> None:
    topic, group = gone_over(own, exact)
    everything = printed(exact)

    def take(alias: str, *rights: tuple[str, str]) -> None:
        taken = [each for each in everything[alias] if (each["resource"], each["operation"]) in rights]
        grants.take(alias, [each for each in taken if each["name"].startswith(own.name)])

    def dry_run() -> dict[str, Any]:
        return run(verb, exact, "--dry-run", "--link", str(exact.link.id), code=3, schema="failover")

    take("primary", ("topic", "delete"), ("group", "delete"))
    said = {each["what"]: each["remedy"] for each in dry_run()["refusals"]}
    scrubbed = f"drkit lacks Delete on 1 topic of primary: {topic}"
    assert f"drkit acls --command {verb} --cluster primary" in said[scrubbed]
    assert f"drkit lacks Delete on 1 group of primary: {group}" in said
    take("dr", ("topic", "describe_configs"), ("topic", "alter_configs"))
    denied = dry_run()["error"]  # dr isn't read, so there is no plan: all that is missing is said together
    assert scrubbed in denied["what"]
    assert f"drkit lacks DescribeConfigs on 1 topic of dr: {topic}" in denied["what"]
    assert f"drkit acls --command {verb} --cluster " in denied["remedy"]
    assert [each.kind for each in own.store.runs()] == ["failover"]


def test_a_failback_that_may_not_read_the_coordinators_log_says_what_nobody_knows(
    own: OwnLink, exact: OwnLink, grants: Grants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group commits between the last look at the log's ends and the deletion: where they don't move, all is known."""
    topic, _ = gone_over(own, exact)
    rights = printed(exact)["primary"]
    grants.take("primary", [each for each in rights if (each["name"], each["operation"]) == (OFFSETS_TOPIC, "read")])

    def ends_before_a_commit(*place: Any) -> dict[str, int]:
        ends = commits_end(*place)
        own.commit("primary", "late", topic, {0: 2})
        return ends

    monkeypatch.setattr(scrub_stage, "commits_end", ends_before_a_commit)
    result = fail_back(exact, tmp_path)
    assert result.error is None
    (scrub,) = [stage for stage in result.stages if stage.name == "scrub"]
    assert "positions that groups committed on them within the last moment before aren't known" in scrub.reason
    assert f"denies READ on topic {OFFSETS_TOPIC}" in scrub.reason
