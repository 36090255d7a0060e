"""The right to run: one failover or failback on a link at a time.

The lease is renewed in the background. If its holder was killed on this machine, its process is gone and the lease is
taken at once; a holder elsewhere keeps it until it expires by the store's clock, while the holder itself uses its
monotonic clock. A holder that was stopped and finds the lease free again has still lost it: the epoch differs. A
machine whose clock is far from the store's refuses to act, because its evidence would be wrong.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from drkit.model.clock import MOST_SKEW_SECONDS, iso, now
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.topology import LinkId
from drkit.processes import ProcessIdentity
from drkit.store.api import LeaseStore

TTL_SECONDS = 15.0
_RENEW_SECONDS = TTL_SECONDS / 3
_TAKEN = "another process had it meanwhile"
_OWNER = re.compile(r"(?P<who>.+) pid (?P<pid>\d+) started (?P<started>\d+) on (?P<machine>\S+) run (?P<run>\S+)")


@dataclass(frozen=True, slots=True)
class Owner:
    """The holder of a run's lease: a process (`drkit.processes`), and its run."""

    who: str
    pid: int
    started: int
    machine: str
    run: str

    @classmethod
    def this_process(cls, run: str) -> Owner:
        """The current process."""
        process = ProcessIdentity.of()
        return cls(
            who=f"{_user()}@{socket.gethostname()}",
            pid=process.pid,
            started=process.started,
            machine=process.machine,
            run=run,
        )

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Parse an owner; None if it isn't drkit's."""
        match = _OWNER.fullmatch(text)
        if match is None:
            return None
        return cls(match["who"], int(match["pid"]), int(match["started"]), match["machine"], match["run"])

    def __str__(self) -> str:
        return f"{self.who} pid {self.pid} started {self.started} on {self.machine} run {self.run}"

    def known_dead(self) -> bool:
        """Whether it was a process of this machine and is gone. False: alive, or unknown."""
        return ProcessIdentity(self.pid, self.started, self.machine).known_dead()


def clock_error(store: LeaseStore) -> Refused | None:
    """What a run is refused for by this machine's clock; None: nothing."""
    asked = time.monotonic()
    at = store.time()
    return _skewed((now() - at).total_seconds() - (time.monotonic() - asked))


def _skewed(seconds: float) -> Refused | None:
    if abs(seconds) <= MOST_SKEW_SECONDS:
        return None
    return Refused(
        f"this machine's clock is {abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'} the store's",
        meaning="Loss and recovery time would be measured wrong, and runs told apart by the wrong times",
        remedy="Set the clock of this machine, or of the store's (NTP), then try again",
    )


class RunLease:
    """Holds `run:<link>` while a run acts on the link. A context manager.

    `what`: another word, for a separate lease; `link`: a description, if it concerns no link.

    Raises (on entering):
        Refused: another process holds it; the message names it.
    """

    def __init__(self, store: LeaseStore, link: LinkId | str, run: str, *, what: str = "run") -> None:
        self._store = store
        self._name = f"{what}:{link}"
        self._link = link
        self._then = " and then `drkit resume`" if what == "run" else ""
        self._owner = Owner.this_process(run)
        self._valid_until = 0.0
        self._epoch = 0
        self._lost: str | None = None
        self._told_to_stop: str | None = None
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="drkit-run-lease", daemon=True)

    def __enter__(self) -> Self:
        self._acquire()
        self._renewer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._renewer.join()
        try:
            self._store.release_lease(self._name, str(self._owner))
        except DrkitError:
            return  # it expires by itself; the run's own result matters more

    @property
    def owner(self) -> str:
        """The stored owner."""
        return str(self._owner)

    @property
    def operator(self) -> str:
        """The owner as user@host."""
        return self._owner.who

    def stop_acting(self, why: str) -> None:
        """Make every thread that acts under the lease stop before its next action."""
        self._told_to_stop = why

    @property
    def lost(self) -> bool:
        """Whether another operator may act by now."""
        return self._lost is not None or time.monotonic() >= self._valid_until

    def check_not_taken(self) -> None:
        """Raise `PartlyDone` if another process has had the lease since, as far as the store says.

        A process that was stopped for long trips over the other's work when it wakes: this is the reason then.
        """
        if self._lost is None and time.monotonic() >= self._valid_until:
            with suppress(DrkitError):
                lease = self._store.lease(self._name)
                if lease is None or (lease.owner, lease.epoch) != (str(self._owner), self._epoch):
                    self._lost = _TAKEN
        if self._lost is not None:
            self.check()

    def check(self) -> None:
        """Raise `PartlyDone` unless the lease is surely held: called before every action."""
        if self._told_to_stop is not None:
            raise PartlyDone(
                f"{self._told_to_stop} while it acted on {self._link}",
                meaning="Completed work is journaled; the current stage will be repeated",
                remedy=f"drkit resume {self._owner.run}",
            )
        if not self.lost:
            return
        why = self._lost or "it could not be renewed in time"
        raise PartlyDone(
            f"the right to run on {self._link} was lost: {why}",
            meaning="Another operator may act now, so this one stops",
            remedy=f"`drkit runs {self._owner.run}` shows how far it came; once nobody else acts: "
            f"drkit resume {self._owner.run}",
        )

    def _acquire(self) -> None:
        asked = time.monotonic()
        at = self._store.time()
        skewed = _skewed((now() - at).total_seconds() - (time.monotonic() - asked))
        if skewed is not None:
            raise skewed
        lease = self._store.acquire_lease(self._name, str(self._owner), TTL_SECONDS, at)
        holder = Owner.parse(lease.owner)
        if lease.owner != str(self._owner) and holder is not None and holder.known_dead():
            self._store.break_lease(self._name, lease.owner)
            lease = self._store.acquire_lease(self._name, str(self._owner), TTL_SECONDS, at)
            holder = Owner.parse(lease.owner)
        if lease.owner != str(self._owner):
            left = max(1, math.ceil((lease.expires_at - at).total_seconds()))
            who = f"{holder.who} (pid {holder.pid}, run {holder.run})" if holder is not None else lease.owner
            raise Refused(
                f"{who} is acting on {self._link}",
                meaning=f"One run at a time; its lease is valid until {iso(lease.expires_at)} unless it is renewed",
                remedy=f"Wait for it to end, or stop that process{self._then}. If it was frozen, or its machine is "
                f"gone, the same command works in {left} s",
            )
        self._epoch = lease.epoch
        self._valid_until = asked + TTL_SECONDS

    def _renew(self) -> None:
        while not self._stop.wait(_RENEW_SECONDS):
            asked = time.monotonic()
            try:
                lease = self._store.acquire_lease(self._name, str(self._owner), TTL_SECONDS, self._store.time())
            except DrkitError:
                continue  # `check` stops the run once the lease isn't surely held any more
            if lease.owner != str(self._owner):
                self._lost = f"{lease.owner} took it"
                return
            if lease.epoch != self._epoch:  # this process was stopped; another may even have finished the run
                self._lost = _TAKEN
                with suppress(DrkitError):
                    self._store.release_lease(self._name, str(self._owner))
                return
            self._valid_until = asked + TTL_SECONDS


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in containers
        return str(os.getuid())
