"""Reloads the configuration of a running process, and logs that: which changes take effect, which don't, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from drkit.config.effective import dotted, leaves
from drkit.config.load import KeyPath, load_config
from drkit.config.schema.config import Config, LinkConfig
from drkit.model.errors import ConfigError, DrkitError

LINK_RELOADED = frozenset(
    {
        "topics",
        "exclude_topics",
        "groups",
        "exclude_groups",
        "topic_settings",
        "deletions",
        "deletion_limit",
        "timeline",
        "canary",
        "range_digests",
        "max_bytes_per_second",
        "catch_up",
        "buffer_bytes",
    }
)
"""Keys of `[[links]]` that may change while a mirror runs."""

FIXED = {
    "clusters": "clients are connected with the clusters' old configuration",
    "store": "the store is open",
}
"""Tables that no running process can change, and why."""

FIXED_SERVE = FIXED | {"serve": "the page listens already"}
"""The same for `drkit serve`."""

_FIXED_LINK = "it decides which records the target gets and in which form, and all workers of the link must agree on it"
_LINK_SET = "a process keeps the links with which it started"


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A key whose new value doesn't take effect. `key`: with its tables, as the new file has it."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reloaded:
    """`config`: the effective one from now on. `changed`: keys with new values; `refused`: keys with their old ones."""

    config: Config
    changed: tuple[str, ...]
    refused: tuple[RefusedKey, ...]


def reload_config(current: Config, fresh: Config, fixed: Mapping[str, str]) -> Reloaded:
    """The result of reading `fresh` in a process that runs with `current`.

    Args:
        current: the effective configuration.
        fresh: the new one from the file and the environment.
        fixed: `FIXED`, or `FIXED_SERVE`.

    Raises:
        ConfigError: the new values contradict the old ones that stay; nothing takes effect.
    """
    found = dict(_differences(current, fresh, fixed))
    changed = tuple(key for key, reason in found.items() if reason is None)
    refused = tuple(RefusedKey(key, reason) for key, reason in found.items() if reason is not None)
    return Reloaded(_mixed(current, fresh, fixed) if changed else current, changed, refused)


def _differences(current: Config, fresh: Config, fixed: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Keys with other values, each with the reason why it keeps the old one (None: it doesn't)."""
    for name in Config.model_fields:
        if name != "links":
            before, after = getattr(current, name), getattr(fresh, name)
            yield from ((dotted(path), fixed.get(name)) for path in _changed(before, after, (name,)))
    before_links, numbers = _by_name(current), {name: number for number, name in enumerate(_by_name(fresh))}
    for name, link in _by_name(fresh).items():
        number = str(numbers[name])
        if name not in before_links:
            yield f"links.{number}", f"{name} is new: {_LINK_SET}"
            continue
        for path in _changed(before_links[name], link, ("links", number)):
            yield f"{dotted(path)} ({name})", None if path[2] in LINK_RELOADED else _FIXED_LINK
    for name in before_links.keys() - numbers.keys():
        yield f"links ({name})", f"it was removed: {_LINK_SET}"


def _by_name(config: Config) -> dict[str, LinkConfig]:
    return {f"{link.source}->{link.target}": link for link in config.links}


def _changed(before: Any, after: Any, path: KeyPath) -> list[KeyPath]:
    """Keys of a table whose values differ, in order."""
    old, new = dict(leaves(before, path)), dict(leaves(after, path))
    return [key for key in dict.fromkeys([*new, *old]) if key not in old or key not in new or old[key] != new[key]]


def _mixed(current: Config, fresh: Config, fixed: Mapping[str, str]) -> Config:
    """The old configuration with the permitted changes of the new one; checked like a file."""
    kept = {*fixed, "links"}
    values = {name: getattr(current if name in kept else fresh, name) for name in Config.model_fields}
    new_links = _by_name(fresh)
    values["links"] = [
        {
            key: getattr(new_links.get(name, link) if key in LINK_RELOADED else link, key)
            for key in LinkConfig.model_fields
        }
        for name, link in _by_name(current).items()
    ]
    try:
        mixed = Config.model_validate(values)
    except ValidationError as error:
        why = "; ".join(str(each["msg"]) for each in error.errors(include_input=False, include_url=False))
        raise ConfigError(
            f"{current.file}: the new values that may take effect contradict old ones that stay: {why}",
            remedy="Restart the process to apply all of the new file",
        ) from None
    mixed._file = current.file  # noqa: SLF001 - as `load_config` sets it
    for before, after in zip(current.links, mixed.links, strict=True):
        if before.link().shares_target != after.link().shares_target:
            raise ConfigError(
                f"{current.file}: with these topics another set of links would write the topics of "
                f"{after.source}->{after.target} on {after.target}",
                meaning="drkit doesn't translate offsets of topics with several writers: the mirror must restart",
                remedy="Restart all workers of the link to apply the new file",
            )
    return mixed


log = logging.getLogger(__name__)


class LiveConfig:
    """The configuration of a running command.

    Args:
        config: the one that it started with.
        command: its name, for people.
        fixed: tables that it can't change (`drkit.config.reload`).
        take: makes a new one take effect.
    """

    def __init__(self, config: Config, command: str, fixed: Mapping[str, str], take: Callable[[Config], None]) -> None:
        self._config = config
        self._command = command
        self._fixed = fixed
        self._take = take

    def reload(self) -> None:
        """Read the file again. What can't be used is logged with its remedy, and the old values stay."""
        try:
            found = reload_config(self._config, load_config(self._config.file), self._fixed)
            if found.changed:
                self._take(found.config)
        except DrkitError as error:
            log.error("the configuration is not reloaded, the old one stays: %s", error)  # noqa: TRY400 - not a defect
            return
        except Exception:  # the process must not lose its way to reload, nor end
            log.exception("the configuration is not reloaded, the old one stays: a bug of drkit")
            return
        self._config = found.config
        for each in found.refused:
            log.warning(
                "%s: %s is not changed while drkit runs: %s. The old value stays until `drkit %s` is restarted",
                self._config.file,
                each.key,
                each.reason,
                self._command,
            )
        if found.changed:
            log.info("%s is reloaded; changed: %s", self._config.file, ", ".join(found.changed))
        elif not found.refused:
            log.info("%s is read again: nothing in it changed", self._config.file)
