"""The mirror over SASL on clusters with an authorizer, with no more rights than it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from drkit.config import ClusterConfig
from drkit.drill.environment.log_surgery import stopped
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.topics.acls import Acl
from drkit.state_topic.records import state_topic
from tests.support.links.mirroring import Mirrored, as_restricted
from tests.support.links.topic_looks import taken_between_looks
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

MIRROR = "User:mirror"


def rule(resource: str, name: str, operation: str, pattern: str = "literal") -> Acl:
    return Acl(resource, name, pattern, MIRROR, "*", operation, "allow")


@pytest.fixture
def secured(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link whose mirror is the user `mirror`; the tests' own readers and writers may do everything."""
    world = as_restricted(secure_lab, Mirrored(secure_lab, tmp_path, unique_name))
    yield world
    world.close()


def grant(lab: Lab, alias: str, *rules: Acl) -> None:
    with ClusterAdmin(alias, ClusterConfig(bootstrap_servers=lab.bootstrap(alias))) as admin:
        assert admin.create_acls(rules) == {}
        wait_until(lambda: set(rules) <= admin.acls(), what="the rights")


@contextmanager
def may_on_cluster(lab: Lab, alias: str, operation: AclOperation) -> Iterator[None]:
    """The mirror's user may do something to a cluster, for a while."""
    pattern = ResourcePatternType.LITERAL
    admin = AdminClient({"bootstrap.servers": lab.bootstrap(alias)})
    kind = (ResourceType.BROKER, "kafka-cluster", pattern, MIRROR, "*", operation, AclPermissionType.ALLOW)
    (created,) = admin.create_acls([AclBinding(*kind)]).values()
    created.result(20)
    try:
        yield
    finally:
        (deleted,) = admin.delete_acls([AclBindingFilter(*kind)]).values()
        deleted.result(20)


def rules_of(lab: Lab, alias: str, prefix: str) -> set[Acl]:
    with ClusterAdmin(alias, ClusterConfig(bootstrap_servers=lab.bootstrap(alias))) as admin:
        return {each for each in admin.acls() if each.name.startswith(prefix)}


def test_the_mirror_needs_these_rights_and_no_more(secured: Mirrored, secure_lab: Lab) -> None:
    prefix = secured.prefix
    source = [rule("topic", prefix, operation, "prefixed") for operation in ("read", "describe", "describe_configs")]
    source += [rule("group", prefix, "describe", "prefixed")]
    target = [
        rule("topic", prefix, operation, "prefixed")
        for operation in ("create", "write", "read", "describe", "describe_configs", "alter", "alter_configs", "delete")
    ]
    target += [rule("group", "drkit.mirror.", "read", "prefixed")]
    target += [
        rule("topic", "__drkit_state.", operation, "prefixed") for operation in ("create", "describe", "read", "write")
    ]
    grant(secure_lab, "primary", *source)
    grant(secure_lab, "dr", *target)
    topic = secured.name("flights")
    secured.source.create(topic, 2)
    producer = secured.source.producer()
    for number in range(500):
        producer.produce(topic, value=b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0
    report = secured.catch_up()
    assert report.caught_up
    assert not report.halted
    assert report.records == 500
    for partition in range(2):
        secured.assert_same(topic, partition)
    assert secured.problems() == []
    assert state_topic(secured.link) in secured.target.admin.list_topics(timeout=10).topics
    assert secured.catch_up().caught_up  # reads it, too
    assert secured.problems() == []


def test_with_the_right_to_alter_the_cluster_markers_are_matched(secured: Mirrored, secure_lab: Lab) -> None:
    prefix = secured.prefix
    grant(secure_lab, "primary", rule("topic", prefix, "all", "prefixed"), rule("group", prefix, "all", "prefixed"))
    grant(secure_lab, "dr", rule("topic", prefix, "all", "prefixed"))
    topic = secured.name("flights")
    secured.source.create(topic)
    producer = secured.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    for number in range(5):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number)
        producer.commit_transaction(30)
    with may_on_cluster(secure_lab, "dr", AclOperation.ALTER):
        assert secured.catch_up().caught_up
    secured.assert_same(topic)
    secured.assert_translates(topic)
    assert secured.target.end(topic) == secured.source.end(topic)


def write(mirrored: Mirrored, topic: str, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(count):
        producer.produce(topic, value=b"%d" % number)
    assert producer.flush(20) == 0


def test_rules_that_a_restored_primary_lacks_stay_on_dr(
    secured: Mirrored, secure_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a primary has lost is no deletion: dr's copies are all that is left."""
    monkeypatch.setattr("drkit.mirror.topics.acl_sync.SECONDS", 0.2)
    prefix, taken = secured.prefix, taken_between_looks(secured, monkeypatch)
    for alias in ("primary", "dr"):
        grant(secure_lab, alias, rule("topic", prefix, "all", "prefixed"))
    grant(secure_lab, "primary", rule("group", prefix, "all", "prefixed"))
    topic = secured.name("flights")
    secured.source.create(topic)
    write(secured, topic, 5)
    app = replace(rule("topic", prefix, "read", "prefixed"), principal="User:app")
    denied, gone = replace(app, principal="User:guest", permission="deny"), replace(app, principal="User:former")
    secured.configure('acls = "standby"')
    with (
        may_on_cluster(secure_lab, "primary", AclOperation.DESCRIBE),
        may_on_cluster(secure_lab, "dr", AclOperation.DESCRIBE),
        may_on_cluster(secure_lab, "dr", AclOperation.ALTER),
    ):
        grant(secure_lab, "primary", app)
        with stopped(secure_lab, "primary-1") as disk:
            disk.copy_to(tmp_path / "copy")
        grant(secure_lab, "primary", denied, gone)
        with secured.running():
            wait_until(lambda: {app, denied, gone} <= rules_of(secure_lab, "dr", prefix), 60, "the rules")
            taken(topic)
            with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=secure_lab.bootstrap("primary"))) as admin:
                assert admin.delete_acls([gone]) == {}
            wait_until(lambda: gone not in rules_of(secure_lab, "dr", prefix), 60, "the end of one that was deleted")
            with stopped(secure_lab, "primary-1") as disk:
                disk.set_back(tmp_path / "copy")
            (held,) = wait_until(lambda: secured.problems("acl_removal_held"), 90, "the problem")
            assert str(denied) in held.reason
            assert {app, denied} <= rules_of(secure_lab, "dr", prefix)
            told = secured.drkit("link", "acknowledge", str(secured.link.id), "acl_removal_held")
            assert told.returncode == 0, told.stderr
            wait_until(lambda: denied not in rules_of(secure_lab, "dr", prefix), 60, "its end on an operator's word")
        assert app in rules_of(secure_lab, "dr", prefix)


def test_a_rule_that_was_removed_does_not_come_back_unseen_with_dr_set_back(
    secured: Mirrored, secure_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drkit.mirror.topics.acl_sync.SECONDS", 0.2)
    prefix, taken = secured.prefix, taken_between_looks(secured, monkeypatch)
    for alias in ("primary", "dr"):
        grant(secure_lab, alias, rule("topic", prefix, "all", "prefixed"))
    grant(secure_lab, "primary", rule("group", prefix, "all", "prefixed"))
    topic = secured.name("flights")
    secured.source.create(topic)
    write(secured, topic, 5)
    app = replace(rule("topic", prefix, "read", "prefixed"), principal="User:app")
    former = replace(app, principal="User:former")
    secured.configure('acls = "standby"')
    grant(secure_lab, "primary", app, former)
    with (
        may_on_cluster(secure_lab, "primary", AclOperation.DESCRIBE),
        may_on_cluster(secure_lab, "dr", AclOperation.DESCRIBE),
        may_on_cluster(secure_lab, "dr", AclOperation.ALTER),
    ):
        assert secured.catch_up().caught_up
        with stopped(secure_lab, "dr-1") as disk:
            disk.copy_to(tmp_path / "copy")
        with secured.running():
            wait_until(lambda: {app, former} <= rules_of(secure_lab, "dr", prefix), 60, "the rules")
            taken(topic)
            with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=secure_lab.bootstrap("primary"))) as admin:
                assert admin.delete_acls([former]) == {}
            wait_until(lambda: former not in rules_of(secure_lab, "dr", prefix), 60, "the end of one that was deleted")
            with stopped(secure_lab, "dr-1") as disk:
                disk.set_back(tmp_path / "copy")
            (held,) = wait_until(lambda: secured.problems("acl_removal_held"), 90, "the problem")
            assert "dr has again 1 rule" in held.reason
            assert str(former) in held.reason
            told = secured.drkit("link", "acknowledge", str(secured.link.id), "acl_removal_held")
            assert told.returncode == 0, told.stderr
            wait_until(lambda: former not in rules_of(secure_lab, "dr", prefix), 60, "its end on an operator's word")
        assert app in rules_of(secure_lab, "dr", prefix)


def test_rules_about_a_prefix_stay_so_and_those_of_drkit_itself_are_not_carried(
    secured: Mirrored, secure_lab: Lab
) -> None:
    prefix = secured.prefix
    for alias in ("primary", "dr"):
        grant(secure_lab, alias, rule("topic", prefix, "all", "prefixed"))
    grant(secure_lab, "primary", rule("group", prefix, "all", "prefixed"))
    app = [replace(rule(kind, prefix, "read", "prefixed"), principal="User:app") for kind in ("topic", "group")]
    grant(secure_lab, "primary", *app)
    before = rules_of(secure_lab, "dr", prefix)
    topic = secured.name("flights")
    secured.source.create(topic)
    write(secured, topic, 5)
    secured.configure('acls = "standby"')
    with (
        may_on_cluster(secure_lab, "primary", AclOperation.DESCRIBE),
        may_on_cluster(secure_lab, "dr", AclOperation.DESCRIBE),
        may_on_cluster(secure_lab, "dr", AclOperation.ALTER),
    ):
        assert secured.catch_up().caught_up
    assert rules_of(secure_lab, "dr", prefix) == before | set(app)
    assert secured.problems() == []
