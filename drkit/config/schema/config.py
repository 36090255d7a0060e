"""The schema of `drkit.toml`, according to the outside contract (docs/contract.md); addresses of directories and hooks
are in `directory.py`.

Unknown keys and bad values are errors; nothing is ignored. `load.py` turns pydantic's findings into
`ConfigError`s with the file, the key and the expected value.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr, field_validator, model_validator

from drkit.config.schema.base import (
    CallableName,
    Pattern,
    Secret,
    SecretFromEnv,
    SecretFromFile,
    Strict,
    reveal,
    scalars_as_text,
)
from drkit.config.schema.directory import DirectoryConfig, HooksConfig
from drkit.model.errors import ConfigError
from drkit.model.topic_policy import FOLLOWED, OPTIONAL, AclMode, Deletions, TopicOverride, TopicSettings
from drkit.model.topics.cycles import clash_error, cycle_error, find_clash, find_cycle, names_to_try, sharing
from drkit.model.topics.standby import STANDBY
from drkit.model.topology import (
    DEFAULT_BUFFER_BYTES,
    CatchUpPolicy,
    Isolation,
    Link,
    LinkId,
    OffsetMode,
    TimelinePolicy,
    TopicPolicy,
    is_internal,
)

_NAME = re.compile(r"[a-z][a-z0-9.]*")
_FIXED = "drkit sets it on a standby; with another value the target would refuse records or change their timestamps"
_NOT_OVERRIDDEN = {
    **dict.fromkeys(STANDBY, f"{_FIXED}; the switch sets the source's value"),
    "cleanup.policy": "a standby with another cleanup policy than its source loses records that the source still has",
    "leader.replication.throttled.replicas": "it belongs to a reassignment on the target",
    "follower.replication.throttled.replicas": "it belongs to a reassignment on the target",
}


def _followable(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if pattern in STANDBY:
            raise ValueError(f"{pattern!r} can't be a following setting: {_FIXED}")
        if not any(re.fullmatch(pattern, name) for name in (*FOLLOWED, *OPTIONAL)):
            known = ", ".join((*FOLLOWED, *OPTIONAL))
            raise ValueError(f"{pattern!r} matches no setting that can follow; those are: {known}")
    return patterns


def _overridable(settings: dict[str, str]) -> dict[str, str]:
    for name, value in settings.items():
        if name in _NOT_OVERRIDDEN:
            raise ValueError(f"{name!r} can't be overridden: {_NOT_OVERRIDDEN[name]}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a topic setting, such as 'retention.ms'")
        if not value.strip():
            raise ValueError(f"{name!r} has no value")
    return settings


class TopicOverrideConfig(Strict):
    """One `[[links.topic_settings.topics]]`: settings of the matching topics."""

    match: Pattern
    settings: dict[str, str] = Field(default_factory=dict)
    replication_factor: int | None = Field(default=None, ge=1, le=32767)

    _text = field_validator("settings", mode="before")(scalars_as_text)
    _allowed = field_validator("settings")(_overridable)


class TopicSettingsConfig(Strict):
    """`[links.topic_settings]`."""

    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    overrides: dict[str, str] = Field(default_factory=dict)
    replication_factor: int | None = Field(default=None, ge=1, le=32767)
    topics: tuple[TopicOverrideConfig, ...] = ()

    _chosen = field_validator("include", "exclude")(_followable)
    _text = field_validator("overrides", mode="before")(scalars_as_text)
    _allowed = field_validator("overrides")(_overridable)

    def policy(self) -> TopicSettings:
        """The settings, in the model's type."""
        return TopicSettings(
            include=self.include,
            exclude=self.exclude,
            overrides=tuple(self.overrides.items()),
            replication_factor=self.replication_factor,
            topics=tuple(
                TopicOverride(each.match, tuple(each.settings.items()), each.replication_factor) for each in self.topics
            ),
        )


_Command = Annotated[tuple[str, ...], Field(min_length=1)]

_TWO = 2


class FenceConfig(Strict):
    """`[clusters.X.fence]`: without `command`, the fence consists of ACLs, if the cluster has an authorizer.

    `command`, `unfence`: programs with their arguments that keep clients out, and admit them again. drkit may start
    each again after an interruption, so they must be idempotent.
    `client`, `bootstrap_servers`: the properties of an ordinary writer (librdkafka names, as in a cluster's `client`),
    with which drkit proves that writes are denied. Without them it tries with its own client, which proves nothing if
    drkit is a super user.
    """

    command: _Command | None = None
    unfence: _Command | None = None
    timeout_seconds: float = Field(default=60.0, gt=0, le=3600)
    bootstrap_servers: str | None = None
    client: dict[str, Secret] | None = None

    @model_validator(mode="after")
    def _both_ways(self) -> Self:
        if (self.command is None) != (self.unfence is None):
            there, missing = ("command", "unfence") if self.unfence is None else ("unfence", "command")
            raise ValueError(
                f"`{there}` is given without `{missing}`: a cancelled or rolled-back run lifts the fence again"
            )
        return self


class OnFailure(StrEnum):
    """What a failed wave means for those after it."""

    STOP = "stop"
    CONTINUE = "continue"


class WaveConfig(Strict):
    """One `[[waves]]`: the groups that move together.

    `links`, `groups`, `topics`: patterns of whole names; a group belongs to the first wave that matches its link, its
    name and one of the topics that it reads. `after`: commands (no shell), called in order once all groups of the wave
    are on the target; a failed one fails the wave. `pause_seconds`: the pause after that. `max_loss_records`,
    `max_loss_seconds`: the most that may be lost, on each link, of the topics that the wave's groups read.
    """

    name: str = Field(min_length=1)
    links: tuple[Pattern, ...] = (".*",)
    groups: tuple[Pattern, ...] = (".*",)
    topics: tuple[Pattern, ...] = (".*",)
    after: tuple[tuple[str, ...], ...] = ()
    pause_seconds: float = Field(default=0.0, ge=0, le=86400)
    timeout_seconds: float = Field(default=60.0, gt=0, le=86400)
    on_failure: OnFailure = OnFailure.STOP
    max_loss_records: int | None = Field(default=None, ge=0)
    max_loss_seconds: float | None = Field(default=None, ge=0)


class ApprovalsConfig(Strict):
    """`[approvals]`: drkit executes a plan only with the signatures of two of these operators.

    `operators`: the public Ed25519 key (PEM) of each, by name. `emergency`: whether one operator may act alone with
    `--emergency REASON`, which is journaled.
    """

    operators: dict[str, Path] = Field(min_length=_TWO)
    emergency: bool = True

    @field_validator("operators")
    @classmethod
    def _different(cls, value: dict[str, Path]) -> dict[str, Path]:
        if len(set(value.values())) < len(value):
            raise ValueError("two operators have one key: give each a key of their own")
        return value


RECORD_KEY = "key"
"""Means the record's own key instead of a path in its value."""


def _place(text: str) -> str:
    if text != RECORD_KEY and not re.fullmatch(r"\$((\.[A-Za-z_][\w-]*)|(\['[^']+'\])|(\[\d+\]))+", text):
        raise ValueError(
            f'{text!r} is neither "key" (the record\'s key) nor a JSON path such as $.order_id or $.a.b[0]'
        )
    return text


Place = Annotated[str, AfterValidator(_place)]


class ForeignKeyConfig(Strict):
    """Each record of `child` refers to one of `parent`: its `key` equals the other's `parent_key`.

    `decoder`, `parent_decoder`: callables that convert the bytes of a value that isn't JSON to what JSON can hold.
    """

    child: str = Field(min_length=1)
    parent: str = Field(min_length=1)
    key: Place
    parent_key: Place = RECORD_KEY
    decoder: CallableName | None = None
    parent_decoder: CallableName | None = None

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        if self.child == self.parent:
            raise ValueError(f"child and parent are both {self.child!r}; a foreign key is between two topics")
        return self


CLIENT_PROPERTIES = frozenset(
    {
        "security.protocol",
        "sasl.mechanisms",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "https.ca.location",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "client.id",
        "client.rack",
        "socket.timeout.ms",
        "request.timeout.ms",
    }
)
"""The librdkafka properties that drkit maps to every client it uses."""

SECRET_PROPERTIES = frozenset({"sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password"})
"""The properties whose values drkit never shows."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ServeConfig(Strict):
    """`[serve]`: the page of `drkit serve`.

    `listen`: HOST:PORT. `token`: readers must send it. `certificate`, `key`: the server's, for TLS (PEM).
    `client_ca`: the CA that must have signed the readers' certificates (PEM). Any address but loopback needs `token`
    or `client_ca`.
    """

    listen: str = Field(default="127.0.0.1:9404", min_length=1)
    token: Secret | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` belong together: give both")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("`client_ca` needs `certificate` and `key`: without TLS readers have no certificate")
        return self

    @property
    def plain_token(self) -> str | None:
        """The token. Never log it. Raises ValueError if its variable or file can't be read."""
        return None if self.token is None else reveal(self.token)


def _topic_name(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) or name in {".", ".."} or is_internal(name):
        raise ValueError(f"{name!r} is not a valid name of a mirrored topic")
    return name


TopicName = Annotated[str, AfterValidator(_topic_name)]


def _alias(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", name):
        raise ValueError(f"{name!r} is not a valid alias of a cluster: letters, digits, ., _ and -, at most 100")
    return name


Alias = Annotated[str, AfterValidator(_alias)]

_HIGHEST_PORT = 65535
_LONGEST_LABEL = 63


def _labels(host: str) -> list[str]:
    return host.removesuffix(".").split(".")


class ClusterConfig(Strict):
    """One Kafka cluster. `drill`: drills may inject faults there."""

    bootstrap_servers: str = Field(min_length=1)
    drill: bool = False
    client: dict[str, Secret] = Field(default_factory=dict)
    fence: FenceConfig = FenceConfig()
    _place: str = PrivateAttr(default="")

    _text = field_validator("client", mode="before")(scalars_as_text)

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
            found = re.fullmatch(r"\s*(\[[0-9a-fA-F:.]+\]|[^\s:,]+):([0-9]+)\s*", server)
            if found is None:
                raise ValueError(f"{server.strip()!r} is not host:port")
            if not found[1].startswith("[") and not all(0 < len(part) <= _LONGEST_LABEL for part in _labels(found[1])):
                raise ValueError(f"{server.strip()!r}: each part of a host's name has 1 to {_LONGEST_LABEL} characters")
            if not 0 < int(found[2][:6]) <= _HIGHEST_PORT:
                raise ValueError(f"{server.strip()!r}: ports are from 1 to {_HIGHEST_PORT}")
        return value

    @model_validator(mode="after")
    def _writer_is_a_client(self) -> Self:
        self.writer()
        return self

    def writer(self) -> ClusterConfig:
        """The ordinary writer with which a fence is proven: `fence.client`, else drkit's own client."""
        fence = self.fence
        if fence.client is None and fence.bootstrap_servers is None:
            return self
        client = self.client if fence.client is None else fence.client
        writer = ClusterConfig(bootstrap_servers=fence.bootstrap_servers or self.bootstrap_servers, client=client)
        writer._place = self._place if fence.client is None else f"{self._place}.fence"
        return writer

    @property
    def place(self) -> str:
        """The file and key of the cluster, for errors; empty if a program created it."""
        return self._place

    def properties(self) -> dict[str, str]:
        """Client properties by their librdkafka names, secrets revealed. Never log the result."""
        return {name: reveal(value) for name, value in self.client.items()}


class StoreConfig(Strict):
    """drkit's store. `url`: sqlite:///PATH or cassandra://user:password@h1,h2:9042/keyspace?dc=…"""

    url: SecretStr | SecretFromEnv | SecretFromFile = SecretStr("sqlite:///drkit.db")

    @property
    def plain_url(self) -> str:
        """The URL, including its password. Never log it."""
        return reveal(self.url)


class TimelineConfig(Strict):
    """How much group history a link keeps; `hours = 0`: none."""

    recent_minutes: float = Field(default=10, gt=0, le=1e6)
    hours: float = Field(default=24, ge=0, le=1e5)
    max_rows: int = Field(default=1_000_000, ge=1_000, le=10**12)

    def policy(self) -> TimelinePolicy:
        """The policy, in the model's type."""
        return TimelinePolicy(self.recent_minutes * 60, self.hours * 3600, self.max_rows)


class CatchUpConfig(Strict):
    """`[links.catch_up]`: how a backlog is copied.

    `adaptive`: slow down while the copy slows down the target's other clients; false: copy as fast as possible.
    `max_bytes_per_second`: the limit for all workers of the link together. `max_latency_ms`, `latency_factor`: how slow
    the target's responses may become: in total, and as a multiple of their latency without the copy.
    """

    adaptive: bool = True
    max_bytes_per_second: int | None = Field(default=None, ge=1, le=10**15)
    max_latency_ms: float = Field(default=10, gt=0, le=60_000)
    latency_factor: float = Field(default=2, gt=1, le=1000)

    def rules(self) -> CatchUpPolicy:
        """The policy, in the model's type."""
        return CatchUpPolicy(self.adaptive, self.max_bytes_per_second, self.max_latency_ms / 1000, self.latency_factor)


class LinkConfig(Strict):
    """One direction of mirroring."""

    source: str
    target: str
    topics: tuple[Pattern, ...] = (".*",)
    exclude_topics: tuple[Pattern, ...] = ()
    groups: tuple[Pattern, ...] = (".*",)
    exclude_groups: tuple[Pattern, ...] = ()
    offsets: OffsetMode = OffsetMode.PRESERVE
    isolation: Isolation = Isolation.READ_COMMITTED
    policy: TopicPolicy = TopicPolicy.IDENTITY
    topic_settings: TopicSettingsConfig = Field(default_factory=TopicSettingsConfig)
    deletions: Deletions = Deletions.KEEP
    deletion_limit: int = Field(default=5, ge=0, le=10**9)
    acls: AclMode = AclMode.OFF
    filter: CallableName | None = None
    transform: CallableName | None = None
    provenance: bool = False
    rename: dict[TopicName, TopicName] = Field(default_factory=dict)
    max_bytes_per_second: int | None = Field(default=None, ge=1, le=10**15)
    catch_up: CatchUpConfig = CatchUpConfig()
    buffer_bytes: int = Field(default=DEFAULT_BUFFER_BYTES, ge=1024 * 1024, le=10**15)
    timeline: TimelineConfig = TimelineConfig()
    canary: bool = False
    range_digests: bool = True
    _aliases: tuple[str, ...] = PrivateAttr(default=())
    _shares_target: bool = PrivateAttr(default=False)

    @model_validator(mode="after")
    def _two_clusters(self) -> Self:
        if self.source == self.target:
            raise ValueError("source and target are the same cluster")
        return self

    @model_validator(mode="after")
    def _renames_one_to_one(self) -> Self:
        if self.rename and self.policy is TopicPolicy.PREFIX:
            raise ValueError('rename works with policy "identity"; policy "prefix" names every topic itself')
        names = list(self.rename.values())
        plain = self.link()
        for here, there in self.rename.items():
            if not plain.covers_topic(here):
                raise ValueError(f"rename: the link doesn't mirror {here!r}: correct `topics`, or remove the rename")
            if names.count(there) > 1:
                raise ValueError(f"rename: two topics get the name {there!r} on the target: give each its own name")
            if there not in self.rename and plain.covers_topic(there):
                raise ValueError(
                    f"rename: {here!r} gets the name {there!r}, and the link mirrors a topic of that name, too: "
                    "choose another name, or exclude that topic with `exclude_topics`"
                )
        return self

    def link(self) -> Link:
        """The link, in the model's type."""
        return Link(
            id=LinkId(self.source, self.target),
            topics=self.topics,
            exclude_topics=self.exclude_topics,
            groups=self.groups,
            exclude_groups=self.exclude_groups,
            offsets=self.offsets,
            isolation=self.isolation,
            policy=self.policy,
            topic_settings=self.topic_settings.policy(),
            deletions=self.deletions,
            deletion_limit=self.deletion_limit,
            acls=self.acls,
            timeline=self.timeline.policy(),
            canary=self.canary,
            range_digests=self.range_digests,
            filter=self.filter,
            transform=self.transform,
            provenance=self.provenance,
            renames=tuple(self.rename.items()),
            aliases=self._aliases,
            shares_target=self._shares_target,
            max_bytes_per_second=self.max_bytes_per_second,
            catch_up=self.catch_up.rules(),
            buffer_bytes=self.buffer_bytes,
        )


class LossBudgetConfig(Strict):
    """One `[[objectives.max_loss]]`: the most that a failover may lose of some topics of some links.

    drkit refuses a failover that would lose more. `links`, `topics`: patterns of whole names (topics by the source's
    names); the losses of all matching topics of one link are added up.
    """

    links: tuple[Pattern, ...] = (".*",)
    topics: tuple[Pattern, ...] = (".*",)
    max_loss_records: int | None = Field(default=None, ge=0)
    max_loss_seconds: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.max_loss_records is None and self.max_loss_seconds is None:
            raise ValueError("it sets no limit: give max_loss_records, max_loss_seconds or both")
        return self


class Objectives(Strict):
    """The objectives of a failover, and the loss that it needs no confirmation for; None: not set.

    `rpo_…`, `rto_seconds`: judged after the failover. `max_loss_…`: the most that it may lose of each link; a larger or
    unknown loss is refused without `--accept-loss`. `max_loss`: the same for some links and topics.
    """

    rpo_records: int | None = Field(default=None, ge=0)
    rpo_seconds: float | None = Field(default=None, ge=0)
    rto_seconds: float | None = Field(default=None, ge=0)
    max_loss_records: int | None = Field(default=None, ge=0)
    max_loss_seconds: float | None = Field(default=None, ge=0)
    max_loss: tuple[LossBudgetConfig, ...] = ()


class EvidenceConfig(Strict):
    """`[evidence]`: the signing of bundles of evidence, and what they say beyond drkit's own observations.

    `key`: a private Ed25519 key (PEM). `sign_command`: a program with its arguments to use instead; it reads the
    message from stdin and writes the signature to stdout; `public_key` is its public key (PEM). `witness`: who
    witnesses the runs. `runbook`: the file that operators follow.
    """

    key: Path | None = None
    sign_command: tuple[str, ...] | None = Field(default=None, min_length=1)
    public_key: Path | None = None
    witness: str | None = None
    runbook: Path | None = None
    timeout_seconds: float = Field(default=60.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _one_signer(self) -> Self:
        if self.key is not None and self.sign_command is not None:
            raise ValueError("a bundle is signed by a `key` or by a `sign_command`: remove one of them")
        if (self.sign_command is None) != (self.public_key is None):
            raise ValueError("`sign_command` and `public_key` belong together: give both")
        return self


class DrillsConfig(Strict):
    """`[drills]`: requirements for drills. `every_days`: doctor warns if no drill has passed for so many days."""

    every_days: float | None = Field(default=None, gt=0, le=36_500)


class Config(Strict):
    """All of `drkit.toml`."""

    clusters: dict[Alias, ClusterConfig]
    store: StoreConfig = StoreConfig()
    links: tuple[LinkConfig, ...] = ()
    objectives: Objectives = Objectives()
    evidence: EvidenceConfig = EvidenceConfig()
    drills: DrillsConfig = DrillsConfig()
    approvals: ApprovalsConfig | None = None
    serve: ServeConfig = ServeConfig()
    directory: tuple[DirectoryConfig, ...] = ()
    hooks: HooksConfig = HooksConfig()
    foreign_keys: tuple[ForeignKeyConfig, ...] = ()
    waves: tuple[WaveConfig, ...] = ()
    _file: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | None:
        """The file that it was read from; None: a program created it."""
        return self._file

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
            link._aliases = tuple(self.clusters)  # noqa: SLF001 - what a link must know of its configuration
        return self

    @field_validator("directory", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: object) -> object:
        """Accept `[directory]` as one `[[directory]]`."""
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _directories_of_links(self) -> Self:
        names = [f"{link.source}->{link.target}" for link in self.links]
        places: set[str] = set()
        for number, directory in enumerate(self.directory):
            key = f"directory.{number}"
            if directory.link is None and len(names) != 1:
                known = ", ".join(names) or "none"
                raise ValueError(f"{key}.link: name the link whose entry it holds (configured: {known})")
            if directory.link is not None and directory.link not in names:
                raise ValueError(f"{key}.link: no link {directory.link!r} is configured (known: {', '.join(names)})")
            if directory.url is not None and directory.url in places:
                raise ValueError(f"{key}.url: {directory.url} is there twice; a directory holds one link's entry")
            places.add(directory.url or "")
        return self

    @field_validator("waves")
    @classmethod
    def _named_once(cls, value: tuple[WaveConfig, ...]) -> tuple[WaveConfig, ...]:
        names = [wave.name for wave in value]
        twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
        if twice is not None:
            raise ValueError(f"two waves are called {twice!r}: the journal identifies them by their names")
        return value

    @model_validator(mode="after")
    def _no_cycle(self) -> Self:
        links = [link.link() for link in self.links]
        clusters = self.clusters_by_address()
        names = names_to_try(links)
        cycle = find_cycle(links, clusters, names)
        if cycle is not None:
            raise ValueError("links: {}. {}. {}".format(*cycle_error(cycle)))
        clash = find_clash(links, clusters, names)
        if clash is not None:
            raise ValueError("links: {}. {}. {}".format(*clash_error(clash, clusters)))
        shared = {link.id for link in sharing(links, clusters, names)}
        for link in self.links:
            link._shares_target = LinkId(link.source, link.target) in shared  # noqa: SLF001 - as above
        return self

    def required_links(self) -> list[Link]:
        """The configured links.

        Raises:
            ConfigError: there are none.
        """
        if not self.links:
            raise ConfigError(
                f"{self.file or 'the configuration'}: links: none is configured",
                remedy="Add a [[links]] section with source and target",
            )
        return [each.link() for each in self.links]

    def directories(self, link: LinkId) -> tuple[DirectoryConfig, ...]:
        """The directories that hold this link's entry."""
        return tuple(each for each in self.directory if each.link in {None, str(link)})

    def clusters_by_address(self) -> dict[str, str]:
        """The cluster of each alias: aliases that share an address are one cluster."""
        meant: dict[str, str] = {}
        by_server: dict[str, str] = {}
        for alias, cluster in self.clusters.items():
            servers = [server.strip().lower() for server in cluster.bootstrap_servers.split(",")]
            meant[alias] = next((by_server[server] for server in servers if server in by_server), alias)
            by_server.update(dict.fromkeys(servers, meant[alias]))
        return meant


def toml_schema() -> dict[str, Any]:
    """The JSON Schema. It leaves out what only code can check (known names, parts of a URL)."""
    schema = Config.model_json_schema()
    tables = schema["$defs"]
    for name in ("ClusterConfig", "FenceConfig"):
        _client(tables[name]["properties"]["client"])
    directory = schema["properties"]["directory"]
    directory["anyOf"] = [{"type": directory.pop("type"), "items": directory["items"]}, directory.pop("items")]
    return {"$schema": DIALECT, "title": "drkit.toml"} | {key: value for key, value in schema.items() if key != "title"}


def _client(schema: dict[str, Any]) -> None:
    """List the known properties; numbers and booleans are accepted as their text."""
    table = next((each for each in schema.get("anyOf", ()) if each.get("type") == "object"), schema)
    secret = table.pop("additionalProperties")
    plain = {"anyOf": [*secret["anyOf"], {"type": "boolean"}, {"type": "number"}]}
    plain["anyOf"] = [{"type": "string"} if each.get("type") == "string" else each for each in plain["anyOf"]]
    table["properties"] = {name: secret if name in SECRET_PROPERTIES else plain for name in sorted(CLIENT_PROPERTIES)}
    table["additionalProperties"] = False
