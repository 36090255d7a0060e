"""The same over TLS, with passwords, clients' certificates and OAuth; and what is said where it can't be."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.config.client_config import java_properties, java_properties_text
from drkit.kafka.config.oauth_tokens import MskIam, Token, kept_for
from drkit.lab import Lab
from drkit.lab.toolchain import Toolchain
from drkit.model.errors import AuthenticationError, Unreachable
from drkit.model.topics.acls import Acl
from tests.support.clusters.lab import USERS
from tests.support.clusters.oauth import CLIENT, SECRET, Issuer, token_endpoint
from tests.support.clusters.tls import KEY_PASSWORD, Pem
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("secured mirrors", 2)]

SECRETS = (USERS["mirror"], KEY_PASSWORD)


def with_password(pem: Pem, **other: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "mirror",
        "sasl.password": USERS["mirror"],
        "ssl.ca.location": str(pem.ca),
        **{name.replace("_", "."): value for name, value in other.items()},
    }


def with_certificate(pem: Pem, name: str = "client") -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(pem.ca),
        "ssl.certificate.location": str(pem.certificate(name)),
        "ssl.key.location": str(pem.key(name)),
        "ssl.key.password": KEY_PASSWORD,
    }


def say(world: Mirrored, alias: str, listener: str, client: dict[str, str]) -> None:
    """Have the link reach a cluster so."""
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
    table = [f'bootstrap_servers = "{world.lab.bootstrap(alias, listener=listener)}"', f"[clusters.{alias}.client]"]
    plain = f'bootstrap_servers = "{world.lab.bootstrap(alias)}"'
    world.config_path.write_text(world.config_path.read_text().replace(plain, "\n".join([*table, *lines])))


@pytest.fixture
def world(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    world = Mirrored(secure_lab, tmp_path, unique_name)
    yield world
    world.close()


def grant(world: Mirrored) -> None:
    """Let the user mirror do all to what is the test's own."""
    rights = {
        Acl(kind, name, "prefixed", "User:mirror", "*", "all", "allow")
        for kind, name in (
            ("topic", world.prefix),
            ("topic", "__drkit_state."),
            ("group", world.prefix),
            ("group", "drkit.mirror."),
        )
    }
    for alias in ("primary", "dr"):
        with ClusterAdmin(alias, ClusterConfig(bootstrap_servers=world.lab.bootstrap(alias))) as admin:
            assert admin.create_acls(tuple(rights)) == {}
            wait_until(lambda admin=admin: rights <= set(admin.acls()), what="the rights")


def write(world: Mirrored, topic: str, first: int) -> None:
    producer = world.source.producer()
    for number in range(first, first + 300):
        producer.produce(topic, value=b"%d" % number)
    assert producer.flush(20) == 0


def commit(world: Mirrored, topic: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": world.source.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, 170)], asynchronous=False)
    consumer.close()


def ask_by_java(world: Mirrored, alias: str, topic: str, toolchain: Toolchain, *options: str) -> None:
    """One of Kafka's own tools takes the same settings."""
    settings = world.folder / f"{alias}.properties"
    settings.write_text(java_properties_text(java_properties(world.config.clusters[alias])))
    asked = ["--describe", "--entity-type", "topics", "--entity-name", topic]
    where = ["--bootstrap-server", world.config.clusters[alias].bootstrap_servers, "--command-config", settings]
    tool = ["-XX:TieredStopAtLevel=1", *options, "-cp", toolchain.classpath("kafka"), "kafka.admin.ConfigCommand"]
    described = subprocess.run(
        [toolchain.java, *tool, *where, *asked], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"for topic {topic} are" in described.stdout, described.stderr


def test_a_link_over_tls(world: Mirrored, pem: Pem, toolchain: Toolchain) -> None:
    say(world, "primary", "mtls", with_certificate(pem))
    say(world, "dr", "tls", with_password(pem))
    world.configure("")
    grant(world)
    topic, group = world.name("flights"), world.name("billing")
    world.source.create(topic)
    write(world, topic, 0)
    commit(world, topic, group)
    assert world.catch_up().records == 300
    wait_until(lambda: world.store.group_positions(world.link.id), what="the group's position")
    assert len(world.assert_same(topic)) == 300
    assert world.problems() == []

    seen = world.drkit("status", "--output", "json")
    assert seen.returncode == 0, seen.stderr
    (link,) = json.loads(seen.stdout)["links"]
    (position,) = link["groups"]
    assert (position["target_offset"], position["translation"]) == (170, "exact")
    assert link["partitions"][0]["lag_records"] == 0

    for alias in ("primary", "dr"):
        ask_by_java(world, alias, topic, toolchain)


def assert_mirrors(world: Mirrored, listener: str, client: dict[str, str]) -> str:
    """Records that are written are on the target, with each of the three libraries logged in; their topic."""
    for alias in ("primary", "dr"):
        say(world, alias, listener, client)
    world.configure("")
    grant(world)
    topic = world.name("flights")
    world.source.create(topic)
    write(world, topic, 0)
    assert world.catch_up().records == 300  # kafka-python, aiokafka and (for the group's membership) librdkafka
    assert len(world.assert_same(topic)) == 300
    assert world.problems() == []
    return topic


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_link_with_scram(world: Mirrored, pem: Pem, toolchain: Toolchain, mechanism: str) -> None:
    kind = ScramMechanism[mechanism.replace("-", "_")]
    for alias in ("primary", "dr"):
        admin = AdminClient({"bootstrap.servers": world.lab.bootstrap(alias)})
        user = UserScramCredentialUpsertion("mirror", ScramCredentialInfo(kind, 4096), USERS["mirror"].encode())
        admin.alter_user_scram_credentials([user])["mirror"].result(20)
    topic = assert_mirrors(world, "scram", with_password(pem, sasl_mechanisms=mechanism))
    for alias in ("primary", "dr"):
        ask_by_java(world, alias, topic, toolchain)


def test_a_link_with_oauth(world: Mirrored, pem: Pem, issuer: Issuer, toolchain: Toolchain) -> None:
    with token_endpoint(issuer, pem) as endpoint:
        client = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "pool=one",
            "https.ca.location": str(pem.ca),
        }
        topic = assert_mirrors(world, "oauth", client)
        assert all(form["scope"] == "kafka" for form in endpoint.asked)
        ask_by_java(
            world, "primary", topic, toolchain, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint.url}"
        )

        endpoint.answer = (401, {"error": "invalid_client"})
        refused = world.drkit("mirror", "--until-caught-up")
        assert refused.returncode == 2, refused.stderr
        assert "invalid_client" in refused.stderr
        assert SECRET not in refused.stderr
        assert "Traceback" not in refused.stderr
        endpoint.answer = (200, {"access_token": Issuer(world.folder).token(CLIENT, 600), "expires_in": 600})
        refused = world.drkit("status", own_process=True)  # this one holds a good token of before
        assert "rejected the credentials" in refused.stdout, "a token that somebody else signed"


def test_a_link_with_tokens_as_msk_takes_them(
    world: Mirrored, pem: Pem, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a broker they are tokens of OAUTHBEARER; here the tests' issuer makes them in place of AWS's signer."""
    made: list[str] = []

    def sign(iam: MskIam) -> Token:
        made.append(iam.region)
        return kept_for(issuer.token(CLIENT, 600), 600, time.monotonic())

    monkeypatch.setattr(MskIam, "fetch", sign)
    monkeypatch.setenv("AWS_REGION", "eu-test-1")
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "AWS_MSK_IAM",
        "ssl.ca.location": str(pem.ca),
    }
    assert_mirrors(world, "oauthtls", client)
    assert made == ["eu-test-1"]


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        ("wrong authority", "unable to get local issuer certificate. Name the authority"),
        ("expired", "certificate has expired. Renew"),
        ("elsewhere", "certificate is not valid for '127.0.0.1'. Use a name from the certificate"),
        ("stranger", "refused this client's certificate"),
        ("no certificate", "refused this client's certificate"),
        ("password", "rejected the credentials"),
        ("no TLS", "uses TLS, but security.protocol doesn't"),
        ("mechanism", "SCRAM-SHA-512"),
    ],
)
def test_who_is_not_let_in_is_told_why(listener: str, said: str, secure_lab: Lab, pem: Pem) -> None:
    without = {name: with_certificate(pem)[name] for name in ("security.protocol", "ssl.ca.location")}
    where, client = {
        "wrong authority": ("tls", with_password(pem, ssl_ca_location=str(pem.other_ca))),
        "expired": ("expired", with_password(pem)),
        "elsewhere": ("elsewhere", with_password(pem)),
        "stranger": ("mtls", with_certificate(pem, "stranger")),
        "no certificate": ("mtls", without),
        "password": ("tls", with_password(pem, **{"sasl.password": "nonsense"})),
        "no TLS": ("tls", {}),
        "mechanism": ("tls", with_password(pem, sasl_mechanisms="SCRAM-SHA-512")),
    }[listener]
    cluster = ClusterConfig.model_validate(
        {"bootstrap_servers": secure_lab.bootstrap("primary", listener=where), "client": client}
    )
    with ClusterAdmin("primary", cluster, timeout_seconds=20) as admin, pytest.raises(AuthenticationError) as caught:
        admin.cluster_id()
    assert said in str(caught.value)
    assert not any(secret in str(caught.value) for secret in SECRETS)
    assert caught.value.exit_code == 2


def test_one_broker_with_a_bad_certificate_does_not_keep_drkit_from_the_others(secure_lab: Lab, pem: Pem) -> None:
    servers = ",".join(secure_lab.bootstrap("primary", listener=name) for name in ("expired", "elsewhere", "tls"))
    cluster = ClusterConfig.model_validate({"bootstrap_servers": servers, "client": with_password(pem)})
    with ClusterAdmin("primary", cluster, timeout_seconds=20) as admin:
        assert admin.cluster_id() == secure_lab.cluster_id("primary")
    plain = secure_lab.bootstrap("primary")
    cluster = ClusterConfig.model_validate({"bootstrap_servers": plain, "client": with_password(pem)})
    with ClusterAdmin("primary", cluster, timeout_seconds=1) as admin, pytest.raises(Unreachable, match="Handshake"):
        admin.cluster_id()  # TLS with one who doesn't speak it looks like one who goes away


def test_commands_say_it_and_a_failover_does_not_need_it(world: Mirrored, pem: Pem) -> None:
    topic, group = world.name("flights"), world.name("billing")
    world.source.create(topic)
    write(world, topic, 0)
    commit(world, topic, group)
    assert world.catch_up().records == 300
    say(world, "primary", "expired", with_password(pem))
    mirror = world.drkit("mirror", "--until-caught-up")
    assert mirror.returncode == 2, mirror.stderr
    assert "certificate has expired" in mirror.stderr
    status = world.drkit("status")
    assert status.returncode == 0, "a cluster that can't be trusted is a fact about it"
    assert "certificate has expired" in " ".join(status.stdout.split())
    moved = world.drkit("failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", "--output", "json")
    assert moved.returncode == 0, moved.stderr
    run = json.loads(moved.stdout)
    assert (run["state"], run["evidence"]["fenced"], run["groups"][0]["target_offset"]) == ("closed", False, 170)
    for said in (mirror, status, moved):
        assert "Traceback" not in said.stderr
        assert not any(secret in said.stdout + said.stderr for secret in SECRETS)
