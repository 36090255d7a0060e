"""Finding and reading the configuration: flag, `$DRKIT_CONFIG`, `./drkit.toml`, environment on top.

Errors name the line of a key: `tomllib` reads values, not lines, so `key_lines` finds these.
"""

from __future__ import annotations

import errno
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from drkit.config.environment import (
    CONFIG_VARIABLE,
    check_names,
    from_environment,
    names_besides_own,
    nearest,
    value_at,
    variable_below,
    variable_of,
)
from drkit.config.schema.base import Secret, reveal
from drkit.config.schema.config import Config, StoreConfig
from drkit.config.schema.directory import check_webhook
from drkit.model.errors import ConfigError

KeyPath = tuple[str, ...]
"""A key with its tables; an element of an array of tables is its number."""

_HEADER = re.compile(r"\s*\[")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1 on, of each key of a TOML text, and of the header of each table.

    Args:
        text: valid TOML. The content of an inline table or an array has the line on which its statement begins.
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for line, statement in _statements(text.splitlines()):
        found = tomllib.loads(statement)
        if _HEADER.match(statement):
            table = _table(found, counts)
            lines.setdefault(table, line)
            continue
        for key in _keys(found):
            lines.setdefault((*table, *key), line)
    return lines


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each statement with its first line: the fewest lines that are valid on their own."""
    number = 0
    while number < len(lines):
        begins, chunk = number, [lines[number]]
        number += 1
        if not chunk[0].strip() or chunk[0].lstrip().startswith("#"):
            continue
        while not _valid("\n".join(chunk)) and number < len(lines):
            chunk.append(lines[number])
            number += 1
            while chunk[-1].rstrip().endswith(",") and number < len(lines):  # an array continues: don't parse it yet
                chunk.append(lines[number])
                number += 1
        yield begins + 1, "\n".join(chunk)


def _valid(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _table(found: Mapping[str, Any], counts: dict[KeyPath, int]) -> KeyPath:
    """The path of a header's table: a number is the last element of an array so far."""
    path: KeyPath = ()
    inner: Any = found
    while inner:
        if isinstance(inner, list):
            counts[path] = counts.get(path, 0) + 1
            return (*path, str(counts[path] - 1))
        if path in counts:
            path = (*path, str(counts[path] - 1))
        name, inner = next(iter(inner.items()))
        path = (*path, name)
    return path


def _keys(value: Any) -> Iterator[KeyPath]:
    items: Iterator[tuple[str, Any]] = iter(())
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, list):
        items = ((str(number), each) for number, each in enumerate(value))
    for name, inner in items:
        yield (name,)
        for rest in _keys(inner):
            yield (name, *rest)


_MOST_BYTES = 16 * 1024 * 1024
"""A larger file isn't a configuration, but a device or a log."""


_MESSAGES = {
    "extra_forbidden": "unknown key",
    "tuple_type": "it has to be a list",
    "dict_type": "it has to be a table",
    "model_type": "it has to be a table",
    "model_attributes_type": "it has to be a table",
}
"""What pydantic says in terms of Python, in those of the file."""


def find_config(path: Path | None) -> Path:
    """The file to read: `path`, else `$DRKIT_CONFIG`, else `./drkit.toml`."""
    if path is not None:
        return path
    from_env = os.environ.get(CONFIG_VARIABLE)
    return Path(from_env) if from_env else Path("drkit.toml")


@dataclass(frozen=True, slots=True)
class ConfigSources:
    """The sources of a configuration. `data`: the values of the file's `text`; `environment`: those of variables."""

    file: Path
    text: str
    data: dict[str, Any]
    environment: dict[str, Any]

    @property
    def merged(self) -> dict[str, Any]:
        """Both, the environment over the file. It holds secrets."""
        return _merge(self.data, self.environment)


def load_config(path: Path | None = None) -> Config:
    """Read and check the configuration.

    Raises:
        ConfigError: no such file, not TOML, an unknown key, a bad value, a missing cluster; the
            message names the file, the key and what was expected.
    """
    return config_of(read_sources(path))


def read_sources(path: Path | None = None) -> ConfigSources:
    """Find and read the file and the environment; checks only the names of variables.

    Raises:
        ConfigError: no such file, not TOML, an unknown variable.
    """
    file = find_config(path)
    text = _text_of(file)
    data = _parsed(file, text)
    return ConfigSources(file, text, data, from_environment(data))


def check_variables(path: Path | None = None) -> None:
    """Check the names of variables for a command that may read no configuration.

    Variables from which the file reads secrets are known, if it can be read; if not, what may be one is accepted: a
    command that needs the file says what is wrong with it. What isn't a regular file can't be read twice: a command
    that reads it checks the names itself.

    Raises:
        ConfigError: an unknown variable.
    """
    file = find_config(path)
    if not names_besides_own() or _read_once(file):
        return
    try:
        data, unread = _parsed(file, _text_of(file)), None
    except ConfigError as error:
        data, unread = {}, error.what
    check_names(data, unread)


def _read_once(file: Path) -> bool:
    """Whether it is a pipe or the like."""
    try:
        return file.exists() and not file.is_file()
    except (OSError, ValueError):  # no name of a file
        return False


def _parsed(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(
            f"{file} is not a configuration: its arrays or tables are nested too deeply", remedy="Correct the file"
        ) from None
    except ValueError as error:  # TOMLDecodeError, or a number with thousands of digits
        raise ConfigError(
            f"{file} is not valid TOML: {error}{_key_at(text, str(error))}", remedy="Correct that line"
        ) from error


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration at {file}",
            remedy="Give --config PATH or set DRKIT_CONFIG; `drkit init` writes one, `drkit lab up` one for a lab",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{file} can't be read: {error.strerror or error}",
            remedy="Give --config (or DRKIT_CONFIG) the path of a file that you may read",
        ) from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{file} is not a configuration: it is larger than 16 MiB", remedy="Correct --config")
    try:
        return content.decode("utf-8-sig")  # Windows editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{file}:{line} is not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}",
            remedy="Save the file as UTF-8",
        ) from None


def _key_at(text: str, error: str) -> str:
    """The key or table on the line that a TOML error names; never a value, which may be a secret."""
    place = re.search(r"at line (\d+)", error)
    line = text.splitlines()[int(place[1]) - 1] if place else ""
    found = re.match(r"\s*(\[+[^\]]+\]+|[A-Za-z0-9_.\"' -]+?)\s*(=|$)", line)
    return "" if found is None else f": {found[1]}"


def config_of(sources: ConfigSources) -> Config:
    """The configuration from its sources.

    Raises:
        ConfigError: an unknown key, a bad value, a missing cluster, a secret that can't be read.
    """
    file = sources.file
    try:
        config = Config.model_validate(sources.merged)
    except ValidationError as error:
        raise ConfigError(
            _explain(sources, error), remedy="Correct the keys named; docs/configuration.md has them all"
        ) from None
    config._file = file  # noqa: SLF001 - known only here
    for alias, cluster in config.clusters.items():
        cluster._place = f"{file}: clusters.{alias}"  # noqa: SLF001 - as above
    _check_secrets(config, file)
    return _anchor_store(config, file)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    return base | {key: _merge_value(base.get(key), value) for key, value in over.items()}


def _merge_value(mine: Any, over: Any) -> Any:
    if isinstance(mine, dict) and isinstance(over, dict):
        return _merge(mine, over)
    if isinstance(mine, list) and isinstance(over, dict):  # single elements, by their numbers
        return [_merge_value(each, over.get(str(number), each)) for number, each in enumerate(mine)]
    return over


def _explain(sources: ConfigSources, error: ValidationError) -> str:
    """Pydantic's findings, each with the key and its origin: a line of the file, or a variable."""
    lines = []
    for finding in error.errors(include_input=False, include_url=False):
        parts = tuple(str(part) for part in finding["loc"] if not _is_union_arm(part))
        message = finding["msg"].removeprefix("Value error, ")
        said = re.match(r"([a-z_]+(?:\.[\w-]+)+): ", message) if not parts else None
        if said is not None:  # about the whole configuration: several keys contradict each other
            parts, message = tuple(said[1].split(".")), message[said.end() :]
        key = ".".join(parts)
        unknown = finding["type"] == "extra_forbidden"
        message = _MESSAGES.get(finding["type"], message)
        if finding["type"] == "tuple_type" and len(parts) == 1:
            message += f" of tables, [[{key}]]"
        variable = _variable_behind(parts, sources, missing=finding["type"] == "missing")
        if variable is not None:
            hint = f". {nearest(variable, sources.data)}" if unknown else ""
            lines.append(f"the environment variable {variable}: {key}: {message}{hint}")
        else:
            hint = _close_key(parts) if unknown else ""
            lines.append(f"{sources.file}{_line_of(parts, sources.text)}: {f'{key}: ' if key else ''}{message}{hint}")
    return "; ".join(dict.fromkeys(lines))


def _variable_behind(key: tuple[str, ...], sources: ConfigSources, *, missing: bool) -> str | None:
    """The variable that a finding about a key is about; None: the file."""
    if not key:
        return None
    variable = variable_of(key, sources.environment)
    table = key[:-1] if missing else key
    if variable is None and value_at(table, sources.data) is None:
        return variable_below(table)
    return variable


def _line_of(key: tuple[str, ...], text: str) -> str:
    """`:12`, the line of a key, or of the nearest table above it; empty if there is none."""
    found = key_lines(text)
    while key and key not in found:
        key = key[:-1]
    return f":{found[key]}" if key else ""


def _close_key(key: tuple[str, ...]) -> str:
    """The key that was probably meant by an unknown one; else those that its table has."""
    model: type[BaseModel] | None = Config
    for part in key[:-1]:
        if model is not None and part in model.model_fields:  # else it is an alias, or an index in an array
            model = _model_in(model.model_fields[part].annotation)
    if not key or model is None:
        return ""
    close = get_close_matches(key[-1], model.model_fields, n=1)
    return f" (did you mean {close[0]}?)" if close else f" (known here: {', '.join(sorted(model.model_fields))})"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The table of a key, even if it holds several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _is_union_arm(part: object) -> bool:
    """Drop union members from a location: pydantic names them, but the file has no such key."""
    arms = {"SecretStr", "SecretFromEnv", "SecretFromFile", "function-after[_regex(), str]", "[key]"}
    return isinstance(part, str) and (part in arms or part.startswith("lax-or-strict["))


def _check_secrets(config: Config, file: Path) -> None:
    """Read every secret now, so that an error shows its key before a failover begins."""
    secrets: list[tuple[str, Secret]] = [("store.url", config.store.url)]
    for alias, cluster in config.clusters.items():
        secrets += [(f'clusters.{alias}.client."{name}"', value) for name, value in cluster.client.items()]
    for number, directory in enumerate(config.directory):
        secrets += [(f"directory.{number}.{name}", value) for name, value in directory.secrets().items()]
    webhook = config.hooks.audit_alert_url
    if webhook is not None:
        secrets.append(("hooks.audit_alert_url", webhook))
    for key, value in secrets:
        try:
            plain = reveal(value)
            if value is webhook:
                check_webhook(plain)
        except ValueError as error:
            raise ConfigError(f"{file}: {key}: {error}", remedy="Provide the secret where the key says it is") from None


def _refuse_circle(place: Path) -> None:
    """Raise OSError for circular links: from Python 3.13 on `resolve` accepts them."""
    try:
        place.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise


def _anchor_store(config: Config, file: Path) -> Config:
    """A relative SQLite path is relative to the configuration file, not to the working directory."""
    prefix = "sqlite:///"
    url = config.store.plain_url
    if not url.startswith(prefix) or url.startswith("sqlite:////"):
        return config
    place = file.parent / url.removeprefix(prefix)
    try:
        path = place.resolve()
        _refuse_circle(place)
    except (OSError, RuntimeError, ValueError) as error:  # circular links, a missing folder, a NUL
        raise ConfigError(
            f"{file}: store.url: its path leads nowhere: {error}", remedy="Name the store's file in store.url"
        ) from None
    return config.model_copy(update={"store": StoreConfig(url=SecretStr(f"{prefix}{path}"))})
