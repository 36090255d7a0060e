"""The lease of a link's leader, and how owners are told apart.

The lease `mirror:<link>` is renewed every few seconds and lasts `TTL_SECONDS`. The store's clock decides whether
another's has expired. This process's monotonic clock, which runs while the process is stopped (SIGSTOP), decides
whether its own is still valid. A renewal counts from before it was requested, and `MARGIN_SECONDS` less, so that this
worker stops before another can start.

An owner is `host:pid:start:machine:token`. A dead owner on the same machine is known (`drkit.processes`), and its lease
is broken at once: a mirror that was SIGKILLed starts again without waiting.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from drkit.model.errors import DrkitError
from drkit.model.link_state import Lease
from drkit.model.topology import LinkId
from drkit.processes import ProcessIdentity
from drkit.store.api import LeaseStore
from drkit.store.workers import lease_name

log = logging.getLogger(__name__)
_T = TypeVar("_T")

TTL_SECONDS = 10.0
MARGIN_SECONDS = 2.0
_PARTS = 5


class WhileLeading(Generic[_T]):
    """What a leader knows of what is stored: made anew where another worker may have led meanwhile. Not thread-safe.

    Args:
        lease: the lease of the leader.
        make: makes it; it loads what the store has.
    """

    def __init__(self, lease: LeaderLease, make: Callable[[], _T]) -> None:
        self._lease = lease
        self._make = make
        self._made: tuple[int | None, _T] | None = None

    def current(self) -> _T:
        """What was made under the present epoch of the lease."""
        epoch = self._lease.epoch
        if self._made is None or self._made[0] != epoch:
            self._made = epoch, self._make()
        return self._made[1]


def this_process() -> str:
    """`host:pid:start:machine:token`; the token tells runtimes of one process apart."""
    own = ProcessIdentity.of()
    return f"{socket.gethostname()}:{own.pid}:{own.started}:{own.machine}:{secrets.token_hex(4)}"


def known_dead(owner: str) -> bool:
    """Whether an owner is surely dead: a process of this machine that has ended."""
    parts = owner.rsplit(":", _PARTS - 1)
    if len(parts) != _PARTS or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return False
    return ProcessIdentity(int(parts[1]), int(parts[2]), parts[3]).known_dead()


class LeaderLease:
    """This runtime's claim to lead the workers of a link.

    `holder`: the last other holder seen; `lost_to`: who took it while this one held it.

    Args:
        store: where leases are kept.
        link: the link.
        ttl_seconds: how long a lease lasts without renewal.
    """

    def __init__(self, store: LeaseStore, link: LinkId, *, ttl_seconds: float = TTL_SECONDS) -> None:
        self.owner = this_process()
        self.holder: str | None = None
        self.lost_to: str | None = None
        self._store = store
        self._link = link
        self._name = lease_name(link)
        self._ttl = ttl_seconds
        self._epoch: int | None = None
        self._valid_until = 0.0

    @property
    def held(self) -> bool:
        """Whether it was this runtime's at the last look; `valid` says whether it still is."""
        return self._epoch is not None

    @property
    def epoch(self) -> int | None:
        """The lease's epoch; None: it isn't held. At another one, another worker may have led meanwhile."""
        return self._epoch

    def take(self) -> bool:
        """Take the lease unless a living worker holds it; returns whether it is this runtime's now.

        Raises:
            Unreachable: the store doesn't answer.
        """
        while True:
            lease = self._ask()
            if lease.owner == self.owner:
                self._epoch, self.holder = lease.epoch, None
                return True
            if not known_dead(lease.owner):
                self.holder = lease.owner
                return False
            log.info("%s: %s led and is dead: its lease is broken", self._link, lease.owner)
            self._store.break_lease(self._name, lease.owner)

    def renew(self) -> bool:
        """Extend the lease; False if another worker has taken it meanwhile, and sets `lost_to`.

        Raises:
            Unreachable: the store doesn't answer.
        """
        lease = self._ask()
        if lease.owner == self.owner and lease.epoch == self._epoch:
            return True
        self.lost_to = self.holder = lease.owner
        self._valid_until = 0.0
        self._epoch = None
        if lease.owner == self.owner:  # it changed hands and came back: work begun under it is void
            self._store.release_lease(self._name, self.owner)
            self.holder = None
        return False

    def valid(self) -> bool:
        """Whether this worker leads now. Sends no request."""
        return time.monotonic() < self._valid_until

    def confirmed(self) -> bool:
        """Whether the store has the lease as this runtime took it, and its clock says that it hasn't expired.

        Raises:
            Unreachable: the store doesn't answer.
        """
        epoch, kept = self._epoch, self._store.lease(self._name)
        if kept is None or (kept.owner, kept.epoch) != (self.owner, epoch):
            return False
        return kept.expires_at > self._store.time()

    def release(self) -> None:
        """Release the lease, so that the next worker needn't wait."""
        self._valid_until = 0.0
        self._epoch = None
        try:
            self._store.release_lease(self._name, self.owner)
        except DrkitError as error:
            log.warning("the lease of %s could not be released and will expire: %s", self._link, error)

    def _ask(self) -> Lease:
        asked = time.monotonic()
        lease = self._store.acquire_lease(self._name, self.owner, self._ttl, self._store.time())
        if lease.owner == self.owner and self._epoch in {None, lease.epoch}:
            self._valid_until = asked + self._ttl - MARGIN_SECONDS
        return lease
