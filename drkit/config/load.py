"""Finding and reading the configuration: flag, `$DRKIT_CONFIG`, `./drkit.toml`, environment on top."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from drkit.config.directory_schema import check_webhook
from drkit.config.schema import Config, StoreConfig
from drkit.config.secrets import Secret, reveal
from drkit.model.errors import ConfigError

ENV_PREFIX = "DRKIT_"
CONFIG_VARIABLE = "DRKIT_CONFIG"


def find_config(path: Path | None) -> Path:
    """The file to read: `path`, else `$DRKIT_CONFIG`, else `./drkit.toml`."""
    if path is not None:
        return path
    from_env = os.environ.get(CONFIG_VARIABLE)
    return Path(from_env) if from_env else Path("drkit.toml")


def load_config(path: Path | None = None) -> Config:
    """Read and check the configuration.

    Raises:
        ConfigError: no such file, not TOML, an unknown key, a bad value, a missing cluster; the
            message names the file, the key and what was expected.
    """
    file = find_config(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration at {file}",
            remedy="Give --config PATH or set DRKIT_CONFIG; `drkit lab up` writes one for a lab",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} can't be read: {error}", remedy="Check the path and its permissions") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}", remedy="Mend that line") from error
    merged = _merge(data, _environment())
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(
            _explain(file, error), remedy="Mend the keys named; docs/configuration.md has them all"
        ) from None
    config._file = file  # noqa: SLF001 - known only here
    _check_secrets(config, file)
    return _anchor_store(config, file)


def _environment() -> dict[str, Any]:
    """`DRKIT_STORE__URL=…` and the like as the nested mapping that the file would hold.

    A name without `__` is no key: DRKIT_CONFIG, and what drkit tells its own hooks and commands.
    """
    _check_names(name for name in os.environ if name.upper().startswith(ENV_PREFIX))
    if not any(name.upper().startswith(ENV_PREFIX) and name.upper() != CONFIG_VARIABLE for name in os.environ):
        return {}
    # Here, because it takes a tenth of a second to load and hardly any command needs it.
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict  # noqa: PLC0415

    class FromEnvironment(BaseSettings):
        model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="ignore")
        clusters: dict[str, Any] = {}
        store: dict[str, Any] = {}
        links: list[dict[str, Any]] = []
        objectives: dict[str, Any] = {}
        directory: list[dict[str, Any]] = []
        hooks: dict[str, Any] = {}

    try:
        source = EnvSettingsSource(FromEnvironment)
        found: dict[str, Any] = source()
    except Exception as error:  # pydantic-settings wraps a JSON error in an exception class of its own
        raise ConfigError(
            f"an environment variable {ENV_PREFIX}… can't be read: {error}", remedy="Mend or unset it"
        ) from error
    return found


def _check_names(names: Iterable[str]) -> None:
    for name in sorted(names):
        section, nested, _ = name.upper().removeprefix(ENV_PREFIX).partition("__")
        if nested and section.lower() not in Config.model_fields:
            raise ConfigError(
                f"the environment variable {name} names no section of the configuration: {section.lower()!r}",
                remedy=f"Sections: {', '.join(sorted(Config.model_fields))}; mend or unset it",
            )


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        mine = merged.get(key)
        merged[key] = _merge(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return merged


def _explain(file: Path, error: ValidationError) -> str:
    lines = []
    for finding in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in finding["loc"] if not _is_union_arm(part))
        message = finding["msg"].removeprefix("Value error, ")
        if finding["type"] == "extra_forbidden":
            message = "unknown key"
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
