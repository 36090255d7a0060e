"""Audits and a seed of clusters behind TLS and SASL: Spark is let in by the same settings, and shows none of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from drkit.audit.run import run_audit
from drkit.audit.spark import session
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.audit.audit_result import AuditRequest, Verdict
from drkit.model.errors import Refused
from drkit.model.topics.acls import Acl
from drkit.seed.run import bulk_seed
from tests.support.clusters.lab import USERS
from tests.support.clusters.tls import KEY_PASSWORD, Pem
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark]


def with_password(pem: Pem, user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
        "ssl.ca.location": str(pem.ca),
    }


def with_certificate(pem: Pem) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(pem.ca),
        "ssl.certificate.location": str(pem.certificate("client")),
        "ssl.key.location": str(pem.key("client")),
        "ssl.key.password": KEY_PASSWORD,
    }


def reach(world: Mirrored, alias: str, listener: str, client: dict[str, str]) -> None:
    """Have the configuration reach a cluster so."""
    plain = f'[clusters.{alias}]\nbootstrap_servers = "{world.lab.bootstrap(alias)}"'
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
    table = [f"[clusters.{alias}]", f'bootstrap_servers = "{world.lab.bootstrap(alias, listener=listener)}"']
    text = world.config_path.read_text()
    assert plain in text
    world.config_path.write_text(text.replace(plain, "\n".join([*table, f"[clusters.{alias}.client]", *lines])))
    world.configure("")


def grant(world: Mirrored, user: str, *operations: str) -> None:
    rights = {
        Acl(kind, name, "prefixed", f"User:{user}", "*", operation, "allow")
        for kind, name in (("topic", world.prefix), ("group", world.prefix), ("group", "drkit"))
        for operation in operations
    }
    for alias in ("primary", "dr"):
        with ClusterAdmin(alias, ClusterConfig(bootstrap_servers=world.lab.bootstrap(alias))) as admin:
            assert admin.create_acls(tuple(rights)) == {}
            wait_until(lambda admin=admin: rights <= set(admin.acls()), what="the rights")


@pytest.fixture
def world(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    world = Mirrored(secure_lab, tmp_path, unique_name)
    yield world
    world.close()


def test_spark_is_let_in_and_shows_no_secret(world: Mirrored, pem: Pem, spark, tmp_path: Path, capfd) -> None:
    reach(world, "primary", "mtls", with_certificate(pem))
    reach(world, "dr", "tls", with_password(pem, "mirror"))
    grant(world, "mirror", "all")
    topic = world.name("flights")
    world.source.create(topic, 2)
    producer = world.source.producer()
    for number in range(600):
        producer.produce(topic, value=b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0
    events = tmp_path / "events"
    events.mkdir()
    logged = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    runtime = replace(spark, settings={f"spark.eventLog.{name}": value for name, value in logged.items()})
    context = session.spark_session(runtime).sparkContext
    context.setLogLevel("INFO")  # Kafka's and Spark's own words on what they are given
    log = session._alive.folder / "spark.log"

    assert bulk_seed(world.config, world.link, world.store, runtime).records == 600
    for full in (False, True):
        request = AuditRequest(link=world.link, out=str(tmp_path / f"audit-{full}"), full=full)
        result = run_audit(request, world.store, world.config, runtime)
        assert (result.verdict, result.counts.matched) == (Verdict.CLEAN, 600)
    properties = context._jsc.sc().getConf().toDebugString()
    grant(world, "other", "describe", "describe_configs")
    world.config_path.write_text(world.config_path.read_text().replace("mirror", "other"))  # who may see, not read
    world.configure("")
    with pytest.raises(Refused) as refused:
        run_audit(AuditRequest(link=world.link, out=str(tmp_path / "denied")), world.store, world.config, runtime)
    said = log.read_text()
    session.stop_session()  # the event log is complete

    written = "".join(each.read_text() for each in events.rglob("*") if each.is_file())
    assert "SparkListenerJobStart" in written
    assert "Got job 0" in said  # it may be over before it ends: the seed waits for its records, not for its tasks
    shown = capfd.readouterr()
    key = pem.key("client").read_text().splitlines()[3]
    for secret in (USERS["mirror"], USERS["other"], KEY_PASSWORD, key):
        for where, text in {
            "the event log": written,
            "the log": said,
            "the properties": properties,
            "stdout": shown.out,
            "stderr": shown.err,
            "the error": str(refused.value),
        }.items():
            assert secret not in text, where
    assert re.search("dr den(ies|ied)", str(refused.value))
    assert "Exception" not in str(refused.value)
