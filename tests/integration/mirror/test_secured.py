"""The mirror over SASL on clusters with an authorizer, with no more rights than it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.acls import Acl
from tests.support.lab import USERS
from tests.support.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

MIRROR = "User:mirror"


def rule(resource: str, name: str, operation: str, pattern: str = "literal") -> Acl:
    return Acl(resource, name, pattern, MIRROR, "*", operation, "allow")


@pytest.fixture
def secured(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link whose mirror is the user `mirror`; the tests' own readers and writers may do everything."""
    world = Mirrored(secure_lab, tmp_path, unique_name)
    text = world.config_path.read_text()
    for alias in ("primary", "dr"):
        plain, sasl = secure_lab.bootstrap(alias), secure_lab.bootstrap(alias, sasl=True)
        client = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "mirror",
            "sasl.password": USERS["mirror"],
        }
        lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
        table = "\n".join([f'bootstrap_servers = "{sasl}"', f"[clusters.{alias}.client]", *lines])
        text = text.replace(f'bootstrap_servers = "{plain}"', table)
    world.config_path.write_text(text)
    world.configure("")
    yield world
    world.close()


def grant(lab: Lab, alias: str, *rules: Acl) -> None:
    with ClusterAdmin(alias, ClusterConfig(bootstrap_servers=lab.bootstrap(alias))) as admin:
        assert admin.create_acls(rules) == {}
        wait_until(lambda: set(rules) <= admin.acls(), what="the rights")


def test_the_mirror_needs_these_rights_and_no_more(secured: Mirrored, secure_lab: Lab) -> None:
    prefix = secured.prefix
    source = [rule("topic", prefix, operation, "prefixed") for operation in ("read", "describe", "describe_configs")]
    source += [rule("group", prefix, "describe", "prefixed")]
    target = [
        rule("topic", prefix, operation, "prefixed")
        for operation in ("create", "write", "read", "describe", "describe_configs", "alter", "alter_configs", "delete")
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
