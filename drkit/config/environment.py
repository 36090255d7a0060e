"""What the environment says: `DRKIT_STORE__URL=…` and the like as configuration keys, and their valid names; folders.

An unknown name is an error, like an unknown key of the file: otherwise drkit would silently ignore an operator's
setting.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import platformdirs
from pydantic import BaseModel

from drkit.config.schema.config import Config
from drkit.model.errors import ConfigError

PREFIX = "DRKIT_"
CONFIG_VARIABLE = "DRKIT_CONFIG"
_ABSENT = object()

_OWN = frozenset({CONFIG_VARIABLE, "DRKIT_CACHE_DIR", "DRKIT_COMPILED", "DRKIT_JAR_REPOSITORY", "DRKIT_JAVA_HOME"})
_TOLD = tuple(
    frozenset(f"{PREFIX}{name}" for name in names.split())
    for names in (
        "HOOK STATE RUN KIND MODE LINK PLAN_DIGEST CLUSTER BOOTSTRAP_SERVERS",  # a hook of a run
        "HOOK STATE RUN KIND MODE LINK PLAN_DIGEST CLUSTER BOOTSTRAP_SERVERS SITE",  # of a link's run in a site run
        "HOOK RUN LINK",  # a hook of a continuous audit
        "WAVE SITE CLUSTER BOOTSTRAP_SERVERS",  # a command after a wave
        "ACTION CLUSTER LINK RUN EPOCH",  # a fence command
        "ACTION LINK",  # a directory's command that reads
        "ACTION LINK ACTIVE BOOTSTRAP_SERVERS EPOCH RUN AT",  # one that publishes
    )
)
"""Variables that drkit sets together for its own hooks and commands, which may call drkit. It reads none of them: one
alone was set by somebody who expects it to do something."""


def from_environment(file: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration keys from environment variables, nested as in the file.

    Args:
        file: the content of the configuration file: its clusters and the variables of its secrets.

    Raises:
        ConfigError: a variable's name is not a key, or its value can't be read.
    """
    check_names(file)
    found: dict[str, Any] = {}
    secrets = set(_secret_variables(file))
    keys = [name for name in names_besides_own() if name not in secrets]
    for name in sorted(keys, key=lambda name: (name.count("__"), name)):  # whole tables first, single keys over them
        _take(name, os.environ[name], found, file)
    return found


def names_besides_own() -> list[str]:
    """The `DRKIT_…` variables that are neither drkit's own nor what it tells its hooks and commands, sorted."""
    given = [name for name in os.environ if name.upper().startswith(PREFIX)]
    there = {name.upper() for name in given}
    told = frozenset[str]().union(*(together for together in _TOLD if together <= there))
    return sorted(name for name in given if name.upper() not in _OWN | told)


def check_names(file: Mapping[str, Any], unread: str | None = None) -> None:
    """Check the names of all `DRKIT_…` variables.

    Args:
        file: the content of the configuration file: variables from which it reads secrets are known.
        unread: why it can't be read, or isn't the final one: any name may be a secret's that it will name, unless it
            looks like another one. None: it was read.

    Raises:
        ConfigError: a name is none that drkit reads.
    """
    secrets = set(_secret_variables(file))
    for name in names_besides_own():
        if unread is None or not _may_be_a_secret(name):
            _check_name(name, secrets, file, unread)


def forget_foreign_secrets() -> None:
    """Take what may be another configuration's secret out of this process's environment.

    For the configuration of a lab, which reads no secret from a variable: it and its commands would refuse the names.
    """
    for name in names_besides_own():
        if _may_be_a_secret(name):
            del os.environ[name]


def _may_be_a_secret(name: str) -> bool:
    """Whether it is no key's or section's name, none that drkit tells its hooks and commands, and not nearly one of its
    own."""
    own = [each.removeprefix(PREFIX) for each in _OWN]
    given = name.upper().removeprefix(PREFIX)
    told = any(name.upper() in together for together in _TOLD) or given.lower() in Config.model_fields
    return "__" not in given and not told and not get_close_matches(given, own, n=1, cutoff=0.7)


def _take(name: str, value: str, found: dict[str, Any], file: Mapping[str, Any]) -> None:
    """Put a variable's value at its key in `found`, by the names that the file has for tables on the way."""
    *way, last = name[len(PREFIX) :].lower().split("__")
    inner: Any = found
    beside: Any = file
    for depth, part in enumerate(way):
        key = _key_among(part, beside, inner, way[:depth], name)
        beside = value_at((key,), beside)
        if isinstance(inner, list):
            inner = inner[int(key)]
            continue
        if not isinstance(inner.get(key), dict | list):
            inner[key] = {}
        inner = inner[key]
    key = _key_among(last, beside, inner, way, name)
    read = _json_of(name, value) if not way else _list_or_table(value)
    if isinstance(inner, list):
        inner[int(key)] = read
    else:
        inner[key] = read


def _key_among(part: str, file: Any, environment: Any, way: Sequence[str], name: str) -> str:
    """The key that a part of a variable's name means: as the file writes it, with dots in a client property."""
    there = environment if isinstance(environment, list) else file
    if isinstance(there, list):
        if not part.isdecimal() or int(part) >= len(there):
            raise ConfigError(
                f"the environment variable {name}: {'.'.join(way)} has no {part!r}; it is a list of {len(there)}, "
                "counted from 0",
                remedy=f"Correct the number, or give the whole list as JSON in {PREFIX}{'__'.join(way).upper()}",
            )
        return str(int(part))
    if isinstance(file, Mapping):
        for key in file:
            if _plain(key) == _plain(part):
                return str(key)
    return part.replace("_", ".") if way and way[-1] == "client" else part


def _plain(text: str) -> str:
    """A key as a shell can write it in a variable's name."""
    return re.sub("[.-]", "_", text.upper())


def _json_of(name: str, value: str) -> Any:
    """The value of a whole section; never in the message, because it may hold secrets."""
    try:
        return json.loads(value)
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = f"it is not JSON: {error}"
    raise ConfigError(
        f"the environment variable {name} can't be read: {why}",
        remedy="Give a table or a list as JSON, or unset it; docs/configuration.md shows how",
    )


def _list_or_table(value: str) -> Any:
    """A list or a table, given as JSON; else the text as it is."""
    if value.lstrip()[:1] not in {"[", "{"}:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # as a password may begin; where a list or table belongs, checking the value names the key


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
    wanted = _plain(PREFIX + "__".join(key))
    by_name = {_plain(name): name for name in os.environ}
    while wanted not in by_name and "__" in wanted:  # given as JSON, further up
        wanted = wanted.rpartition("__")[0]
    return by_name.get(wanted)


def variable_below(key: tuple[str, ...]) -> str | None:
    """A variable that gives a value in a table of the configuration; None: none does."""
    begins = _plain(PREFIX + "__".join(key))
    return next((name for name in sorted(os.environ) if _plain(name).startswith(f"{begins}__")), None)


def nearest(name: str, file: Mapping[str, Any]) -> str:
    """The remedy for an unknown variable: the name that was probably meant, if there is one."""
    close = get_close_matches(name.upper(), sorted(_names(file)), n=1, cutoff=0.7)
    return f"Did you mean {close[0]}? Rename it, or unset it" if close else "Rename it or unset it"


def _check_name(name: str, secrets: Collection[str], file: Mapping[str, Any], unread: str | None) -> None:
    section, _, key = name.upper().removeprefix(PREFIX).partition("__")
    if name in secrets or section.lower() in Config.model_fields:
        return
    if any(name.upper() in together for together in _TOLD):
        raise ConfigError(
            f"the environment variable {name} is not one that drkit reads: it sets it for its hooks and commands",
            meaning="drkit would ignore it, although it was set on purpose",
            remedy="Unset it, and use the option or the key for what it should do (drkit COMMAND --help)",
        )
    what = f"names no section of the configuration: {section.lower()!r}" if key else "is not one that drkit reads"
    no_secret = "" if unread is None else f", and no configuration says that a secret is read from it: {unread}"
    way_on = (
        "" if unread is None else ". If a configuration reads a secret from it, name that with --config or DRKIT_CONFIG"
    )
    raise ConfigError(
        f"the environment variable {name} {what}{no_secret}",
        meaning="drkit would ignore it, although it was set on purpose",
        remedy=f"{nearest(name, file)}; sections are {', '.join(sorted(Config.model_fields))}, "
        f"written as {PREFIX}STORE__URL{way_on}",
    )


def _names(file: Mapping[str, Any]) -> Iterator[str]:
    """The valid names of variables."""
    yield from _OWN
    for section, field in Config.model_fields.items():
        begins = f"{PREFIX}{section}".upper()
        yield begins
        for model in (field.annotation, *get_args(field.annotation)):
            if isinstance(model, type) and issubclass(model, BaseModel):
                there = file.get(section)
                inner = (
                    there if section == "clusters" and there else range(len(there)) if isinstance(there, list) else ()
                )
                middles = [f"{_plain(str(each))}__" for each in inner] or [""]
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


def cache_dir() -> Path:
    """`$DRKIT_CACHE_DIR`, else the user's cache folder for drkit. It may not exist yet."""
    override = os.environ.get("DRKIT_CACHE_DIR")
    return Path(override).expanduser().resolve() if override else Path(platformdirs.user_cache_dir("drkit"))
