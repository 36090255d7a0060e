"""A target that doesn't let drkit produce: a problem with its remedy, not a loop of warnings."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from drkit.config import ClusterConfig
from drkit.lab import Lab
from drkit.mirror.engine import Incident, IncidentKind, PartitionStart
from drkit.mirror.record_engine import RecordEngine
from drkit.model.topology import TopicPartition
from tests.support.guard import Guard
from tests.support.mirroring import Side
from tests.support.topologies import write
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("guarded")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite", clusters=("a",), users={"mirror": "word"})
    yield lab
    lab.down()


def test_no_right_to_produce_idempotently(guarded: Lab, unique_name: str) -> None:
    side = Side(guarded.bootstrap("a"))
    side.create(unique_name)
    side.create(f"{unique_name}-copy")
    write(side, unique_name, ["x", "y"])
    source = ClusterConfig(bootstrap_servers=guarded.bootstrap("a"))
    target = ClusterConfig.model_validate(
        {
            "bootstrap_servers": guarded.bootstrap("a", sasl=True),
            "client": {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "mirror",
                "sasl.password": "word",
            },
        }
    )
    grant(side.admin, ResourceType.TOPIC, f"{unique_name}-copy", AclOperation.DESCRIBE)
    incident = run_to_incident(source, target, unique_name)
    assert incident.kind is IncidentKind.REJECTED
    assert "idempotent" in incident.reason
    assert "IDEMPOTENT_WRITE" in incident.remedy
    assert side.read(f"{unique_name}-copy") == []


def grant(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation) -> None:
    allow = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:mirror", "*", operation, AclPermissionType.ALLOW)
    for future in admin.create_acls([allow]).values():
        future.result(20)


def run_to_incident(source: ClusterConfig, target: ClusterConfig, topic: str) -> Incident:
    """Mirror one partition until it stands still; takes it up again as the runtime would, each time it is uncertain."""
    engine = RecordEngine(
        source,
        target,
        keep_rows=lambda _: None,
        may_produce=lambda: True,
        append_odd=lambda *_: 0,
        stop=threading.Event(),
    )
    start = PartitionStart(TopicPartition(topic, 0), f"{topic}-copy", 1, 0, 0, 0, 1_000_000)
    found: list[Incident] = []

    def stands_still() -> bool:
        for incident in engine.round(0.1):
            if incident.kind is IncidentKind.UNCERTAIN:
                engine.start([start], gently=incident.retry_gently)
            else:
                found.append(incident)
        return bool(found)

    try:
        engine.start([start])
        wait_until(stands_still, 60, "an incident")
    finally:
        engine.close()
    return found[0]
