"""`[[directory]]` and `[hooks]`: where clients find the active cluster, and the commands that a run calls.

A directory is a URL or a command; it holds one entry, that of one link. See docs/directory.md.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from drkit.config.schema.base import Secret, Strict

KINDS = {
    "file": "file:///path",
    "dns": "dns://server[:53]/zone/name",
    "consul": "consul://host[:8500]/key (consul+https:// with TLS)",
    "etcd": "etcd://host[:2379]/key (etcd+https:// with TLS)",
}
"""The kinds of URL, each with its form."""

_PORTS = {"file": 0, "dns": 53, "consul": 8500, "etcd": 2379}
_ONLY = {
    "tsig_name": {"dns"},
    "tsig_secret": {"dns"},
    "tsig_algorithm": {"dns"},
    "ttl": {"dns"},
    "token": {"consul"},
    "user": {"etcd"},
    "password": {"etcd"},
    "ca_file": {"consul", "etcd"},
}
TSIG_ALGORITHMS = ("hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha1")
_ZONE_AND_NAME = 2


class DirectoryAddress(NamedTuple):
    """The parts of a directory's URL. `host` and `port` are empty and 0 for a file; `tls`: HTTPS.

    `path`: an absolute path (file), `zone/name` (DNS), a key (Consul, etcd).
    """

    kind: str
    host: str
    port: int
    path: str
    tls: bool


def parse_address(url: str) -> DirectoryAddress:
    """Read a directory's URL.

    Raises:
        ValueError: it isn't one; the message says what is expected.
    """
    known = ", ".join(KINDS.values())
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not a URL ({error}); known are: {known}") from None
    kind, _, security = parts.scheme.partition("+")
    if kind not in KINDS or security not in {"", "https"} or (security and kind in {"file", "dns"}):
        raise ValueError(f"{parts.scheme!r} is not a kind of directory; known are: {known}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a directory's URL holds no user or password: give `user`, `password` or `token` beside it")
    if parts.query or parts.fragment:
        raise ValueError(f"a directory's URL has no ? or #; expected {KINDS[kind]}")
    path = unquote(parts.path)
    if kind == "file":
        if parts.netloc or not path.startswith("/") or path.endswith("/"):
            raise ValueError(f"{url!r} is not an absolute path of a file; expected {KINDS[kind]}")
        return DirectoryAddress(kind, "", 0, path, tls=False)
    path = path.strip("/")
    if not parts.hostname or not path:
        raise ValueError(f"{url!r} names no {'server' if not parts.hostname else 'entry'}; expected {KINDS[kind]}")
    if kind == "dns" and (
        path.count("/") + 1 != _ZONE_AND_NAME or not all(_dns_name(part) for part in path.split("/"))
    ):
        raise ValueError(f"{url!r} names no zone and name in it; expected {KINDS[kind]}")
    return DirectoryAddress(kind, parts.hostname, port or _PORTS[kind], path, tls=bool(security))


def _dns_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?", text) is not None


class DirectoryConfig(Strict):
    """One `[[directory]]`: `url` or `command`. `link`: the link of its entry, if several links are configured."""

    url: str | None = None
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    link: str | None = None
    timeout_seconds: float = Field(default=5.0, gt=0, le=300)
    ttl: int = Field(default=30, ge=0, le=86400)
    tsig_name: str | None = None
    tsig_secret: Secret | None = None
    tsig_algorithm: str = "hmac-sha256"
    token: Secret | None = None
    user: str | None = None
    password: Secret | None = None
    ca_file: Path | None = None

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str | None) -> str | None:
        if url is not None:
            parse_address(url)
        return url

    @field_validator("tsig_algorithm")
    @classmethod
    def _an_algorithm(cls, value: str) -> str:
        if value not in TSIG_ALGORITHMS:
            raise ValueError(f"{value!r} is not known; known are: {', '.join(TSIG_ALGORITHMS)}")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("a directory is either a `url` or a `command`")
        kind = "command" if self.url is None else parse_address(self.url).kind
        for key, kinds in _ONLY.items():
            if key in self.model_fields_set and kind not in kinds:
                raise ValueError(f"{key} has no meaning for a {kind} directory: remove it")
        for one, other in (("tsig_name", "tsig_secret"), ("user", "password")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"{one} and {other} belong together: give both")
        if self.tsig_secret is not None:
            self._check_key()
        return self

    def _check_key(self) -> None:
        """Check a key that is in the file itself; one that is stored elsewhere is checked when it is used."""
        plain = getattr(self.tsig_secret, "get_secret_value", None)
        if plain is None:
            return
        try:
            b64decode(plain(), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("tsig_secret is not base64, the form of a TSIG key") from None

    @property
    def name(self) -> str:
        """Its name in messages: the URL, or the command. Holds no secret."""
        return self.url if self.url is not None else f"command {(self.command or ('',))[0]}"

    def secrets(self) -> dict[str, Secret]:
        """The secrets by key, without those that aren't set."""
        given = {"tsig_secret": self.tsig_secret, "token": self.token, "password": self.password}
        return {key: value for key, value in given.items() if value is not None}


class HooksConfig(Strict):
    """`[hooks]`: commands (lists of arguments; no shell) that a run calls, in order.

    Pre hooks run before the first change; a failed one stops the run. Post hooks run after the verification; a failed
    one is reported. `audit_alert` and `audit_alert_url` (a webhook) get the findings of a continuous audit; a failed
    one is reported.
    """

    pre_failover: tuple[tuple[str, ...], ...] = ()
    post_failover: tuple[tuple[str, ...], ...] = ()
    pre_failback: tuple[tuple[str, ...], ...] = ()
    post_failback: tuple[tuple[str, ...], ...] = ()
    audit_alert: tuple[tuple[str, ...], ...] = ()
    audit_alert_url: Secret | None = None
    timeout_seconds: float = Field(default=60.0, gt=0, le=86400)

    @field_validator("audit_alert_url")
    @classmethod
    def _a_webhook(cls, value: Secret | None) -> Secret | None:
        """Check a URL that is in the file itself; one that is stored elsewhere is checked once it is known."""
        plain = getattr(value, "get_secret_value", None)
        if plain is not None:
            check_webhook(plain())
        return value

    @field_validator("pre_failover", "post_failover", "pre_failback", "post_failback", "audit_alert")
    @classmethod
    def _a_program(cls, commands: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if any(not command or not command[0] for command in commands):
            raise ValueError('a hook is a list that begins with a program, such as ["/usr/local/bin/notify", "--now"]')
        return commands


def check_webhook(url: str) -> None:
    """Raise ValueError if this is not the URL of a webhook. The message doesn't repeat it: it may hold a token."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("a webhook is a URL of the form https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a webhook's URL holds no user or password; a token in its path or query is accepted")
