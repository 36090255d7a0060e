"""At the switch a standby's topics get what was held back: their source's settings and access rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from drkit.failover.context.state_machine import State
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failback, run_failover
from drkit.failover.stages.promote_topics import activate, release
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.mirror.control import acknowledge
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import PartlyDone
from drkit.model.link_state import ACL_REMOVAL_HELD
from drkit.model.topics.acls import Acl
from tests.support.clusters.lab import USERS
from tests.support.collection.sampling import some_of
from tests.support.links.estates import OwnLink, mirror, open_link, own_link, texts, without_primary
from tests.support.recovery.failback_ports import reading_ports
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("releases of topics", 2)]


def settings(own: OwnLink, alias: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(own.client(alias))
    found = admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in found.items()}


def test_the_topics_get_their_sources_settings_though_the_source_is_gone(own: OwnLink) -> None:
    stamped = own.create(
        "primary", "stamped", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms="77000"
    )
    plain = own.create("primary", "plain", message_timestamp_before_max_ms="88000")
    own.produce("primary", stamped, texts("r", 5))
    mirror(own)
    before = settings(own, "dr", stamped)
    assert (before["message.timestamp.type"], before["message.timestamp.after.max.ms"]) == (
        "CreateTime",
        str(2**63 - 1),
    )
    with own.estate(without_primary(own)) as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert result.error is None
    (switch,) = [stage for stage in result.stages if stage.name == "switch"]
    assert "2 topics with the source's settings" in switch.reason
    names = ("message.timestamp.type", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
    for topic in (stamped, plain):
        ours, theirs = settings(own, "primary", topic), settings(own, "dr", topic)
        assert {name: theirs[name] for name in names} == {name: ours[name] for name in names}
    with own.estate() as estate:
        assert str(release(own.store, own.link, estate.admin("dr"), lambda: None)) == "", (
            "done again, it changes nothing"
        )


# ---- access rules --------------------------------------------------------------------------------------


@pytest.fixture
def secured(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link with `acls = "standby"`; its clusters have an authorizer."""
    mine = own_link(secure_lab, tmp_path, unique_name)
    mine.store.close()
    mine.config_path.write_text(f'{mine.config_path.read_text()}\nacls = "standby"\n')
    opened = open_link(mine.config_path, unique_name)
    yield opened
    opened.store.close()


def rule(name: str, operation: str, **changes: str) -> Acl:
    given = {"resource": "topic", "pattern": "literal", "principal": "User:app", "host": "*", "permission": "allow"}
    return Acl(**{**given, **changes, "name": name, "operation": operation})


def rules(own: OwnLink, alias: str) -> set[Acl]:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        return {found for found in admin.acls() if found.name.startswith(own.name)}


def put(own: OwnLink, alias: str, *wanted: Acl) -> None:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        assert admin.create_acls(wanted) == {}
    wait_until(lambda: set(wanted) <= rules(own, alias), what="the rules")


def write(lab: Lab, user: str, topic: str) -> str:
    """The outcome of a record that a user writes on dr."""
    told: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": lab.bootstrap("dr", sasl=True),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
            "log_level": 0,
        }
    )
    producer.produce(topic, value=b"x", partition=0, on_delivery=lambda error, _: told.append(error))
    producer.flush(20)
    return told[0].name() if told[0] is not None else "written"


def test_nobody_writes_on_a_standby_and_after_the_switch_who_wrote_before(secured: OwnLink, secure_lab: Lab) -> None:
    topic = secured.create("primary", "flights")
    group = f"{secured.name}.billing"
    may_write, may_all, may_read = rule(topic, "write"), rule(topic, "all", principal="User:other"), rule(topic, "read")
    may_join = rule(group, "read", resource="group")
    prefixed = rule(f"{secured.name}.", "write", pattern="prefixed", principal="User:reader")
    put(secured, "primary", may_write, may_all, may_read, may_join, prefixed)
    secured.produce("primary", topic, texts("r", 5))
    mirror(secured)
    stand_in = {rule(topic, operation, principal="User:other") for operation in ("read", "describe_configs")}
    assert rules(secured, "dr") == {may_read, may_join, *stand_in}
    for user in ("app", "other", "reader"):
        assert write(secure_lab, user, topic) == "TOPIC_AUTHORIZATION_FAILED"
    with secured.estate(without_primary(secured)) as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert result.error is None
    (switch,) = [stage for stage in result.stages if stage.name == "switch"]
    assert "3 ACLs put, 2 removed" in switch.reason
    wait_until(
        lambda: rules(secured, "dr") == {may_read, may_join, may_write, may_all, prefixed}, what="the rules after it"
    )
    for user in ("app", "other", "reader"):
        wait_until(lambda who=user: write(secure_lab, who, topic) == "written", what=f"{user} writing")


def test_the_rules_follow_and_a_writer_on_the_standby_is_shown(secured: OwnLink) -> None:
    topic = secured.create("primary", "flights")
    read, foreign = rule(topic, "read"), rule(topic, "write", principal="User:stranger")
    put(secured, "primary", read)
    put(secured, "dr", foreign)
    mirror(secured)
    assert rules(secured, "dr") == {read, foreign}
    (problem,) = [problem for problem in secured.store.problems(secured.link.id) if problem.kind == "standby_writable"]
    assert "User:stranger" in problem.reason
    with ClusterAdmin("primary", secured.config.clusters["primary"]) as admin:
        assert admin.delete_acls([read]) == {}
    later = rule(topic, "describe", principal="User:reader")
    put(secured, "primary", later)
    run_until(secured, lambda: rules(secured, "dr") == {later, foreign}, held=True)
    put(secured, "dr", read)  # a cluster that is set back to a copy of its disks has it again
    wait_until(lambda: read in rules(secured, "dr"), what="the rule that the source had withdrawn")
    with secured.estate() as estate:
        told = str(activate(secured.store, secured.link, estate.admin("dr"), check=lambda: None))
    assert f"WITHDRAWN BEFORE, AND THERE AGAIN: '{read}'" in told
    assert [each for each in secured.store.problems(secured.link.id) if each.kind == "standby_writable"] == [], (
        "no more"
    )


def test_what_a_fence_denies_on_the_old_primary_is_no_alarm_while_it_is_brought_back(
    secured: OwnLink, tmp_path: Path
) -> None:
    """Its own clients' rules stand there, for the time after the failback, and the fence denies what they allow."""
    topic = secured.create("primary", "flights")
    put(
        secured,
        "primary",
        rule(topic, "write"),
        rule(topic, "read"),
        rule(f"{secured.name}.billing", "read", resource="group"),
    )
    secured.produce("primary", topic, texts("r", 5))
    mirror(secured)
    with secured.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
    secured.produce("dr", topic, texts("on-dr", 3))

    def wait() -> None:
        raise PartlyDone("waiting before the fence")

    with secured.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        ports = reading_ports(secured, tmp_path / "salvage")
        paused = run_failback(
            estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True, before_fence=wait
        )
    assert paused.machine.state is State.AUDITED
    back = secured.link.reversed().id
    assert [each.reason for each in secured.store.problems(back) if each.kind == "standby_writable"] == []


def test_a_link_that_runs_again_takes_back_what_the_switch_gave(secured: OwnLink, secure_lab: Lab) -> None:
    """As after a failback: what was put at the switch is drkit's to remove, what was there before is not."""
    topic = secured.create("primary", "flights")
    own, theirs = rule(topic, "write"), rule(topic, "read", principal="User:reader")
    put(secured, "primary", own, theirs)
    put(secured, "dr", theirs)
    mirror(secured)
    with secured.estate() as estate:
        for expected in ("1 ACLs put, 0 removed", ""):
            assert str(activate(secured.store, secured.link, estate.admin("dr"), check=lambda: None)) == expected
    wait_until(lambda: rules(secured, "dr") == {own, theirs}, what="the rules of the switch")
    run_until(secured, lambda: rules(secured, "dr") == {theirs})
    assert write(secure_lab, "app", topic) == "TOPIC_AUTHORIZATION_FAILED"
    with secured.estate() as estate:
        assert (
            str(activate(secured.store, secured.link, estate.admin("dr"), check=lambda: None))
            == "1 ACLs put, 0 removed"
        )
    with ClusterAdmin("primary", secured.config.clusters["primary"]) as admin:
        assert admin.delete_acls([own, theirs]) == {}
    wait_until(lambda: rules(secured, "primary") == set(), what="a source without rules of ours")
    run_until(secured, lambda: rules(secured, "dr") == {theirs}, held=True)


def run_until(own: OwnLink, done: Callable[[], bool], *, held: bool = False) -> None:
    """The mirror at work, looking at topics often, until `done`. `held`: once an operator has acknowledged ACLs that
    the source lost while no mirror ran."""
    stop = threading.Event()
    runtime = MirrorRuntime(own.config, own.link, own.store, topic_seconds=0.3)
    thread = threading.Thread(target=runtime.run, kwargs={"stop": stop})
    thread.start()
    try:
        if held:
            its = own.store.problems
            wait_until(lambda: any(each.kind == ACL_REMOVAL_HELD for each in its(own.link.id)), 60, "held ACLs")
            acknowledge(own.store, own.link, ACL_REMOVAL_HELD)
        wait_until(done, 60, "what the mirror was to do")
    finally:
        stop.set()
        thread.join(30)
