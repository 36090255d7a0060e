"""The processes that use a store, read from it whatever its schema version.

A process that changes a store holds a lease in it (a mirror's leader, a run) or has a worker's note; both are renewed
every few seconds, and expire if the process dies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from drkit.model.errors import Refused
from drkit.model.wording import and_more
from drkit.store.codec import from_micros
from drkit.store.link_notes import PRODUCER_LEASES
from drkit.store.workers import KIND


def users(
    leases: Iterable[tuple[str, str | None, int]], workers: Iterable[tuple[str, str, str]], at: datetime
) -> list[str]:
    """Descriptions of the store's users at `at`.

    Args:
        leases: name, owner and expiry (microseconds) of each.
        workers: link, owner and body of each worker's note.
        at: now, by the store's clock.
    """
    found = [
        f"{name} by {owner}"
        for name, owner, expires_at in leases
        if owner and not name.startswith(PRODUCER_LEASES) and from_micros(expires_at) > at
    ]
    for link, owner, body in workers:
        if datetime.fromisoformat(json.loads(body)["expires_at"]) > at:
            found.append(f"{KIND} of {link} {owner}")
    return sorted(found)


def in_use(where: str, found: list[str]) -> Refused:
    """The error that a store in use can't be migrated."""
    return Refused(
        f"{where} is in use: {and_more(found, shown=1)}",
        meaning="Mirrors and commands of the older drkit would write rows that this one could misread. Nothing changed",
        remedy="Stop every mirror and let runs end (drkit runs); a killed process is forgotten after 15 s. Then run "
        "this again",
    )
