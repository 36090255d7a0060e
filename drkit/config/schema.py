"""The schema of `drkit.toml`, as the outside contract states it (docs/contract.md).

Unknown keys and bad values are errors; nothing is ignored. `load.py` turns pydantic's findings into
`ConfigError`s that name file, key and what was expected.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from drkit.model.topology import Link, LinkId, OffsetMode, TopicPolicy

CLIENT_PROPERTIES = frozenset(
    {
        "security.protocol",
        "sasl.mechanisms",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "client.id",
        "socket.timeout.ms",
        "request.timeout.ms",
    }
)
"""The librdkafka properties that drkit maps to every client it uses."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SecretFromEnv(_Strict):
    """A secret held in an environment variable: `{ env = "NAME" }`."""

    env: str

    def reveal(self) -> str:
        """The secret; raises ValueError naming the variable where it isn't set."""
        value = os.environ.get(self.env)
        if value is None:
            raise ValueError(f"environment variable {self.env} is not set")
        return value


class SecretFromFile(_Strict):
    """A secret held in a file (one trailing newline is dropped): `{ file = "PATH" }`."""

    file: Path

    def reveal(self) -> str:
        """The secret; raises ValueError naming the file where it can't be read."""
        try:
            return self.file.read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"secret file {self.file} can't be read: {error}") from error


Secret = SecretStr | SecretFromEnv | SecretFromFile


def reveal(value: Secret) -> str:
    """The plain text of a secret, however it is given."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value.reveal()


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_regex)]


class ClusterConfig(_Strict):
    """One Kafka cluster."""

    bootstrap_servers: str = Field(min_length=1)
    client: dict[str, Secret] = Field(default_factory=dict)

    @field_validator("client", mode="before")
    @classmethod
    def _plain_scalars(cls, value: object) -> object:
        """TOML booleans and integers are as good as their text, as librdkafka reads them."""
        if not isinstance(value, dict):
            return value
        return {k: str(v).lower() if isinstance(v, bool | int | float) else v for k, v in value.items()}

    @field_validator("client")
    @classmethod
    def _known(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        for name in value:
            if name not in CLIENT_PROPERTIES:
                known = ", ".join(sorted(CLIENT_PROPERTIES))
                raise ValueError(f"{name!r} can't be mapped to every client drkit uses; known are: {known}")
        return value

    @field_validator("bootstrap_servers")
    @classmethod
    def _host_port(cls, value: str) -> str:
        for server in value.split(","):
            if not re.fullmatch(r"\s*(\[[0-9a-fA-F:.]+\]|[^\s:,]+):\d{1,5}\s*", server):
                raise ValueError(f"{server.strip()!r} is not host:port")
        return value

    def properties(self) -> dict[str, str]:
        """Client properties by their librdkafka names, secrets revealed. Never log the result."""
        return {name: reveal(value) for name, value in self.client.items()}


class StoreConfig(_Strict):
    """Where drkit remembers. `url`: sqlite:///PATH or cassandra://user:password@h1,h2:9042/keyspace?dc=…"""

    url: SecretStr | SecretFromEnv | SecretFromFile = SecretStr("sqlite:///drkit.db")

    @property
    def plain_url(self) -> str:
        """The URL with any password in it. Never log it."""
        return reveal(self.url)


class LinkConfig(_Strict):
    """One direction of mirroring."""

    source: str
    target: str
    topics: tuple[Pattern, ...] = (".*",)
    exclude_topics: tuple[Pattern, ...] = ()
    groups: tuple[Pattern, ...] = (".*",)
    exclude_groups: tuple[Pattern, ...] = ()
    offsets: OffsetMode = OffsetMode.PRESERVE
    policy: TopicPolicy = TopicPolicy.IDENTITY

    @model_validator(mode="after")
    def _two_clusters(self) -> Self:
        if self.source == self.target:
            raise ValueError("source and target are the same cluster")
        return self

    def link(self) -> Link:
        """The link as the rest of drkit knows it."""
        return Link(
            id=LinkId(self.source, self.target),
            topics=self.topics,
            exclude_topics=self.exclude_topics,
            groups=self.groups,
            exclude_groups=self.exclude_groups,
            offsets=self.offsets,
            policy=self.policy,
        )


class Objectives(_Strict):
    """What a failover is measured against; None: no objective set."""

    rpo_records: int | None = Field(default=None, ge=0)
    rpo_seconds: float | None = Field(default=None, ge=0)
    rto_seconds: float | None = Field(default=None, ge=0)


class Config(_Strict):
    """All of `drkit.toml`."""

    clusters: dict[str, ClusterConfig]
    store: StoreConfig = StoreConfig()
    links: tuple[LinkConfig, ...] = ()
    objectives: Objectives = Objectives()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        seen: set[tuple[str, str]] = set()
        for number, link in enumerate(self.links):
            for role, alias in (("source", link.source), ("target", link.target)):
                if alias not in self.clusters:
                    known = ", ".join(sorted(self.clusters)) or "none"
                    raise ValueError(f"links.{number}.{role}: no cluster {alias!r} is configured (known: {known})")
            if (link.source, link.target) in seen:
                raise ValueError(f"links.{number}: the link {link.source}->{link.target} is configured twice")
            seen.add((link.source, link.target))
        return self
