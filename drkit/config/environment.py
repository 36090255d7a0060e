"""`DRKIT_STORE__URL=…` and the like: environment variables as configuration keys, and their valid names.

An unknown name is an error, like an unknown key of the file: otherwise drkit would silently ignore an operator's
setting.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from drkit.config.schema.config import Config
from drkit.model.errors import ConfigError

PREFIX = "DRKIT_"
CONFIG_VARIABLE = "DRKIT_CONFIG"
_ABSENT = object()

_OWN = frozenset({CONFIG_VARIABLE, "DRKIT_CACHE_DIR", "DRKIT_COMPILED", "DRKIT_JAR_REPOSITORY", "DRKIT_JAVA_HOME"})
_TOLD = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "ACTION ACTIVE AT BOOTSTRAP_SERVERS CLUSTER EPOCH HOOK KIND LINK MODE PLAN_DIGEST RUN STATE".split()  # noqa: SIM905  # thirteen words
    )
)
"""Variables that drkit sets for its own hooks and commands, which may call drkit."""


def from_environment(file: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration keys from environment variables, nested as in the file.

    Args:
        file: the content of the configuration file: its clusters and the variables of its secrets.

    Raises:
        ConfigError: a variable's name is not a key, or its value can't be read.
    """
    given = sorted(name for name in os.environ if name.upper().startswith(PREFIX))
    secrets = set(_secret_variables(file))
    for name in given:
        _check_name(name, secrets, file)
    if all(name.upper() in _OWN | _TOLD or name in secrets for name in given):
        return {}
    # Imported here, because it takes a tenth of a second and hardly any command needs it.
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict  # noqa: PLC0415

    class FromEnvironment(BaseSettings):
        model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore")
        clusters: dict[str, Any] = {}
        store: dict[str, Any] = {}
        links: list[dict[str, Any]] = []
        objectives: dict[str, Any] = {}
        evidence: dict[str, Any] = {}
        directory: list[dict[str, Any]] = []
        hooks: dict[str, Any] = {}
        foreign_keys: list[dict[str, Any]] = []
        waves: list[dict[str, Any]] = []
        serve: dict[str, Any] = {}

    try:
        source = EnvSettingsSource(FromEnvironment)
        found: dict[str, Any] = source()
    except Exception as error:  # pydantic-settings wraps a JSON error in an exception class of its own
        name, why = _unreadable(given) or (f"{PREFIX}…", str(error))
        raise ConfigError(
            f"the environment variable {name} can't be read: {why}",
            remedy="Give a table or a list as JSON, or unset it; docs/configuration.md shows how",
        ) from error
    return found


def _unreadable(names: Collection[str]) -> tuple[str, str] | None:
    """The first variable of a whole section without valid JSON, and the reason; never its value."""
    for name in names:
        if name.upper().removeprefix(PREFIX).lower() in Config.model_fields:
            try:
                json.loads(os.environ[name])
            except RecursionError:
                return name, "it is nested too deeply"
            except ValueError as error:
                return name, f"it is not JSON: {error}"
    return None


def value_at(key: tuple[str, ...], values: Mapping[str, Any], absent: object = None) -> Any:
    """The value at a key of nested tables and lists; `absent` if there is none."""
    inner: Any = values
    for part in key:
        if isinstance(inner, Mapping) and part in inner:
            inner = inner[part]
        elif isinstance(inner, list) and part.isdecimal() and int(part) < len(inner):
            inner = inner[int(part)]
        else:
            return absent
    return inner


def variable_of(key: tuple[str, ...], environment: Mapping[str, Any]) -> str | None:
    """The variable that gave a key of the configuration; None: the file did."""
    if value_at(key, environment, _ABSENT) is _ABSENT:  # a null counts as given
        return None
    wanted = PREFIX + "__".join(key).upper()
    by_name = {name.upper(): name for name in os.environ}
    while wanted not in by_name and "__" in wanted:  # given as JSON, further up
        wanted = wanted.rpartition("__")[0]
    return by_name.get(wanted)


def variable_below(key: tuple[str, ...]) -> str | None:
    """A variable that gives a value in a table of the configuration; None: none does."""
    begins = PREFIX + "__".join(key).upper()
    return next((name for name in sorted(os.environ) if name.upper().startswith(f"{begins}__")), None)


def nearest(name: str, file: Mapping[str, Any]) -> str:
    """The remedy for an unknown variable: the name that was probably meant, if there is one."""
    close = get_close_matches(name.upper(), sorted(_names(file)), n=1, cutoff=0.7)
    return f"Did you mean {close[0]}? Rename it, or unset it" if close else "Rename it or unset it"


def _check_name(name: str, secrets: Collection[str], file: Mapping[str, Any]) -> None:
    section, _, key = name.upper().removeprefix(PREFIX).partition("__")
    if name.upper() in _OWN | _TOLD or name in secrets or section.lower() in Config.model_fields:
        return
    what = f"names no section of the configuration: {section.lower()!r}" if key else "is not one that drkit reads"
    raise ConfigError(
        f"the environment variable {name} {what}",
        meaning="drkit would ignore it, although it was set on purpose",
        remedy=f"{nearest(name, file)}; sections are {', '.join(sorted(Config.model_fields))}, "
        f"written as {PREFIX}STORE__URL",
    )


def _names(file: Mapping[str, Any]) -> Iterator[str]:
    """The valid names of variables."""
    yield from _OWN
    for section, field in Config.model_fields.items():
        begins = f"{PREFIX}{section}".upper()
        yield begins
        for model in (field.annotation, *get_args(field.annotation)):
            if isinstance(model, type) and issubclass(model, BaseModel):
                middles = [f"{alias}__".upper() for alias in file.get(section, ())] if section == "clusters" else [""]
                yield from (f"{begins}__{middle}{key}".upper() for middle in middles for key in model.model_fields)


def _secret_variables(value: Any) -> Iterator[str]:
    """The variables in all `{ env = "NAME" }` values."""
    if isinstance(value, Mapping):
        if set(value) == {"env"} and isinstance(value["env"], str):
            yield value["env"]
        for inner in value.values():
            yield from _secret_variables(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _secret_variables(inner)
