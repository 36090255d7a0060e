"""The applications that are measured, one for each client library of Python.

Each is run as `python -m bench.clients.apps.NAME read|write SPEC`; the spec is JSON: `bootstrap`, `topic`, `name` and
`settings`. They do what robust applications do: an error is written to stderr, and they go on with the same client.
Each prints a JSON object a line: `{"at": MS, "read": VALUE}` or `{"at": MS, "written": VALUE}`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

PAUSE_SECONDS = 0.1
"""Between two records that a client writes."""


@dataclass(frozen=True, slots=True)
class Task:
    """What an application is told. `reads`: it reads as a group of its name, else it writes."""

    reads: bool
    bootstrap: str
    topic: str
    name: str
    settings: dict[str, Any]

    @classmethod
    def taken(cls) -> Task:
        """By the command line."""
        role, spec = sys.argv[1:]
        return cls(role == "read", **json.loads(spec))


def say_read(value: bytes | None) -> None:
    """A record was read."""
    _say("read", (value or b"").decode())


def say_written(value: bytes) -> None:
    """A record was acknowledged."""
    _say("written", value.decode())


def say_error(error: object) -> None:
    """Something went wrong, and the application continues."""
    print(f"{_now()} {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _say(event: str, value: str) -> None:
    print(json.dumps({"at": _now(), event: value}), flush=True)


def _now() -> int:
    return int(time.time() * 1000)
