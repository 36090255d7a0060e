"""Access rules through drkit's admin client, on brokers with an authorizer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.errors import Refused
from drkit.model.topics.acls import Acl
from tests.support.clusters.lab import USERS
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def rule(name: str, operation: str = "read", **changes: str) -> Acl:
    given = {"resource": "topic", "pattern": "literal", "principal": "User:app", "host": "*", "permission": "allow"}
    return Acl(**{**given, **changes, "name": name, "operation": operation})


def test_rules_are_put_seen_and_removed_exactly(secure_lab: Lab, unique_name: str) -> None:
    rules = {
        rule(unique_name),
        rule(unique_name, "write", host="10.0.0.1", permission="deny"),
        rule(f"{unique_name}-", "all", pattern="prefixed", principal="User:CN=a,O=b"),
        rule(unique_name, "describe_configs", resource="group", principal="User:*"),
    }
    with ClusterAdmin("dr", ClusterConfig(bootstrap_servers=secure_lab.bootstrap("dr"))) as admin:

        def ours() -> set[Acl]:
            return {found for found in admin.acls() if found.name.startswith(unique_name)}

        for _ in range(2):
            assert admin.create_acls(rules) == {}
            wait_until(lambda: ours() == rules, what="the rules")
        gone = rule(unique_name)
        assert admin.delete_acls([gone, rule("never-there")]) == {}
        wait_until(lambda: ours() == rules - {gone}, what="one rule less, the others as they were")
        assert admin.delete_acls(rules) == {}
        refused = admin.create_acls([rule("", "read"), rule(unique_name)])
        assert list(refused) == [rule("", "read")]
        assert "INVALID_REQUEST" in refused[rule("", "read")]
        wait_until(lambda: ours() == {gone}, what="the good one of two")
        assert admin.delete_acls([gone]) == {}


def test_a_rule_lets_a_user_write_and_its_end_does_not(secure_lab: Lab, unique_name: str) -> None:
    cluster = ClusterConfig(bootstrap_servers=secure_lab.bootstrap("dr"))
    client = {
        "bootstrap.servers": secure_lab.bootstrap("dr", sasl=True),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": USERS["app"],
        "log_level": 0,
    }

    def outcome() -> object:
        told: list[KafkaError | None] = []
        producer = Producer(client)
        producer.produce(unique_name, value=b"x", on_delivery=lambda error, _: told.append(error))
        producer.flush(10)
        return told[0].name() if told[0] is not None else "written"

    with ClusterAdmin("dr", cluster) as admin:
        admin.create_topic(unique_name, partitions=1, replication_factor=1)
        assert outcome() == "TOPIC_AUTHORIZATION_FAILED"
        assert admin.create_acls([rule(unique_name, "write")]) == {}
        wait_until(lambda: outcome() == "written", what="the right to write")
        assert admin.delete_acls([rule(unique_name, "write")]) == {}
        wait_until(lambda: outcome() == "TOPIC_AUTHORIZATION_FAILED", what="its end")


def test_where_rules_cannot_be_had_it_is_said(lab: Lab, secure_lab: Lab) -> None:
    with (
        ClusterAdmin("dr", ClusterConfig(bootstrap_servers=lab.bootstrap("dr"))) as admin,
        pytest.raises(Refused, match="has no authorizer"),
    ):
        admin.acls()
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "other",
        "sasl.password": USERS["other"],
    }
    poor = ClusterConfig(bootstrap_servers=secure_lab.bootstrap("dr", sasl=True), client=client)
    with ClusterAdmin("dr", poor) as admin, pytest.raises(Refused, match="denied it: read ACLs"):
        admin.acls()
