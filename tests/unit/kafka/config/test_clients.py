"""One configuration, three dialects; what one of them can't say is an error, never a difference."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from drkit.config import ClusterConfig
from drkit.config.schema.config import CLIENT_PROPERTIES
from drkit.kafka.config.client_config import (
    aiokafka_config,
    confluent_config,
    java_properties,
    java_properties_text,
    kafka_python_config,
)
from drkit.model.errors import ConfigError

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": "me", "sasl.password": "it"}

OAUTH = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": 'it"',
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
}


def cluster(**client: Any) -> ClusterConfig:
    named = {name.replace("__", "."): value for name, value in client.items()}
    return ClusterConfig.model_validate({"bootstrap_servers": "a:1, b:2", "client": named})


def given(properties: dict[str, Any]) -> ClusterConfig:
    return ClusterConfig.model_validate({"bootstrap_servers": "a:1, b:2", "client": properties})


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate, its PKCS #8 key, the key encrypted, and the key in the older form."""
    folder = tmp_path_factory.mktemp("pem")
    run = lambda *arguments: subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)  # noqa: E731 - local shorthand
    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=drkit", "-keyout", "key.pem", "-out", "cert.pem")
    lock = ("pkcs8", "-topk8", "-in", "key.pem", "-passout", "pass:open sesame", "-out")
    run(*lock, "locked.pem", "-v1", "PBE-SHA1-3DES")
    run(*lock, "pbes2.pem", "-v2", "aes-256-cbc")
    run("rsa", "-traditional", "-in", "key.pem", "-out", "old.pem")
    return folder


def test_plain_text() -> None:
    config = cluster()
    assert confluent_config(config)["bootstrap.servers"] == "a:1,b:2"
    assert kafka_python_config(config) == {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}
    assert java_properties(config) == {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"}


def test_extra_settings_have_the_last_word() -> None:
    config = confluent_config(given({"client.id": "one"}), client_id="two", enable_idempotence=True)
    assert config["client.id"] == "two"
    assert config["enable.idempotence"] is True


def test_sasl_in_all_dialects() -> None:
    config = given({**SASL, "sasl.mechanisms": "scram-sha-512", "client.id": "drkit", "socket.timeout.ms": 7000})
    assert confluent_config(config)["sasl.mechanisms"] == "SCRAM-SHA-512"
    python = kafka_python_config(config)
    assert python["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (python["sasl_plain_username"], python["sasl_plain_password"]) == ("me", "it")
    assert (python["client_id"], python["request_timeout_ms"]) == ("drkit", 7000)
    java = java_properties(config)
    assert java["sasl.mechanism"] == "SCRAM-SHA-512"
    assert java["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="it";'
    )
    assert (java["client.id"], java["request.timeout.ms"]) == ("drkit", "7000")


def test_oauth_in_all_dialects(pem: Path) -> None:
    more = {"sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "logicalCluster=lkc-1, pool=p 2"}
    ca = str(pem / "cert.pem")
    config = given({**OAUTH, **more, "https.ca.location": ca})
    native = confluent_config(config)
    assert (native["sasl.mechanisms"], native["sasl.oauthbearer.method"]) == ("OAUTHBEARER", "oidc")
    Producer({**confluent_config(given({**OAUTH, **more})), "log_level": 0})
    for python in (kafka_python_config(config), aiokafka_config(config)):
        assert python["sasl_mechanism"] == "OAUTHBEARER"
        assert python["sasl_oauth_token_provider"].extensions() == {"logicalCluster": "lkc-1", "pool": "p 2"}
        assert "sasl_plain_password" not in python
    java, authority = java_properties(config), Path(ca).read_text().replace("\n", "\\n")
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
    assert java["sasl.login.callback.handler.class"].endswith(".OAuthBearerLoginCallbackHandler")
    assert java["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="it\\"" scope="kafka" extension_logicalCluster="lkc-1" extension_pool="p 2" '
        f'ssl.truststore.type="PEM" ssl.truststore.certificates="{authority}";'
    )


def test_both_names_of_the_mechanism() -> None:
    properties = {name: value for name, value in SASL.items() if name != "sasl.mechanisms"}
    assert confluent_config(given({**properties, "sasl.mechanism": "PLAIN"}))["sasl.mechanisms"] == "PLAIN"
    with pytest.raises(ConfigError, match="differs"):
        confluent_config(given({**SASL, "sasl.mechanism": "SCRAM-SHA-256"}))


@pytest.mark.parametrize(
    ("password", "quoted"),
    [
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ('"; evil required x="', r'"\"; evil required x=\""'),
        ("two\nlines\r", r'"two\nlines\r"'),
        ("it's;fine", '"it\'s;fine"'),
    ],
)
def test_a_password_can_not_break_out_of_the_jaas_line(password: str, quoted: str) -> None:
    jaas = java_properties(given({**SASL, "sasl.password": password}))["sasl.jaas.config"]
    assert jaas.endswith(f"password={quoted};")
    assert "\n" not in jaas


def test_tls_in_all_dialects(pem: Path) -> None:
    config = given(
        {
            "security.protocol": "ssl",
            "ssl.ca.location": str(pem / "cert.pem"),
            "ssl.certificate.location": str(pem / "cert.pem"),
            "ssl.key.location": str(pem / "locked.pem"),
            "ssl.key.password": "open sesame",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert confluent_config(config)["ssl.ca.location"] == str(pem / "cert.pem")
    context = kafka_python_config(config)["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    java = java_properties(config)
    assert java["ssl.truststore.type"] == java["ssl.keystore.type"] == "PEM"
    assert java["ssl.truststore.certificates"] == (pem / "cert.pem").read_text()
    assert "BEGIN CERTIFICATE" in java["ssl.keystore.certificate.chain"]
    assert "BEGIN ENCRYPTED PRIVATE KEY" in java["ssl.keystore.key"]
    assert java["ssl.key.password"] == "open sesame"
    assert java["ssl.endpoint.identification.algorithm"] == ""


def test_what_a_client_can_not_express_is_an_error(pem: Path) -> None:
    tls = {"security.protocol": "SSL", "enable.ssl.certificate.verification": False}
    assert kafka_python_config(given(tls))["ssl_context"].verify_mode is ssl.CERT_NONE
    with pytest.raises(ConfigError, match=r"certificate\.verification"):
        java_properties(given(tls))
    old = {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(pem / "cert.pem"),
        "ssl.key.location": str(pem / "old.pem"),
    }
    with pytest.raises(ConfigError, match="PKCS #8"):
        java_properties(given(old))
    newer = {**old, "ssl.key.location": str(pem / "pbes2.pem"), "ssl.key.password": "open sesame"}
    assert kafka_python_config(given(newer))["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match="PBE-SHA1-3DES"):
        java_properties(given(newer))
    with pytest.raises(ConfigError, match="can't be used"):
        kafka_python_config(given({**old, "ssl.key.location": str(pem / "locked.pem"), "ssl.key.password": "wrong"}))


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({**SASL, "sasl.mechanisms": "GSSAPI"}, "sasl.mechanisms can't be GSSAPI: "),
        ({**SASL, "sasl.mechanisms": "DIGEST"}, "sasl.mechanisms must be one of"),
        ({**SASL, "sasl.oauthbearer.scope": "x"}, "sasl.oauthbearer.scope"),
        ({**OAUTH, "sasl.username": "me"}, "sasl.username"),
        ({name: value for name, value in OAUTH.items() if "secret" not in name}, "client.secret is missing"),
        ({**OAUTH, "sasl.oauthbearer.method": "default"}, "method must be oidc"),
        ({**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "endpoint.url"),
        ({**OAUTH, "sasl.oauthbearer.extensions": "auth=x"}, "extensions"),
        ({**OAUTH, "https.ca.location": "/nowhere.pem"}, "https.ca.location"),
        ({name: value for name, value in SASL.items() if name != "sasl.password"}, "sasl.password"),
        ({"sasl.username": "me"}, "sasl.username"),
        ({"ssl.ca.location": "/x"}, "ssl.ca.location"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"}, "ssl.ca.location"),
        ({"security.protocol": "SSL", "ssl.key.location": "/x"}, "ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "http"}, "identification"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "maybe"}, "verification"),
        ({"socket.timeout.ms": "soon"}, "socket.timeout.ms"),
        ({"request.timeout.ms": 0}, "request.timeout.ms"),
    ],
)
def test_a_bad_value_is_named(properties: dict[str, Any], named: str) -> None:
    for dialect in (confluent_config, kafka_python_config, java_properties):
        with pytest.raises(ConfigError, match=named):
            dialect(given(properties))


def test_a_secret_is_never_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRKIT_TEST_SECRET", "do-not-print")
    config = given({**SASL, "sasl.mechanisms": "GSSAPI", "sasl.password": {"env": "DRKIT_TEST_SECRET"}})
    with pytest.raises(ConfigError) as caught:
        confluent_config(config)
    assert "do-not-print" not in str(caught.value)
    monkeypatch.delenv("DRKIT_TEST_SECRET")
    with pytest.raises(ConfigError, match="DRKIT_TEST_SECRET"):
        confluent_config(config)


def test_librdkafka_takes_every_property_that_is_offered(pem: Path) -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "it",
        "ssl.ca.location": str(pem / "cert.pem"),
        "ssl.certificate.location": str(pem / "cert.pem"),
        "ssl.key.location": str(pem / "locked.pem"),
        "ssl.key.password": "open sesame",
        "ssl.endpoint.identification.algorithm": "https",
        "enable.ssl.certificate.verification": True,
        "client.id": "drkit",
        "client.rack": "here",
        "socket.timeout.ms": 5000,
        "request.timeout.ms": 5000,
    }
    oauth = {*OAUTH, "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions", "https.ca.location"}
    assert {*properties, *oauth} == CLIENT_PROPERTIES
    config = {**confluent_config(given(properties)), "log_level": 0}
    Producer(config)
    consumer = Consumer({**config, "group.id": "x"})
    consumer.close()


def test_a_properties_file_says_exactly_that() -> None:
    text = java_properties_text({"a b": " leads", "k=": "c:\\x\n=#!", "ü": "ß€😀", "plain": "x y"})
    assert text.splitlines() == [
        "a\\ b=\\ leads",
        "k\\==c:\\\\x\\n=#!",
        "\\u00fc=\\u00df\\u20ac\\ud83d\\ude00",
        "plain=x y",
    ]
