"""The effective configuration: every value with its origin, secrets hidden."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import SecretStr

from drkit.config.environment import CONFIG_VARIABLE, value_at, variable_of
from drkit.config.load import ConfigSources, KeyPath, config_of, key_lines
from drkit.config.schema.base import SecretFromEnv, SecretFromFile, Strict
from drkit.config.schema.config import SECRET_PROPERTIES, Config
from drkit.model.canonical import document_digest

HIDDEN = "********"
"""The placeholder of a secret."""

_COMMANDS = frozenset({"command", "unfence"})
_URL_PARAMETERS = frozenset({"dc", "replication_factor", "replication", "consistency", "serial_consistency", "timeout"})
_HOSTS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,\s]+)(:\d{1,5})?(,(\[[0-9A-Fa-f:.]+\]|[^\[\]:,\s]+)(:\d{1,5})?)*")


class Origin(StrEnum):
    """The origin of a value."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value.

    `key`: with its tables, as in the file; elements of arrays of tables by number. `value`: as JSON; a secret is
    `HIDDEN`, one that is stored elsewhere shows where. `hidden`: a part of it is not shown. `line`, `variable`: the
    line of the file, or the environment variable, that gives it.
    """

    key: str
    value: Any
    hidden: bool
    origin: Origin
    line: int | None = None
    variable: str | None = None


def effective_settings(sources: ConfigSources) -> list[Setting]:
    """Every value of the configuration with its origin, in the order of the schema.

    Raises:
        ConfigError: the configuration is wrong (see `load_config`).
    """
    config = config_of(sources)
    lines = key_lines(sources.text)
    settings = []
    for path, value in leaves(config, ()):
        given = value_at(path, sources.merged)
        shown, hidden = _shown(path, value, given)
        variable = variable_of(path, sources.environment)
        line = None if variable else _line(path, lines, sources.data)
        origin = Origin.ENVIRONMENT if variable else Origin.DEFAULT if line is None else Origin.FILE
        settings.append(Setting(dotted(path), shown, hidden, origin, line, variable))
    return settings


def file_origin(path: Path | None) -> Origin:
    """The source of the configuration file's name: `--config`, `$DRKIT_CONFIG`, or neither (`./drkit.toml`)."""
    if path is not None:
        return Origin.FLAG
    return Origin.ENVIRONMENT if os.environ.get(CONFIG_VARIABLE) else Origin.DEFAULT


def dotted(path: KeyPath) -> str:
    """A key with its tables, as TOML writes it: parts that aren't bare are quoted."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in path)


def without_credentials(url: str) -> str:
    """A store's URL without its password, even if it is malformed: any part that may be a password is hidden."""
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" and separator:
        location, question, query = rest.partition("?")
        return f"{scheme}://{location}{question}{_parameters(query)}"
    if scheme != "cassandra" or not separator:
        return HIDDEN
    credentials, at, address = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{user if colon else HIDDEN}:{HIDDEN}@" if at else ""
    address, question, query = address.partition("?")
    hosts, slash, keyspace = address.partition("/")
    if not _HOSTS.fullmatch(hosts):
        return f"{scheme}://{shown}{HIDDEN}"
    return f"{scheme}://{shown}{hosts}{slash}{keyspace}{question}{_parameters(query)}"


def _parameters(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    return "&".join(f"{name}={value if name in _URL_PARAMETERS else HIDDEN}" for name, value in pairs)


def leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Values with their paths: descends into tables and arrays of tables; arrays of values are one value."""
    inner: Iterator[tuple[str, Any]] | None = None
    if isinstance(value, Strict) and not isinstance(value, SecretFromEnv | SecretFromFile):
        inner = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping) and value:
        inner = iter(value.items())
    elif isinstance(value, tuple) and value and all(isinstance(each, Strict) for each in value):
        inner = ((str(number), each) for number, each in enumerate(value))
    if inner is None:
        yield path, value
        return
    for name, each in inner:
        yield from leaves(each, (*path, name))


def _shown(path: KeyPath, value: Any, given: Any) -> tuple[Any, bool]:
    """A value as it may be shown, and whether a part of it is hidden."""
    if isinstance(value, SecretStr | SecretFromEnv | SecretFromFile):
        return _shown_secret(path, value, given)
    if isinstance(value, tuple) and path[0] == "hooks":
        return [_program(each) for each in value], any(len(each) > 1 for each in value)
    if isinstance(value, tuple) and path[-1] in _COMMANDS:
        return _program(value), len(value) > 1
    if isinstance(value, Path):
        return str(value), False
    return (list(value) if isinstance(value, tuple) else value), False


def _program(command: Sequence[str]) -> list[str]:
    """A command without its arguments: any of them may be a credential."""
    return [command[0], *[HIDDEN] * (len(command) - 1)]


def _shown_secret(path: KeyPath, value: SecretStr | SecretFromEnv | SecretFromFile, given: Any) -> tuple[Any, bool]:
    """The location of a secret stored elsewhere; of one in the configuration only the harmless part."""
    if isinstance(value, SecretFromEnv | SecretFromFile):
        return {key: str(place) for key, place in value.model_dump().items()}, True
    if isinstance(given, Mapping):  # stored elsewhere, and completed when it was read
        return {str(key): str(place) for key, place in given.items()}, True
    plain = value.get_secret_value()
    if path == ("store", "url"):
        shown = without_credentials(plain)
        return shown, shown != plain
    if "client" in path and path[-1] not in SECRET_PROPERTIES:
        return _address(plain) if path[-1].endswith(".url") else (plain, False)
    return HIDDEN, True


def _address(url: str) -> tuple[str, bool]:
    """A token endpoint without anything that could be a credential."""
    try:
        parts = urlsplit(url)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return HIDDEN, True
    return (url, False) if shown == url else (f"{shown} {HIDDEN}", True)


def _line(path: KeyPath, lines: Mapping[KeyPath, int], data: Mapping[str, Any]) -> int | None:
    if path[0] == "directory" and isinstance(data.get("directory"), Mapping):  # one is as good as a list of one
        path = (path[0], *path[2:])
    return lines.get(path)


def configuration_digest(config: Config) -> str:
    """SHA-256 (hexadecimal) of the configuration with masked secrets: new secrets don't change it."""
    return document_digest(config.model_dump(mode="json"))
