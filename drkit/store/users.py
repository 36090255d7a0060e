"""The processes that use a store, read from it whatever its schema version.

Whoever changes a store holds a lease in it (a mirror's leader, a run), or has a worker's note; both are renewed every
few seconds, and expire by themselves where a process died.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from drkit.model.errors import Refused
from drkit.store.codec import from_micros
from drkit.store.workers import KIND

_KEPT = "producer:"
"""A link's producer id is kept as a lease that nobody gives up."""


def users(
    leases: Iterable[tuple[str, str | None, int]], workers: Iterable[tuple[str, str, str]], at: datetime
) -> list[str]:
    """Who works with it at `at`, in words.

    Args:
        leases: name, owner and expiry (microseconds) of each.
        workers: link, owner and body of each worker's note.
        at: now, by the store's clock.
    """
    found = [
        f"{name} by {owner}"
        for name, owner, expires_at in leases
        if owner and not name.startswith(_KEPT) and from_micros(expires_at) > at
    ]
    for link, owner, body in workers:
        if datetime.fromisoformat(json.loads(body)["expires_at"]) > at:
            found.append(f"{KIND} of {link} {owner}")
    return sorted(found)


def in_use(where: str, found: list[str]) -> Refused:
    """Why a store isn't migrated while somebody works with it."""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return Refused(
        f"{where} is in use: {found[0]}{more}",
        meaning="Mirrors and commands of the drkit before would write what this one could misread. Nothing was changed",
        remedy="Stop every mirror and let runs end (drkit runs); one that was killed is forgotten after 15 s. Then run "
        "this again",
    )
