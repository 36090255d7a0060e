"""Reloads the configuration of a long-running command, and logs the outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from drkit.config import Config, load_config
from drkit.config.reload import reload_config
from drkit.model.errors import DrkitError

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
