"""Tokens by client credentials: kept, fetched ahead of time, and what is said where there are none."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError

from drkit.kafka.config.oauth_tokens import AiokafkaTokens, KafkaPythonTokens, Oidc, TokenSource
from drkit.model.errors import AuthenticationError, ConfigError, Unreachable
from tests.support.clusters.oauth import CLIENT, SECRET, Endpoint, Issuer, token_endpoint
from tests.support.clusters.tls import make_certificates
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture
def endpoint(issuer: Issuer) -> Iterator[Endpoint]:
    with token_endpoint(issuer, None) as endpoint:
        yield endpoint


@pytest.fixture
def oidc(endpoint: Endpoint) -> Oidc:
    return Oidc(endpoint.url, CLIENT, SECRET, scope="kafka other", extensions=(("cluster", "one"),))


def test_a_token_is_fetched_once_and_kept(endpoint: Endpoint, oidc: Oidc) -> None:
    source = TokenSource(oidc)
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(source.token())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(got)) == 1
    assert endpoint.asked == [{"grant_type": "client_credentials", "scope": "kafka other"}]


def test_the_next_one_is_fetched_before_it_ends_and_an_outage_is_borne_until_then(
    endpoint: Endpoint, oidc: Oidc, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(
        "drkit.kafka.config.oauth_tokens.time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time)
    )
    endpoint.life_seconds = 100
    source = TokenSource(oidc)
    first = source.token()
    clock[0] += 79
    assert source.token() == first
    assert len(endpoint.asked) == 1
    endpoint.answer = (503, {})
    clock[0] += 2
    assert source.token() == first, "the old one holds while the next is fetched"
    wait_until(lambda: len(endpoint.asked) == 2, what="the next token asked for")
    wait_until(lambda: source._next is not None and not source._next.is_alive(), what="the refusal to be taken in")
    endpoint.answer = None
    clock[0] += 6
    assert source.token() == first
    wait_until(lambda: source._token is not None and source._token.good_until > 1100, what="the next token")
    endpoint.answer = (503, {})
    clock[0] += 100
    with pytest.raises(Unreachable, match="answered 503"):
        source.token()


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (
            (401, {"error": "invalid_client", "error_description": "unknown"}),
            AuthenticationError,
            r"invalid_client unknown",
        ),
        ((302, {}), AuthenticationError, "answered 302"),
        ((200, {"token": "x"}), AuthenticationError, "without an access_token"),
        ((200, {"access_token": "a\nb", "expires_in": 9}), AuthenticationError, "without an access_token"),
        ((200, {"access_token": "opaque"}), AuthenticationError, "lifetime of its token"),
        ((500, {"error": "oops"}), Unreachable, "answered 500"),
    ],
)
def test_what_the_endpoint_refuses_is_told(
    answer: tuple[int, dict[str, str]], kind: type[Exception], said: str, endpoint: Endpoint, oidc: Oidc
) -> None:
    endpoint.answer = answer
    with pytest.raises(kind, match=said) as caught:
        TokenSource(oidc).token()
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(oidc)


def test_an_endpoint_that_is_gone_or_not_to_be_trusted(issuer: Issuer, tmp_path: Path) -> None:
    pem = make_certificates(tmp_path)
    with token_endpoint(issuer, pem) as endpoint:
        oidc = Oidc(endpoint.url, CLIENT, SECRET, ca=str(pem.ca))
        assert TokenSource(oidc).token().count(".") == 2
        with pytest.raises(AuthenticationError, match=r"issuer certificate.*https\.ca\.location"):
            TokenSource(replace(oidc, ca=str(pem.other_ca))).token()
        with pytest.raises(ConfigError, match=r"https\.ca\.location"):
            TokenSource(replace(oidc, ca=str(tmp_path / "none.pem"))).token()
    with pytest.raises(Unreachable, match="can't be reached"):
        TokenSource(oidc).token()


def test_what_the_libraries_are_given(endpoint: Endpoint, oidc: Oidc) -> None:
    ours, theirs = KafkaPythonTokens(oidc), AiokafkaTokens(oidc)
    assert asyncio.run(theirs.token()) == ours.token()
    assert len(endpoint.asked) == 1, "one source for both"
    assert ours.extensions() == theirs.extensions() == {"cluster": "one"}
    endpoint.answer = (401, {})
    with pytest.raises(KafkaConnectionError, match="answered 401"):
        asyncio.run(AiokafkaTokens(replace(oidc, scope="another")).token())
