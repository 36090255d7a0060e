"""Who holds a lease after a request: one pure decision that both backends make inside their own transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from drkit.model.link_state import Lease


@dataclass(frozen=True, slots=True)
class KeptLease:
    """A lease as a backend keeps it. `owner` is None once it was given up: the epoch must survive that,
    or a late holder couldn't be told from the next one.
    """

    name: str
    owner: str | None
    epoch: int
    expires_at: datetime

    def lease(self) -> Lease | None:
        """What callers see: nothing where nobody holds it."""
        return None if self.owner is None else Lease(self.name, self.owner, self.epoch, self.expires_at)


def decide(kept: KeptLease | None, *, name: str, owner: str, ttl_seconds: float, at: datetime) -> Lease:
    """The lease as it is after `owner` asked for it: its own, to be kept, or somebody else's that is
    still valid at `at`, and nothing is to be changed.

    The epoch stays where the holder renews (also after expiry, if nobody else took it in between)
    and grows by one whenever the right passes on or was given up before.
    """
    expires_at = at + timedelta(seconds=ttl_seconds)
    if kept is None:
        return Lease(name, owner, 1, expires_at)
    if kept.owner == owner:
        return Lease(name, owner, kept.epoch, expires_at)
    if kept.owner is not None and kept.expires_at > at:
        return Lease(name, kept.owner, kept.epoch, kept.expires_at)
    return Lease(name, owner, kept.epoch + 1, expires_at)
