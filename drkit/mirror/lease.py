"""The worker's lease: one mirror per link, and a stopped process that wakes up must not go on writing.

The lease `mirror:<link>` is renewed every `RENEW_SECONDS` and lasts `TTL_SECONDS`. What counts before
each produce round is this process's monotonic clock: it runs on while the process is stopped
(SIGSTOP), so a worker that slept through its lease finds it invalid at its first look. A renewal
counts from before it was asked for, and `MARGIN_SECONDS` less, so that this worker stops before
another can start.

An owner is `host:pid:start:token`. On the same host a dead owner is found out by its pid and start
time, and its lease is broken at once: a mirror that was SIGKILLed starts again without waiting.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time

import psutil

from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.links import Lease
from drkit.model.topology import LinkId
from drkit.store.api import LeaseStore

log = logging.getLogger(__name__)

TTL_SECONDS = 10.0
RENEW_SECONDS = 2.0
MARGIN_SECONDS = 2.0
_PARTS = 4


def lease_name(link: LinkId) -> str:
    """The name of a link's worker lease."""
    return f"mirror:{link}"


def this_process() -> str:
    """`host:pid:start:token`; the token tells runtimes of one process apart."""
    started = int(psutil.Process().create_time() * 1000)
    return f"{socket.gethostname()}:{os.getpid()}:{started}:{secrets.token_hex(4)}"


def known_dead(owner: str) -> bool:
    """Whether an owner is surely dead: of this host, and no process of that pid and start time lives."""
    parts = owner.rsplit(":", _PARTS - 1)
    if len(parts) != _PARTS or parts[0] != socket.gethostname() or not (parts[1] + parts[2]).isdecimal():
        return False
    try:
        process = psutil.Process(int(parts[1]))
        return process.status() == psutil.STATUS_ZOMBIE or int(process.create_time() * 1000) != int(parts[2])
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


class WorkerLease:
    """This runtime's lease of a link.

    Args:
        store: where leases are kept.
        link: the link.
        ttl_seconds: how long a lease lasts without renewal.
    """

    def __init__(self, store: LeaseStore, link: LinkId, *, ttl_seconds: float = TTL_SECONDS) -> None:
        self.owner = this_process()
        self.lost_to: str | None = None
        self._store = store
        self._link = link
        self._name = lease_name(link)
        self._ttl = ttl_seconds
        self._epoch: int | None = None
        self._valid_until = 0.0

    def acquire(self, stop: threading.Event) -> bool:
        """Take the lease, waiting for as long as a dead holder's may last; false when told to stop first.

        Raises:
            Refused: somebody else holds it and renews it.
        """
        deadline = time.monotonic() + self._ttl + RENEW_SECONDS
        seen: Lease | None = None
        while not stop.is_set():
            try:
                lease = self._ask()
            except Unreachable as error:
                if time.monotonic() > deadline:
                    raise
                log.warning("waiting for the store: %s", error)
                stop.wait(RENEW_SECONDS / 2)
                continue
            if lease.owner == self.owner:
                self._epoch = lease.epoch
                return True
            if known_dead(lease.owner):
                log.info("the last worker of %s (%s) is dead: its lease is broken", self._link, lease.owner)
                self._store.break_lease(self._name, lease.owner)
                continue
            renewed = seen is not None and seen.owner == lease.owner and seen.expires_at != lease.expires_at
            seen = lease
            if renewed or time.monotonic() > deadline:
                raise Refused(
                    f"another worker mirrors {self._link}: {lease.owner}",
                    meaning="Two workers on one link would write each record twice",
                    remedy="Stop that worker, or let it work: `drkit status` shows what it does",
                )
            stop.wait(0.5)
        return False

    def renew(self) -> None:
        """Extend the lease. Sets `lost_to` where another worker has taken it meanwhile."""
        lease = self._ask()
        if lease.owner != self.owner or lease.epoch != self._epoch:
            self.lost_to = lease.owner
            self._valid_until = 0.0

    def valid(self) -> bool:
        """Whether this worker may produce now. Asks no one."""
        return time.monotonic() < self._valid_until

    def release(self) -> None:
        """Give the lease up, so that the next worker needn't wait."""
        self._valid_until = 0.0
        try:
            self._store.release_lease(self._name, self.owner)
        except DrkitError as error:
            log.warning("the lease of %s could not be given up and will expire: %s", self._link, error)

    def _ask(self) -> Lease:
        asked = time.monotonic()
        lease = self._store.acquire_lease(self._name, self.owner, self._ttl, now())
        if lease.owner == self.owner and self._epoch in {None, lease.epoch}:
            self._valid_until = asked + self._ttl - MARGIN_SECONDS
        return lease
