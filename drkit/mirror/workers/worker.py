"""One worker of a link: whether it may produce, leads, mirrors everything.

A worker announces itself by a note in the store (`drkit.store.workers`), renewed every `HEARTBEAT_SECONDS`; it expires
by the store's clock, like a lease.
**It may produce** while its note is valid and it hasn't been stopped. This process's monotonic clock decides, which
runs while the process is stopped: a thread ticks all the time, and a tick that is missed for `SLEEP_SECONDS` (less than
the group's session) is noticed by the next check. No clock runs while a hypervisor pauses the machine: a worker there
believes its note for as long as it had left, and only the brokers refuse what it sends (`drkit.store.producers`).

**What it knew before is void** once others may have taken over: it was stopped, its note had expired or was gone when
it renewed it, or another one leads. Each look (`one_look`) stores only as long as none of that has happened since it
began; the next look sees what the others have done.

**The leader** holds the link's lease. It alone keeps the target's topics and the captured groups in step.
When it dies another takes the lease: at once if it is known to be dead, else when the lease has expired.

**Everything or the group's share.** While the leader is the only worker, it mirrors every partition, whatever the group
says. When another worker appears it follows the group's assignment, and says so in its note only once it has released
the rest; until then the others wait. Each side writes its own note before it reads the others', so at most one
continues:

    leader   note(everything) ── read notes: nobody else? ── begin
    other    note ── read notes: does somebody mirror everything? ── wait, or begin
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from drkit.mirror.workers.leader_lease import MARGIN_SECONDS, TTL_SECONDS, LeaderLease, known_dead
from drkit.model.errors import DrkitError
from drkit.model.process import keeping_context
from drkit.model.topology import LinkId
from drkit.state_topic.other_store import SESSION_SECONDS
from drkit.store.api import Store
from drkit.store.workers import WorkerNote, forget_workers, live_workers, lose_workers, put_worker, read_workers

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
SLEEP_SECONDS = 0.7 * SESSION_SECONDS
_RENEW_SECONDS = 2.0
_TICK_SECONDS = 0.25
_STALE = timedelta(seconds=60)


class Worker:
    """See the module docstring. Threads may share it; call `heartbeat` without holding a lock.

    Args:
        store: where workers announce themselves.
        link: the link.
        lease: this worker's claim to lead.
        joined: whether the group has assigned this worker anything.
        mirrored: how many partitions it mirrors now.
        slept: called when this process turns out to have been stopped, before it may produce again.
    """

    def __init__(
        self,
        store: Store,
        link: LinkId,
        lease: LeaderLease,
        *,
        joined: Callable[[], bool],
        mirrored: Callable[[], int],
        slept: Callable[[], None],
    ) -> None:
        self.owner = lease.owner
        self._store = store
        self._link = link
        self._lease = lease
        self._joined = joined
        self._mirrored = mirrored
        self._slept = slept
        self._lock = threading.RLock()
        self._everything = False
        self._letting_go = False
        self._interruptions = 0
        self._look_began = threading.local()
        self._waits_for: str | None = None
        self._others = 0
        self._valid_until = 0.0
        self._asleep = False
        self._valid_from = 0.0
        self._ticked = time.monotonic()
        self._written: tuple[bool, bool, int] | None = None
        self._written_at = 0.0
        self._announced = False
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=keeping_context(self._tick), name="drkit-tick", daemon=True)

    # -- what holds now ----------------------------------------------------------------------------

    def valid(self) -> bool:
        """Whether this worker may produce now. Sends no request."""
        at = time.monotonic()
        return at < self._valid_until and not self._asleep and at - self._ticked < SLEEP_SECONDS

    def leads(self) -> bool:
        """Whether this worker keeps topics and groups in step now."""
        return self._lease.valid() and self.valid()

    def one_look(self, work: Callable[[], None]) -> None:
        """Do some work that reads and then stores by what it has read: it may store nothing any more once others may
        have taken over since it began (`may_write`)."""
        self._look_began.interruptions = self._interruptions
        try:
            work()
        finally:
            del self._look_began.interruptions

    def may_write(self) -> bool:
        """Whether this worker's note holds by the store's clock, too: no clock of a machine runs while its hypervisor
        pauses it; and has held since this thread's look began.

        Raises:
            Unreachable: the store doesn't answer.
        """
        if not self.valid():
            return False
        note = any(note.owner == self.owner for note in live_workers(self._store, self._link, self._store.time()))
        return note and not self._interrupted()

    def may_write_as_leader(self) -> bool:
        """Whether this worker holds the lease by the store's clock, too, and has held its note since this thread's look
        began. Raises as `may_write`."""
        return self.leads() and self._lease.confirmed() and not self._interrupted()

    @property
    def everything(self) -> bool:
        """Whether it mirrors all partitions, rather than those that the group assigns."""
        return self._everything and not self._letting_go

    @property
    def waits_for(self) -> str | None:
        """The worker that still mirrors everything, so that this one must wait, or None."""
        return self._waits_for

    @property
    def workers(self) -> int:
        """How many workers the link had at the last look, this one included."""
        return 1 + self._others

    @property
    def alone(self) -> bool:
        """Whether the last look found no other worker."""
        return self._others == 0

    # -- life --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Announce this worker; if it leads and is alone, it mirrors everything from now on.

        Raises:
            Unreachable: the store doesn't answer.
        """
        self._ticked = time.monotonic()
        if self._ticker.ident is None:
            self._ticker.start()
        self.heartbeat()

    def heartbeat(self) -> bool:
        """Renew, read the others' notes, decide; returns whether this worker's partitions changed.

        Raises:
            Unreachable: the store doesn't answer; this worker's rights expire.
        """
        with self._lock:
            before = (self.everything, self._waits_for)
            begun = time.monotonic()
            self._lead()
            self._announce()
            others = self._look()
            self._decide(others)
            if not self._ended.is_set() and begun >= self._valid_from:
                self._valid_until = self._written_at + TTL_SECONDS - MARGIN_SECONDS
                self._asleep = False
            return before != (self.everything, self._waits_for)

    def settled(self) -> None:
        """Announce that this worker has released all but its share: the others may begin.

        Raises:
            Unreachable: the store doesn't answer; the next heartbeat announces it.
        """
        with self._lock:
            if self._letting_go:
                self._letting_go = self._everything = False
                self._announce()

    def end(self, *, settled: bool) -> None:
        """Stop, and withdraw this worker's announcements. It may produce nothing any more.

        Args:
            settled: whether the target got all that this worker sent (`Engine.unsettled`); else that stays on record.
        """
        self._ended.set()
        self._valid_until = 0.0
        try:
            if settled:
                forget_workers(self._store, self._link, [self.owner])
            else:
                lose_workers(self._store, self._link, [self.owner], self._store.time())
        except DrkitError as error:
            log.warning("%s: this worker's note could not be removed and will expire: %s", self._link, error)

    # -- inside ------------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Renew the lease, or take it unless a living worker holds it."""
        led = self._lease.held
        leads = self._lease.renew() if led else self._lease.take()
        if leads and not led:
            log.info("%s: this worker leads now", self._link)
        elif led and not leads:
            self._interruptions += 1
            log.warning("%s: %s leads now; this worker continues with its share", self._link, self._lease.lost_to)

    def _announce(self) -> None:
        at = time.monotonic()
        state = (self._lease.held, self._everything, self._mirrored())
        if state == self._written and at - self._written_at < _RENEW_SECONDS:
            return
        self._find_expired()
        seen = self._store.time()  # readers compare with it: this machine's clock may be another one
        note = WorkerNote(self.owner, *state, seen, seen + timedelta(seconds=TTL_SECONDS))
        put_worker(self._store, self._link, note)
        self._written, self._written_at, self._announced = state, at, True

    def _find_expired(self) -> None:
        """Whether others have seen this worker's note expire, or removed it, since it was written last."""
        if self._announced and all(
            note.owner != self.owner for note in live_workers(self._store, self._link, self._store.time())
        ):
            log.warning("%s: this worker's note had expired before it was renewed", self._link)
            self._interruptions += 1

    def _interrupted(self) -> bool:
        """Whether others may have taken over since this thread's look began."""
        return getattr(self._look_began, "interruptions", self._interruptions) != self._interruptions

    def _look(self) -> list[WorkerNote]:
        """The other living workers. The leader removes the notes of dead ones."""
        at = self._store.time()
        notes = [note for note in read_workers(self._store, self._link) if note.owner != self.owner]
        dead = [note.owner for note in notes if known_dead(note.owner) or note.expires_at < at - _STALE]
        if dead and self._lease.held:
            lose_workers(self._store, self._link, dead, at)
        return [note for note in notes if note.expires_at > at and note.owner not in dead]

    def _decide(self, others: list[WorkerNote]) -> None:
        self._others = len(others)
        leads = self._lease.held
        if leads and not others and not self._everything:
            self._everything = True
            self._announce()  # before the second look: see the module docstring
            others = self._look()
            self._others = len(others)
            if others:
                self._everything = False
                self._announce()
        elif self._everything and (not leads or (others and self._joined())):
            self._letting_go = True
        self._waits_for = None if leads else self._unannounced({note.owner for note in others})
        for note in others:
            if note.everything and not self._everything:
                self._waits_for = note.owner

    def _unannounced(self, announced: set[str]) -> str | None:
        """A lease holder without a note (it is just starting, or an older drkit): it may mirror everything."""
        holder = self._lease.holder
        return None if holder is None or holder in announced else holder

    def _tick(self) -> None:
        """Notice that this process was stopped."""
        while not self._ended.wait(_TICK_SECONDS):
            at = time.monotonic()
            if at - self._ticked > SLEEP_SECONDS:
                log.warning("%s: this process was stopped for %.0f s", self._link, at - self._ticked)
                self._asleep = True
                self._valid_until = 0.0
                self._interruptions += 1
                self._written = None
                self._slept()
                self._valid_from = time.monotonic()
            self._ticked = time.monotonic()
