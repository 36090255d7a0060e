"""Sends alerts: to commands, as JSON on their stdin, and to a webhook, as its body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from drkit.config.schema.base import Secret, reveal
from drkit.config.schema.directory import HooksConfig
from drkit.directory.command import ended, run_bounded
from drkit.directory.http import HttpServer
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError

_TAKEN = range(200, 300)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class AlertHooks:
    """The hooks that are called at an alert; false if there are none.

    `url` may hold a token, so messages show only its host. `timeout_seconds`: for each call.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    url: Secret | None = None
    timeout_seconds: float = 60.0

    @classmethod
    def of(cls, config: HooksConfig) -> AlertHooks:
        """The hooks of a continuous audit."""
        return cls(config.audit_alert, config.audit_alert_url, config.timeout_seconds)

    def __bool__(self) -> bool:
        return bool(self.commands) or self.url is not None

    def call(self, alert: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
        """Call all of them, even if earlier ones fail.

        Args:
            alert: their input, as JSON.
            environment: variables for commands, besides this process's own.

        Returns:
            The name and reason of each that failed. Raises nothing for it.
        """
        text = json.dumps(alert)
        failed = []
        for command in self.commands:
            name = f"hook {command[0]}"
            try:
                told = {**environment, "DRKIT_HOOK": "audit_alert"}
                done = run_bounded(command, told, text + "\n", Deadline.after(self.timeout_seconds))
                if done.code != 0:
                    failed.append(ended(name, "do its work", done).what)
            except DrkitError as error:
                failed.append(f"{name}: {error.what}")
        if self.url is not None:
            try:
                failed += _posted(reveal(self.url), text, self.timeout_seconds)
            except ValueError as error:
                failed.append(f"webhook: {error}")
        return failed


def _posted(url: str, text: str, seconds: float) -> list[str]:
    """Post it; returns why that failed, if it did, without the URL's part after its host."""
    parts = urlsplit(url)
    server = HttpServer(
        name=f"webhook at {parts.hostname}",
        host=parts.hostname or "",
        port=parts.port or _PORTS.get(parts.scheme, 0),
        tls=parts.scheme == "https",
        timeout_seconds=seconds,
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        status = server.post(path, text.encode())
    except DrkitError as error:
        return [error.what]
    return [] if status in _TAKEN else [f"{server.name} answered {status}"]
