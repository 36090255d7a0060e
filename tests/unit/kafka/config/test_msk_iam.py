"""Amazon MSK's IAM access control: the region, what each library is given, what is said where a token can't be made.

AWS's signer works offline, so its tokens are real; no MSK was asked. That brokers take such tokens through each
library is in tests/integration/mirror/clusters/test_tls.py, with an issuer of the tests' own.
"""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from drkit.config import ClusterConfig
from drkit.config.extras import MODULES
from drkit.kafka.config import oauth_tokens
from drkit.kafka.config.client_config import aiokafka_config, confluent_config, java_properties, kafka_python_config
from drkit.kafka.config.oauth_tokens import MskIam, region_of
from drkit.model.errors import AuthenticationError, ConfigError

IAM = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "AWS_MSK_IAM"}
SERVERS = (
    "b-1.estate.c1d2e3.c4.kafka.eu-west-1.amazonaws.com:9098,b-2.estate.c1d2e3.c4.kafka.eu-west-1.amazonaws.com:9098"
)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials that AWS's libraries find, and none of the machine's own."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIATESTONLY",
        "AWS_SECRET_ACCESS_KEY": "open-sesame",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def given(properties: dict[str, Any], servers: str = SERVERS) -> ClusterConfig:
    return ClusterConfig.model_validate({"bootstrap_servers": servers, "client": properties})


@pytest.mark.parametrize(
    ("servers", "environment", "region"),
    [
        (SERVERS, {}, "eu-west-1"),
        (SERVERS, {"AWS_REGION": "us-east-1"}, "eu-west-1"),
        ("boot-x.c1.kafka-serverless.ap-southeast-2.amazonaws.com:9098", {}, "ap-southeast-2"),
        ("b-1.x.c2.kafka.cn-north-1.amazonaws.com.cn:9098", {}, "cn-north-1"),
        ("kafka.internal:9098", {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-west-2"}, "us-east-1"),
        ("kafka.internal:9098", {"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
    ],
)
def test_the_region_is_in_the_names_of_brokers_else_in_the_environment(
    servers: str, environment: dict[str, str], region: str
) -> None:
    assert region_of(servers, environment) == region


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("kafka.internal:9098", "region is unknown"),
        ("b-1.x.c2.kafka.eu-west-1.amazonaws.com:1,b-1.y.c2.kafka.eu-west-2.amazonaws.com:1", "eu-west-1, eu-west-2"),
    ],
)
def test_a_region_that_nobody_says_or_two(servers: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        region_of(servers, {})
    assert caught.value.remedy


def test_the_signer_makes_a_token_for_the_region_and_its_end_is_known() -> None:
    token = MskIam("eu-west-1").fetch()
    padded = token.text + "=" * (-len(token.text) % 4)
    url = base64.urlsafe_b64decode(padded).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/")
    assert "AKIATESTONLY" in url
    assert "open-sesame" not in url + repr(token)
    assert 600 < token.good_until - time.monotonic() <= 900
    assert token.fresh_until < token.good_until


def test_what_each_library_is_given() -> None:
    config = given(IAM)
    plain = confluent_config(config, group_id="g")
    assert plain["sasl.mechanisms"] == "OAUTHBEARER"
    text, ends, principal, extensions = plain["oauth_cb"]("")
    assert (principal, extensions) == ("", {})
    assert 600 < ends - time.time() <= 900
    ours, theirs = kafka_python_config(config), aiokafka_config(config)
    assert ours["sasl_mechanism"] == theirs["sasl_mechanism"] == "OAUTHBEARER"
    assert ours["sasl_oauth_token_provider"].token() == text, "one source for all"
    assert asyncio.run(theirs["sasl_oauth_token_provider"].token()) == text
    java = java_properties(config)
    assert java["sasl.mechanism"] == "AWS_MSK_IAM"
    assert "IAMLoginModule" in java["sasl.jaas.config"]
    consumer = Consumer({**plain, "log_level": 0})  # librdkafka takes it all
    consumer.close()


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({**IAM, "security.protocol": "SASL_PLAINTEXT"}, "security.protocol must be SASL_SSL"),
        ({**IAM, "sasl.username": "me"}, "sasl.username is given, but sasl.mechanisms is AWS_MSK_IAM"),
        ({**IAM, "sasl.oauthbearer.scope": "x"}, "sasl.oauthbearer.scope is given"),
    ],
)
def test_what_does_not_go_with_it_is_named(properties: dict[str, Any], named: str) -> None:
    for dialect in (confluent_config, kafka_python_config, aiokafka_config, java_properties):
        with pytest.raises(ConfigError, match=named):
            dialect(given(properties))


def test_without_credentials_it_is_said_where_they_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AuthenticationError, match="no token for MSK in eu-west-1") as caught:
        MskIam("eu-west-1").fetch()
    assert "AWS_ACCESS_KEY_ID" in (caught.value.remedy or "")


def test_without_the_signer_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drkit.config.extras._is_installed", lambda name: name not in MODULES[oauth_tokens.Extra.MSK])
    with pytest.raises(ConfigError, match="the extra msk brings them") as caught:
        confluent_config(given(IAM))
    assert "drkit[msk]" in (caught.value.remedy or "")
