"""Decides who holds a lease after a request: pure, used by both backends inside their own transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from drkit.model.link_state import Lease


@dataclass(frozen=True, slots=True)
class KeptLease:
    """A lease as a backend stores it. `owner` is None once it was released; the epoch stays, because it tells a late
    holder from the next one.
    """

    name: str
    owner: str | None
    epoch: int
    expires_at: datetime

    def lease(self) -> Lease | None:
        """The lease as callers see it; None where nobody holds it."""
        return None if self.owner is None else Lease(self.name, self.owner, self.epoch, self.expires_at)


def decide(kept: KeptLease | None, *, name: str, owner: str, ttl_seconds: float, at: datetime) -> Lease:
    """The lease after `owner` requested it: the owner's, to be stored, or another owner's that is still valid at
    `at`, with nothing to change.

    The epoch stays when the holder renews (even after expiry, if nobody else took the lease in between), and
    grows by one when the owner changes or had released it.
    """
    expires_at = at + timedelta(seconds=ttl_seconds)
    if kept is None:
        return Lease(name, owner, 1, expires_at)
    if kept.owner == owner:
        return Lease(name, owner, kept.epoch, expires_at)
    if kept.owner is not None and kept.expires_at > at:
        return Lease(name, kept.owner, kept.epoch, kept.expires_at)
    return Lease(name, owner, kept.epoch + 1, expires_at)
