"""Whether a node really answers: a port that accepts connections isn't enough."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from drkit.lab.layout import Node
from drkit.lab.ports import answers

_TIMEOUT_SECONDS = 3


def probe(node: Node) -> Callable[[Node], frozenset[int] | None]:
    """The probe for a node's kind: the ids of the nodes it knows to be alive, or None if it doesn't answer."""
    return brokers_seen if node.kind == "kafka" else cql_answers


def brokers_seen(node: Node) -> frozenset[int] | None:
    """The node ids of the brokers that this broker lists in its metadata (only those that serve)."""
    if not answers(node.port):
        return None
    try:
        client = KafkaAdminClient(
            bootstrap_servers=node.address,
            bootstrap_timeout_ms=_TIMEOUT_SECONDS * 1000,
            request_timeout_ms=_TIMEOUT_SECONDS * 1000,
            client_id="drkit-lab",
        )
        try:
            return frozenset(int(broker["broker_id"]) for broker in client.describe_cluster()["brokers"])
        finally:
            client.close()
    except (KafkaError, OSError):
        return None


def cql_answers(node: Node) -> frozenset[int] | None:
    """The node's own id once it answers a CQL query."""
    if not answers(node.port):
        return None
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy(["127.0.0.1"]), request_timeout=_TIMEOUT_SECONDS
    )
    driver = logging.getLogger("cassandra")
    before = driver.level
    driver.setLevel(logging.CRITICAL)  # a node that isn't up yet is what this asks about, not news
    cluster = Cluster(
        ["127.0.0.1"],
        port=node.port,
        connect_timeout=_TIMEOUT_SECONDS,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        schema_metadata_enabled=False,
        token_metadata_enabled=False,
        protocol_version=5,
    )
    try:
        session = cluster.connect()
        session.execute("SELECT release_version FROM system.local")
    except (NoHostAvailable, OSError):
        return None
    finally:
        cluster.shutdown()
        driver.setLevel(before)
    return frozenset({node.node_id})
