"""Finding and reading the configuration: flag, `$DRKIT_CONFIG`, `./drkit.toml`, environment on top."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from drkit.config.environment import CONFIG_VARIABLE, from_environment, nearest, variable_of
from drkit.config.schema.config import Config, StoreConfig
from drkit.config.schema.directory import check_webhook
from drkit.config.schema.secrets import Secret, reveal
from drkit.model.errors import ConfigError


def find_config(path: Path | None) -> Path:
    """The file to read: `path`, else `$DRKIT_CONFIG`, else `./drkit.toml`."""
    if path is not None:
        return path
    from_env = os.environ.get(CONFIG_VARIABLE)
    return Path(from_env) if from_env else Path("drkit.toml")


@dataclass(frozen=True, slots=True)
class ConfigSources:
    """What a configuration is read from. `data`: what the file's `text` gives; `environment`: what variables give."""

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
    """Find and read the file and the environment; nothing but the names of variables is checked.

    Raises:
        ConfigError: no such file, not TOML, a variable that names nothing.
    """
    file = find_config(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration at {file}",
            remedy="Give --config PATH or set DRKIT_CONFIG; `drkit init` writes one, `drkit lab up` one for a lab",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} can't be read: {error}", remedy="Check the path and its permissions") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}", remedy="Mend that line") from error
    return ConfigSources(file, text, data, from_environment(data))


def config_of(sources: ConfigSources) -> Config:
    """The configuration that sources give.

    Raises:
        ConfigError: an unknown key, a bad value, a missing cluster, a secret that can't be read.
    """
    file, data, environment = sources.file, sources.data, sources.environment
    try:
        config = Config.model_validate(sources.merged)
    except ValidationError as error:
        raise ConfigError(
            _explain(file, data, environment, error), remedy="Mend the keys named; docs/configuration.md has them all"
        ) from None
    config._file = file  # noqa: SLF001 - known only here
    _check_secrets(config, file)
    return _anchor_store(config, file)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        mine = merged.get(key)
        merged[key] = _merge(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return merged


def _explain(file: Path, data: dict[str, Any], environment: dict[str, Any], error: ValidationError) -> str:
    """What pydantic found, each with the key and where it was given: the file, or a variable."""
    lines = []
    for finding in error.errors(include_input=False, include_url=False):
        parts = tuple(str(part) for part in finding["loc"] if not _is_union_arm(part))
        key = ".".join(parts)
        message = finding["msg"].removeprefix("Value error, ")
        unknown = finding["type"] == "extra_forbidden"
        if unknown:
            message = "unknown key"
        variable = variable_of(parts, environment) if parts else None
        if variable is not None:
            hint = f". {nearest(variable, data)}" if unknown else ""
            lines.append(f"the environment variable {variable}: {key}: {message}{hint}")
        else:
            lines.append(f"{file}: {key}: {message}" if key else f"{file}: {message}")
    return "; ".join(dict.fromkeys(lines))


def _is_union_arm(part: object) -> bool:
    """Pydantic names the arm of a union in the location; a reader of the file has no such key."""
    arms = {"SecretStr", "SecretFromEnv", "SecretFromFile", "function-after[_regex(), str]"}
    return isinstance(part, str) and part in arms


def _check_secrets(config: Config, file: Path) -> None:
    """A secret that can't be read is found now, by its key, not in the middle of a failover."""
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


def _anchor_store(config: Config, file: Path) -> Config:
    """A relative SQLite path is relative to the configuration file, not to where one stands."""
    prefix = "sqlite:///"
    url = config.store.plain_url
    if not url.startswith(prefix) or url.startswith("sqlite:////"):
        return config
    path = (file.parent / url.removeprefix(prefix)).resolve()
    return config.model_copy(update={"store": StoreConfig(url=SecretStr(f"{prefix}{path}"))})
