"""Audits and seeds of clusters behind TLS, SASL and OAuth: Spark is let in by their settings, and shows no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
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
from tests.support.clusters.oauth import CLIENT, SECRET, Issuer, token_endpoint
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


def with_tokens(pem: Pem, url: str) -> dict[str, str]:
    """OAuth's client credentials: brokers know the client by the name mirror."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.scope": "kafka",
        "https.ca.location": str(pem.ca),
        "ssl.ca.location": str(pem.ca),
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


def write(world: Mirrored, topic: str) -> None:
    """600 more records."""
    producer = world.source.producer()
    for number in range(600):
        producer.produce(topic, value=b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0


def arguments_of_children() -> str:
    """The command lines of what this process started, Spark's JVM and workers among them."""
    lines = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            lines.append(" ".join(child.cmdline()))
    return "\n".join(lines)


def contents(folder: Path) -> str:
    """All that is written below a folder."""
    return "".join(each.read_bytes().decode("latin-1") for each in folder.rglob("*") if each.is_file())


@pytest.fixture
def world(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    world = Mirrored(secure_lab, tmp_path, unique_name)
    yield world
    world.close()


def test_spark_is_let_in_and_shows_no_secret(
    world: Mirrored, pem: Pem, issuer: Issuer, spark, tmp_path: Path, capfd
) -> None:
    grant(world, "mirror", "all")
    topic = world.name("flights")
    world.source.create(topic, 2)
    events = tmp_path / "events"
    events.mkdir()
    logged = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    runtime = replace(spark, settings={f"spark.eventLog.{name}": value for name, value in logged.items()})
    context = session.spark_session(runtime).sparkContext
    context.setLogLevel("INFO")  # Kafka's and Spark's own words on what they are given
    log = session._alive.folder / "spark.log"
    plain = world.config_path.read_text()

    with token_endpoint(issuer, pem) as endpoint:
        tokens = with_tokens(pem, endpoint.url)
        ways = {
            False: {"primary": ("mtls", with_certificate(pem)), "dr": ("tls", with_password(pem, "mirror"))},
            True: dict.fromkeys(("primary", "dr"), ("oauthtls", tokens)),
        }
        for rounds, (full, way) in enumerate(ways.items(), 1):
            world.config_path.write_text(plain)
            for alias, (listener, client) in way.items():
                reach(world, alias, listener, client)
            write(world, topic)
            assert bulk_seed(world.config, world.link, world.store, runtime).records == 600
            request = AuditRequest(link=world.link, out=str(tmp_path / f"audit-{full}"), full=full)
            result = run_audit(request, world.store, world.config, runtime)
            assert (result.verdict, result.counts.matched) == (Verdict.CLEAN, 600 * rounds)
    properties, arguments = context._jsc.sc().getConf().toDebugString(), arguments_of_children()
    assert "-Dlog4j2.configurationFile" in arguments, "Spark's JVM is among them"
    grant(world, "other", "describe", "describe_configs")
    world.config_path.write_text(plain)
    reach(world, "primary", "mtls", with_certificate(pem))
    reach(world, "dr", "tls", with_password(pem, "other"))  # who may see, not read
    with pytest.raises(Refused) as refused:
        run_audit(AuditRequest(link=world.link, out=str(tmp_path / "denied")), world.store, world.config, runtime)
    said, kept = log.read_text(), contents(session._alive.folder)
    session.stop_session()  # the event log is complete

    written = contents(events)
    assert "SparkListenerJobStart" in written
    assert "Got job 0" in said  # it may be over before it ends: the seed waits for its records, not for its tasks
    shown = capfd.readouterr()
    key = pem.key("client").read_text().splitlines()[3]
    for secret in (USERS["mirror"], USERS["other"], KEY_PASSWORD, key, SECRET, *endpoint.issued):
        for where, text in {
            "the event log": written,
            "the log": said,
            "the session's folder": kept,
            "the properties": properties,
            "the arguments": arguments,
            "stdout": shown.out,
            "stderr": shown.err,
            "the error": str(refused.value),
            "the findings": "".join(contents(each) for each in tmp_path.glob("audit-*")),
        }.items():
            assert secret not in text, where
    assert re.search("dr den(ies|ied)", str(refused.value))
    assert "Exception" not in str(refused.value)
