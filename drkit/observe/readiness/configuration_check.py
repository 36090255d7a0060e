"""Checks a valid configuration against its surroundings: files, programs, callables; on request also the clusters.

`checks_without_clusters` connects to nothing. `checks_with_clusters` asks every cluster, the store and the directories
once, and changes nothing.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from drkit.config import ClusterConfig, Config
from drkit.config.load import ConfigSources
from drkit.config.schema.base import named_callable
from drkit.config.schema.config import SECRET_PROPERTIES
from drkit.config.schema.directory import DirectoryConfig, parse_address
from drkit.directory import Directory, open_directories
from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.config.client_config import aiokafka_config, confluent_config, java_properties, kafka_python_config
from drkit.kafka.transform.record_transform import load
from drkit.model.errors import ConfigError, DrkitError, StoreMissing
from drkit.model.wording import counted
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.store.cassandra.url import parse_cassandra_url, tls_context
from drkit.store.open import open_store

_DIALECTS: tuple[Callable[[ClusterConfig], object], ...] = (
    confluent_config,
    kafka_python_config,
    aiokafka_config,
    java_properties,
)
_SQLITE = "sqlite:///"
_OTHERS = stat.S_IRGRP | stat.S_IROTH


@dataclass(frozen=True, slots=True)
class ConfigCheck:
    """A check and the configuration key that it is about; `error` is its failure."""

    key: str
    check: Check
    error: DrkitError | None = None


def checks_without_clusters(config: Config, sources: ConfigSources) -> list[ConfigCheck]:
    """Everything that can be checked on this machine alone."""
    read = f"{sources.file}: {counted(len(config.clusters), 'cluster')}, {counted(len(config.links), 'link')}; "
    return [
        ConfigCheck("", Check("keys and values", CheckOutcome.OK, f"{read}every key is known, every value fits")),
        *_secrets_in_file(config, sources),
        *(found for alias, cluster in config.clusters.items() for found in _client(alias, cluster)),
        *_store(config),
        *_links(config),
        *_commands(config),
        *_approvals(config),
        *(found for number, each in enumerate(config.directory) for found in _directory(number, each)),
    ]


def checks_with_clusters(config: Config, clusters: Clusters) -> list[ConfigCheck]:
    """Connections: each cluster, as drkit and as the writer of its fence; the store; the directories."""
    ids: dict[str, str] = {}
    return [
        *(_cluster(alias, clusters, ids) for alias in config.clusters),
        *_same_cluster(config, ids),
        _opened_store(config),
        *_read_directories(config),
    ]


def _attempt(name: str, key: str, try_it: Callable[[], str]) -> ConfigCheck:
    """A check that passes if the call succeeds; its result is the reason."""
    try:
        return ConfigCheck(key, Check(name, CheckOutcome.OK, try_it()))
    except DrkitError as error:
        said = f"{error.what}. {error.meaning}" if error.meaning else error.what
        return ConfigCheck(key, Check(name, CheckOutcome.FAIL, said, error.remedy), error)


def _secrets_in_file(config: Config, sources: ConfigSources) -> Iterator[ConfigCheck]:
    """Whether other users can read secrets in the file."""
    try:
        mode = sources.file.stat().st_mode
    except OSError:
        return
    given = [
        f'clusters.{alias}.client."{name}"'
        for alias, cluster in config.clusters.items()
        for name in SECRET_PROPERTIES & cluster.client.keys()
        if isinstance(cluster.client[name], SecretStr)
    ]
    if isinstance(sources.data.get("store"), dict) and "@" in str(sources.data["store"].get("url", "")):
        given.append("store.url")
    if given and mode & _OTHERS:
        yield ConfigCheck(
            given[0],
            Check(
                "secrets in the file",
                CheckOutcome.WARN,
                f"{sources.file} holds {counted(len(given), 'secret')}, and other users of this machine can read it",
                f'chmod 600 {sources.file}; or write them as {{ env = "NAME" }} or {{ file = "PATH" }}',
            ),
        )


def _client(alias: str, cluster: ClusterConfig) -> Iterator[ConfigCheck]:
    """Whether every client of drkit takes the properties, and can use the files that they name."""

    def mapped(config: ClusterConfig) -> str:
        for dialect in _DIALECTS:
            dialect(config)
        return "every client takes these properties"

    yield _attempt("client properties", f"clusters.{alias}.client", lambda: mapped(cluster))
    if cluster.fence.client is not None or cluster.fence.bootstrap_servers is not None:
        yield _attempt("writer of the fence", f"clusters.{alias}.fence.client", lambda: mapped(cluster.writer()))


def _store(config: Config) -> Iterator[ConfigCheck]:
    url = config.store.plain_url

    def can_be() -> str:
        scheme = url.partition("://")[0]
        if scheme == "cassandra":
            location = parse_cassandra_url(url)
            if location.tls is not None:
                tls_context(location.tls)
            return f"{location}: the URL can be read"
        if not url.startswith(_SQLITE):
            open_store(url, create=False).close()
        file = Path(url.removeprefix(_SQLITE).partition("?")[0])
        if not file.parent.is_dir():
            raise ConfigError(
                f"store.url: there is no directory {file.parent} for the store", remedy=f"mkdir -p {file.parent}"
            )
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise ConfigError(f"store.url: {file} can't be written", remedy="Change its owner, or name another file")
        there = "is there" if file.exists() else "isn't there yet: `drkit mirror` creates it"
        return f"{file} {there}"

    yield _attempt("store", "store.url", can_be)


def _links(config: Config) -> Iterator[ConfigCheck]:
    if not config.links:
        yield ConfigCheck(
            "links",
            Check("links", CheckOutcome.WARN, "no link is configured: nothing is mirrored", "Add a [[links]] section"),
        )
    for number, link in enumerate(config.links):
        for key, name in (("filter", link.filter), ("transform", link.transform)):
            if name is not None:
                yield _callable(f"links.{number}.{key}", name, load)
    for number, foreign_key in enumerate(config.foreign_keys):
        for key, decoder in (("decoder", foreign_key.decoder), ("parent_decoder", foreign_key.parent_decoder)):
            if decoder is not None:
                yield _callable(
                    f"foreign_keys.{number}.{key}", decoder, lambda name, at: named_callable(name, at, "here")
                )


def _callable(key: str, name: str, imported: Callable[[str, str], object]) -> ConfigCheck:
    def found() -> str:
        imported(name, key)
        return f"{name} is there"

    return _attempt("callable", key, found)


def _commands(config: Config) -> Iterator[ConfigCheck]:
    """Programs that runs call."""
    hooks = config.hooks
    for name in ("pre_failover", "post_failover", "pre_failback", "post_failback", "audit_alert"):
        for number, command in enumerate(getattr(hooks, name)):
            yield _program(f"hooks.{name}.{number}", command[0])
    for alias, cluster in config.clusters.items():
        for name in ("command", "unfence"):
            command = getattr(cluster.fence, name)
            if command is not None:
                yield _program(f"clusters.{alias}.fence.{name}", command[0])


def _approvals(config: Config) -> Iterator[ConfigCheck]:
    """Keys that a run will ask for, at a time when nobody can look for one."""
    for name, file in ({} if config.approvals is None else config.approvals.operators).items():
        yield _attempt("operator's key", f"approvals.operators.{name}", partial(_readable, file))


def _program(key: str, program: str) -> ConfigCheck:
    def found() -> str:
        path = shutil.which(program)
        if path is None:
            raise ConfigError(
                f"{program} can't be started: there is no such program, or it isn't executable",
                remedy=f"Install it, or correct {key}",
            )
        return f"{path} is there"

    return _attempt("program", key, found)


def _directory(number: int, directory: DirectoryConfig) -> Iterator[ConfigCheck]:
    key = f"directory.{number}"
    if directory.url is None:
        yield _program(f"{key}.command", (directory.command or ("",))[0])
        return
    address = parse_address(directory.url)
    if address.kind == "file":
        folder = Path(address.path).parent
        yield _attempt("directory", f"{key}.url", lambda: _writable(folder))
    if directory.ca_file is not None:
        file = directory.ca_file
        yield _attempt("directory", f"{key}.ca_file", lambda: _readable(file))


def _writable(folder: Path) -> str:
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{folder} is no folder that drkit can write to", remedy="Create it, or change its owner")
    return f"{folder} can be written"


def _readable(file: Path) -> str:
    try:
        file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror or error}", remedy="Correct the path") from None
    return f"{file} can be read"


def _cluster(alias: str, clusters: Clusters, ids: dict[str, str]) -> ConfigCheck:
    def answers() -> str:
        admin = clusters.admin(alias, may_be_gone=True)
        ids[alias] = admin.cluster_id()
        return f"cluster {ids[alias]} answers, {counted(len(admin.brokers()), 'broker')}"

    return _attempt("cluster answers", f"clusters.{alias}", answers)


def _same_cluster(config: Config, ids: dict[str, str]) -> Iterator[ConfigCheck]:
    for number, link in enumerate(config.links):
        one, other = ids.get(link.source), ids.get(link.target)
        if one is not None and one == other:
            yield ConfigCheck(
                f"links.{number}",
                Check(
                    "two clusters",
                    CheckOutcome.FAIL,
                    f"{link.source} and {link.target} are one cluster: both answer as {one}",
                    f"Correct bootstrap_servers of {link.source} or {link.target}",
                ),
            )


def _opened_store(config: Config) -> ConfigCheck:
    def opens() -> str:
        open_store(config.store.plain_url, create=False).close()
        return "it opens"

    found = _attempt("store opens", "store.url", opens)
    if isinstance(found.error, StoreMissing):
        return replace(found, check=replace(found.check, outcome=CheckOutcome.WARN))
    return found


def _read_directories(config: Config) -> Iterator[ConfigCheck]:
    for link in config.links:
        for directory in open_directories(config, link.link().id):
            yield _attempt("directory answers", "directory", partial(_entry_of, directory))


def _entry_of(directory: Directory) -> str:
    entry = directory.read()
    return f"{directory.name}: {entry if entry is not None else 'no entry yet'}"
