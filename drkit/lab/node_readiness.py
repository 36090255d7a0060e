"""Probes whether a node really answers: a port that accepts connections isn't enough.

A broker gets hand-written bytes: a Metadata request to exactly this broker. A client would ask any broker of the
cluster, count fenced ones too, and log every refused connection.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable

from drkit.lab.layout import Node
from drkit.lab.ports import answers

_TIMEOUT_SECONDS = 3
_METADATA_REQUEST = (3, 1)  # key and version; version 1 with an empty list asks for no topic
_MOST_BYTES = 1 << 20
_FIRST_USER = ("cassandra", "cassandra")
"""Cassandra's initial user and password, if it requires authentication at all."""


def probe(node: Node) -> Callable[[Node], frozenset[int] | None]:
    """The probe for a node's kind; it returns the ids of the serving nodes that it knows, or None: no answer."""
    return brokers_seen if node.kind == "kafka" else cql_answers


def brokers_seen(node: Node) -> frozenset[int] | None:
    """The ids of the brokers in this broker's metadata: the serving ones, without fenced ones."""
    client = b"drkit-lab"
    body = struct.pack(">hhih", *_METADATA_REQUEST, 1, len(client)) + client + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", node.port), timeout=_TIMEOUT_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                return _broker_ids(stream.read(size)) if 0 < size <= _MOST_BYTES else None
    except (OSError, struct.error):
        return None  # refused, too slow, or closed while responding: it doesn't answer


def _broker_ids(answer: bytes) -> frozenset[int]:
    """Parse a Metadata response of version 1: correlation id, then brokers as (id, host, port, rack)."""
    (count,) = struct.unpack_from(">i", answer, 4)
    at, found = 8, set()
    for _ in range(count):
        identity, host = struct.unpack_from(">ih", answer, at)
        at += 6 + host + 4
        (rack,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(0, rack)
        found.add(identity)
    return frozenset(found)


def cql_answers(node: Node) -> frozenset[int] | None:
    """The node's own id once it answers a CQL query."""
    if not answers(node.port):
        return None
    from cassandra.auth import PlainTextAuthProvider  # noqa: PLC0415 - as below
    from cassandra.cluster import (  # noqa: PLC0415 - 0.2 s that nobody needs who has no such node
        EXEC_PROFILE_DEFAULT,
        Cluster,
        ExecutionProfile,
        NoHostAvailable,
    )
    from cassandra.policies import WhiteListRoundRobinPolicy  # noqa: PLC0415 - as above

    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy(["127.0.0.1"]), request_timeout=_TIMEOUT_SECONDS
    )
    driver = logging.getLogger("cassandra")
    before = driver.level
    driver.setLevel(logging.CRITICAL)  # that a node isn't up yet is expected here
    cluster = Cluster(
        ["127.0.0.1"],
        port=node.port,
        auth_provider=PlainTextAuthProvider(*_FIRST_USER),
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
