"""Access tokens for the clients that don't fetch them themselves: OAuth 2 by client credentials (RFC 6749, 4.4).

librdkafka and Java's client ask a token endpoint on their own; kafka-python and aiokafka are given a
provider from here. One `TokenSource` for each endpoint and client serves the whole process: it keeps a token
until it expires, and a thread fetches the next one while the old one is valid. `MskIam` has tokens of
another origin.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiokafka.abc import AbstractTokenProvider as AiokafkaProvider
from aiokafka.errors import KafkaConnectionError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider

from drkit.config.extras import Extra, require
from drkit.kafka.config.client_config import MSK_IAM
from drkit.model.errors import AuthenticationError, ConfigError, DrkitError, Unreachable

_FETCH_SECONDS = 10.0
_FRESH = 0.8  # of a token's life; then the next one is fetched
_RETRY_SECONDS = 5.0
_MARGIN_SECONDS = 5.0  # a token this close to its end isn't used
_CLIENT_FAULTS = frozenset({400, 401, 403, 404, 405, 415})
_LONGEST_ANSWER = 1 << 20
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Oidc:
    """Where tokens come from, and for whom. Never log it."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    ca: str | None = None

    def fetch(self) -> Token:
        """Ask the endpoint.

        Raises:
            AuthenticationError: the endpoint refused, or returned no token.
            Unreachable: it didn't answer, or failed.
        """
        return _fetch(self)


@dataclass(frozen=True, slots=True)
class Token:
    """A token, the time at which the next one is fetched, and the time at which it ends (`time.monotonic`)."""

    text: str = field(repr=False)
    fresh_until: float
    good_until: float


def kept_for(text: str, life_seconds: float, asked: float) -> Token:
    """A token that was requested at `asked` (`time.monotonic`), and its lifetime from then."""
    margin = min(_MARGIN_SECONDS, life_seconds / 10)
    return Token(text, asked + life_seconds * _FRESH, asked + life_seconds - margin)


class TokenSettings(Protocol):
    """Where tokens come from. Hashable: one source serves all clients with equal settings."""

    @property
    def extensions(self) -> tuple[tuple[str, str], ...]:
        """SASL extensions (KIP-342)."""

    def fetch(self) -> Token:
        """A new token; raises AuthenticationError or Unreachable."""


class TokenSource:
    """Tokens of one client of one origin. Shared by threads."""

    def __init__(self, settings: TokenSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # held while fetching because there is no token
        self._token: Token | None = None
        self._next: threading.Thread | None = None
        self._not_before = 0.0

    def token(self) -> str:
        """A token that is valid for a while; waits for its origin only if none is cached.

        Raises:
            AuthenticationError: it was refused, or the response has no token.
            Unreachable: no response.
        """
        return self.whole().text

    def whole(self) -> Token:
        """The same, with its lifetime."""
        token = self._good()
        if token is None:
            with self._lock:
                token = self._good()
                if token is None:
                    token = self._token = self._settings.fetch()
        elif time.monotonic() > token.fresh_until:
            self._fetch_ahead()
        return token

    def _good(self) -> Token | None:
        token = self._token
        return token if token is not None and time.monotonic() < token.good_until else None

    def _fetch_ahead(self) -> None:
        with self._lock:
            busy = self._next is not None and self._next.is_alive()
            if busy or time.monotonic() < self._not_before:
                return
            self._not_before = time.monotonic() + _RETRY_SECONDS
            self._next = threading.Thread(target=self._renew, name="drkit-token", daemon=True)
            self._next.start()

    def _renew(self) -> None:
        try:
            self._token = self._settings.fetch()
        except DrkitError:
            return  # retried until the old one ends; then callers get the error


_sources: dict[TokenSettings, TokenSource] = {}
_sources_lock = threading.Lock()


def token_source(settings: TokenSettings) -> TokenSource:
    """The process's source for these settings."""
    with _sources_lock:
        return _sources.setdefault(settings, TokenSource(settings))


def librdkafka_token(settings: TokenSettings) -> tuple[str, float, str, dict[str, str]]:
    """The tuple of librdkafka's callback: a token, its end (seconds since 1970), the principal, SASL extensions."""
    token = token_source(settings).whole()
    ends = time.time() + token.good_until - time.monotonic()
    return token.text, ends, "", dict(settings.extensions)


class KafkaPythonTokens(KafkaPythonProvider):  # type: ignore[misc]  # untyped base
    """For kafka-python. Ask for a token before connecting: its I/O thread would wait for the endpoint otherwise."""

    def __init__(self, settings: TokenSettings) -> None:
        super().__init__()
        self._settings = settings

    def token(self) -> str:
        """As `TokenSource.token`."""
        return token_source(self._settings).token()

    def extensions(self) -> dict[str, str]:
        """SASL extensions (KIP-342)."""
        return dict(self._settings.extensions)


class AiokafkaTokens(AiokafkaProvider):  # type: ignore[misc]  # untyped base
    """For aiokafka: a failure is one of its own errors, after which it is asked again."""

    def __init__(self, settings: TokenSettings) -> None:
        super().__init__()
        self._settings = settings

    async def token(self) -> str:
        """A token; fetched on a thread, so the event loop continues."""
        try:
            return await asyncio.to_thread(token_source(self._settings).token)
        except DrkitError as error:
            raise KafkaConnectionError(str(error)) from None

    def extensions(self) -> dict[str, str]:
        """SASL extensions (KIP-342)."""
        return dict(self._settings.extensions)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: the secret goes only to the configured endpoint."""

    def redirect_request(self, *_: Any) -> None:
        """Don't."""


def _fetch(oidc: Oidc) -> Token:
    asked = time.monotonic()
    form = {"grant_type": "client_credentials"} | ({"scope": oidc.scope} if oidc.scope else {})
    login = f"{urllib.parse.quote_plus(oidc.client_id)}:{urllib.parse.quote_plus(oidc.client_secret)}"
    request = urllib.request.Request(  # noqa: S310 - its scheme was checked when it was configured
        oidc.url,
        urllib.parse.urlencode(form).encode(),
        {"Accept": "application/json", "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"},
    )
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if oidc.url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_context(oidc.ca)))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=_FETCH_SECONDS) as answer:
            body: bytes = answer.read(_LONGEST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(oidc, error) from None
    except (OSError, ValueError) as error:
        raise _unanswered(oidc, error) from None
    return _parse(oidc, body, asked)


def _context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigError(f"client property https.ca.location can't be used: {error}") from None


def _refused(oidc: Oidc, error: urllib.error.HTTPError) -> DrkitError:
    """The error for a status other than 2xx. Shows only OAuth's own fields of the response."""
    try:
        said = json.loads(error.read(_LONGEST_ANSWER))
        why = " ".join(str(said[key]) for key in ("error", "error_description") if said.get(key))[:_SHOWN]
    except (ValueError, AttributeError, OSError):
        why = ""
    what = f"the token endpoint {oidc.url} answered {error.code}" + (f" ({why})" if why else "")
    if error.code in _CLIENT_FAULTS or error.code // 100 == 3:  # noqa: PLR2004 - a redirection
        return AuthenticationError(
            f"{what} to client {oidc.client_id}",
            remedy="Check sasl.oauthbearer.token.endpoint.url, .client.id, .client.secret and .scope",
        )
    return Unreachable(what, remedy="Try again; see the endpoint's own log")


def _unanswered(oidc: Oidc, error: Exception) -> DrkitError:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return AuthenticationError(
            f"the certificate of the token endpoint {oidc.url} can't be trusted: {reason.verify_message}",
            remedy="Name the authority that signed it in https.ca.location",
        )
    return Unreachable(f"the token endpoint {oidc.url} can't be reached: {reason}", remedy="Check that it runs")


def _parse(oidc: Oidc, body: bytes, asked: float) -> Token:
    """The token of an answer, and its end: the earlier of `expires_in` and the claim `exp`."""
    try:
        answer: Mapping[str, Any] = json.loads(body)
        text = answer["access_token"]
        lives = [float(answer["expires_in"])] if answer.get("expires_in") is not None else []
    except (ValueError, KeyError, TypeError):
        text, lives = None, []
    if not isinstance(text, str) or not text or any(ord(char) <= ord(" ") for char in text):
        raise AuthenticationError(
            f"the token endpoint {oidc.url} answered without an access_token",
            remedy="Check sasl.oauthbearer.token.endpoint.url: it is the endpoint's own, not the issuer's",
        )
    ends = _claim_exp(text)
    if ends is not None:
        lives.append(ends - time.time())
    if not lives:
        raise AuthenticationError(
            f"the token endpoint {oidc.url} doesn't return the lifetime of its token",
            remedy="Configure it to return expires_in, or tokens that are JWTs with a claim exp",
        )
    return kept_for(text, min(lives), asked)


def _claim_exp(token: str) -> float | None:
    """The claim `exp` of a JWT; None if it isn't a JWT with one."""
    try:
        middle = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["exp"])
    except (IndexError, ValueError, KeyError, TypeError, binascii.Error):
        return None


_BROKER = re.compile(r"[.]kafka(?:-serverless)?[.]([a-z0-9-]+)[.]amazonaws[.]com(?:[.]cn)?$")
_REGION = re.compile(r"[a-z0-9-]{4,40}")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class MskIam:
    """Tokens for the brokers of a region."""

    region: str
    extensions: tuple[tuple[str, str], ...] = ()

    def fetch(self) -> Token:
        """Sign a new token; asks AWS only if it has to look up the machine's role.

        Raises:
            ExtraMissing: the signer isn't installed.
            AuthenticationError: there are no credentials, or they can't be used.
        """
        require(Extra.MSK, f"sasl.mechanisms {MSK_IAM}")
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra, and slow to import
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above

        asked = time.monotonic()
        try:
            text, expires_ms = MSKAuthTokenProvider.generate_auth_token(self.region)
        except (BotoCoreError, ClientError, ValueError, AttributeError, OSError) as error:
            # without credentials the signer reads an attribute of None
            raise AuthenticationError(
                f"no token for MSK in {self.region} can be signed: {_said(error)}",
                remedy="Give drkit AWS credentials: a role of the machine, AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY",
            ) from None
        return kept_for(text, expires_ms / 1000 - time.time(), asked)


def region_of(bootstrap_servers: str, environment: Mapping[str, str] = os.environ) -> str:
    """The AWS region of a cluster: in the names of its brokers, else in the environment.

    Raises:
        ConfigError: neither names it, or the brokers are in several regions.
    """
    hosts = [server.strip().rpartition(":")[0] for server in bootstrap_servers.split(",")]
    named = {found[1] for found in map(_BROKER.search, hosts) if found is not None}
    if len(named) > 1:
        raise ConfigError(
            f"the brokers of bootstrap_servers are in several AWS regions: {', '.join(sorted(named))}",
            remedy="Name brokers of one cluster",
        )
    given = [environment[name] for name in _REGION_VARIABLES if environment.get(name)]
    region = next(iter([*named, *given]), "")
    if not _REGION.fullmatch(region):
        raise ConfigError(
            f"client property sasl.mechanisms is {MSK_IAM}, and the AWS region is unknown: no broker is named "
            "*.kafka.REGION.amazonaws.com",
            remedy="Name the brokers as MSK does, or set AWS_REGION",
        )
    return region


def _said(error: Exception) -> str:
    if isinstance(error, AttributeError):
        return "there are no AWS credentials"
    return " ".join(str(error).split()) or type(error).__name__
