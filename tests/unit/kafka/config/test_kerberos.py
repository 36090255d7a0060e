"""Why drkit refuses Kerberos: the installed clients are asked."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import confluent_kafka
import pytest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.config import kerberos
from drkit.kafka.config.client_config import confluent_config, kafka_python_config
from drkit.kafka.config.kerberos import why_not
from drkit.model.errors import ConfigError

INSTEAD = "Give drkit a listener with SCRAM-SHA-512, OAUTHBEARER or TLS certificates"


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    why_not.cache_clear()
    yield
    why_not.cache_clear()


def has(monkeypatch: pytest.MonkeyPatch, *, librdkafka: bool, gssapi: bool) -> None:
    """Clients that have it, or not."""

    def producer(_: dict[str, Any]) -> None:
        if not librdkafka:
            raise confluent_kafka.KafkaException(
                confluent_kafka.KafkaError(-186, "Failed to create producer: no GSSAPI")
            )

    monkeypatch.setattr(confluent_kafka, "Producer", producer)
    monkeypatch.setattr(kerberos, "find_spec", lambda name: name if gssapi else None)


def test_the_installed_librdkafka_says_itself_what_it_lacks() -> None:
    client = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"}
    cluster = ClusterConfig.model_validate({"bootstrap_servers": "c:1", "client": client})
    for dialect in (confluent_config, kafka_python_config):
        with pytest.raises(ConfigError) as caught:
            dialect(cluster)
        assert "sasl.mechanisms can't be GSSAPI: confluent-kafka" in caught.value.what
        said = f"(librdkafka {confluent_kafka.libversion()[0]}: No provider for SASL mechanism GSSAPI"
        assert said in caught.value.what
        assert ("the Python package gssapi, which is not installed" in caught.value.what) == (
            find_spec("gssapi") is None
        )
        assert caught.value.what.endswith(INSTEAD)


@pytest.mark.parametrize(
    ("librdkafka", "gssapi", "named"),
    [
        (False, True, ["installed without it (librdkafka "]),
        (True, False, ["package gssapi, which is not installed"]),
        (False, False, ["installed without it (librdkafka ", "package gssapi, which is not installed"]),
        (True, True, ["the installed clients have it, but drkit maps none of the properties of Kerberos"]),
    ],
)
def test_exactly_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, librdkafka: bool, gssapi: bool, named: list[str]
) -> None:
    has(monkeypatch, librdkafka=librdkafka, gssapi=gssapi)
    reasons = why_not().removeprefix("can't be GSSAPI: ").removesuffix(f". {INSTEAD}").split("; ")
    assert len(reasons) == len(named)
    assert all(each in reason for each, reason in zip(named, reasons, strict=True))
