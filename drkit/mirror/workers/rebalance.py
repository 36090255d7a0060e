"""Which partitions this worker mirrors, and how one changes workers without a lost or duplicated record.

    takes       hold it by the group's assignment (or everything, alone) ─▶ claim a new generation ─▶ resume as
                after a crash ─▶ read
    releases    stop reading ─▶ wait for acknowledgements ─▶ forget ─▶ store the watermark ─▶
                drop the claim ─▶ only now the group assigns it to the next worker
    loses       forget at once and drop the claim: another worker may already have it; its claim makes
                this one's remaining writes ineffective

The other partitions continue meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from drkit.config.schema.config import ClusterConfig
from drkit.mirror.engine.interface import Engine, PartitionProgress
from drkit.mirror.progress import MirrorProgress
from drkit.mirror.topics.topic_sync import ReadyTopic
from drkit.mirror.workers.assignment import Assignment
from drkit.mirror.workers.leader_lease import LeaderLease
from drkit.mirror.workers.membership import Membership
from drkit.mirror.workers.partition_claims import ClaimedMappings, PartitionClaims
from drkit.mirror.workers.worker import Worker
from drkit.model.errors import DrkitError, Fenced, Unreachable
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Claims, Store

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 3.0
_STILL_SECONDS = 0.3
_RELEASE_SECONDS = 6.0


@dataclass(slots=True)
class _Departure:
    """Partitions that are about to be released: the data thread drains them, the caller records them."""

    tps: set[TopicPartition]
    due: float
    watermarks: list[Watermark] = field(default_factory=list)
    seen: dict[TopicPartition, PartitionProgress] = field(default_factory=dict)
    seen_at: float = 0.0
    held: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class Rebalance:
    """See the module docstring. Threads may share it; `serve` belongs to the data thread.

    Args:
        target: the cluster with the workers' group.
        link: the link.
        store: drkit's store.
        lease: this worker's claim to lead.
        assignment: makes the `Assignment`, given a function that says which partitions are this worker's.
        forget: makes the data thread stop partitions, after its earlier orders.
        wake: requests the resume of wanted partitions.
        client_id: this worker's in the group; known once topics are.
        ending: set when the run ends.
    """

    def __init__(
        self,
        target: ClusterConfig,
        link: Link,
        store: Store,
        lease: LeaderLease,
        assignment: Callable[[Callable[[TopicPartition], bool]], Assignment],
        *,
        forget: Callable[[Collection[TopicPartition]], None],
        wake: Callable[[], None],
        client_id: Callable[[], str],
        ending: threading.Event,
    ) -> None:
        self._link = link
        self._forget = forget
        self._wake = wake
        self._ending = ending
        self._holdings = PartitionClaims(link.id, store)
        self._membership = Membership(
            target,
            link.id,
            client_id=client_id,
            changed=self.rebalance,
            released=self._released,
            lost=self._lost,
        )
        self.mappings = ClaimedMappings(store, self._holdings)
        self.assignment = assignment(self.holds)
        self.worker = Worker(
            store,
            link.id,
            lease,
            joined=lambda: self._membership.joined,
            mirrored=lambda: len(self.assignment.running()),
            slept=self._slept,
        )
        self._rebalancing = threading.Lock()
        self._lock = threading.Lock()
        self._departures: list[_Departure] = []

    def start(self) -> None:
        """Join the group."""
        self._membership.start()

    def close(self) -> None:
        """Leave the group: this worker mirrors nothing any more."""
        self._membership.close()

    # -- whose is it -------------------------------------------------------------------------------

    def holds(self, tp: TopicPartition) -> bool:
        """Whether a partition (by source topic) is this worker's now."""
        if self.worker.waits_for is not None:
            return False
        if self.worker.everything:
            return True
        return TopicPartition(self._link.target_topic(tp.topic), tp.partition) in self._membership.assigned()

    @property
    def trouble(self) -> str | None:
        """Why this worker gets no partition although it should."""
        if self.worker.everything:
            return None
        if self.worker.waits_for is not None:
            return f"{self.worker.waits_for} mirrors all partitions until it has joined the group, too"
        return self._membership.trouble

    def topics(self, ready: dict[str, ReadyTopic]) -> list[TopicPartition]:
        """Set the link's current topics. Returns partitions that must stop at once."""
        self._membership.subscribe({topic.state.target_topic for topic in ready.values()})
        gone = self.assignment.update(ready)
        self._holdings.drop(gone)
        return gone

    def claim(self, wanted: Mapping[TopicPartition, ReadyTopic]) -> Claims:
        """Claim partitions anew before they are resumed; returns the claims of those that this worker holds now.

        Raises:
            Unreachable: the store doesn't answer.
        """
        return self._holdings.take((tp, ready.state.epoch) for tp, ready in wanted.items())

    def started(self, tps: Iterable[TopicPartition]) -> None:
        """These are started with their claims."""
        self._holdings.started(tps)

    # -- changes -----------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Renew this worker's note, read the others', follow changes.

        Raises:
            Unreachable: the store doesn't answer.
        """
        if self.worker.heartbeat():
            self.rebalance()

    def rebalance(self) -> None:
        """Release partitions that are no longer this worker's, then want the current ones."""
        with self._rebalancing:
            leaving = [tp for tp in self.assignment.engaged() if not self.holds(tp)]
            if leaving:
                self._let_go(leaving)
            try:
                self.worker.settled()
            except Unreachable as error:
                log.warning("%s: %s", self._link.id, error)
            self.assignment.again()
        self._wake()

    def fenced(self, error: Fenced, claims: Claims | None = None) -> None:
        """Another worker has claimed partitions that this one was about to write, with these claims (None: the current
        ones)."""
        taken = self._holdings.lost(error.partitions, claims)
        if taken:  # otherwise this worker has just released them itself, or claimed them for another start
            log.warning("%s: %s", self._link.id, error)
            self._drop(taken)

    def restart(self) -> None:
        """Take everything again, after an interruption in which this worker may have lost partitions."""
        self._drop(self.assignment.engaged())

    def serve(self, engine: Engine, progress: MirrorProgress) -> None:
        """On the data thread: drain and forget partitions to be released."""
        if not self._departures:
            return
        with self._lock:
            departures = list(self._departures)
        for departure in departures:
            if not self._drained(engine, departure):
                continue
            departure.watermarks = [mark for mark in progress.current() if mark.tp in departure.tps]
            engine.forget(departure.tps)
            progress.forget(departure.tps)
            with self._lock:
                self._departures.remove(departure)
            departure.done.set()

    # -- inside ------------------------------------------------------------------------------------

    def _drained(self, engine: Engine, departure: _Departure) -> bool:
        """Whether their positions show nothing in flight; or whether that took too long."""
        at = time.monotonic()
        if not departure.held:
            engine.hold(departure.tps)
            departure.held = True
        positions = engine.positions()
        seen = {tp: positions[tp] for tp in departure.tps if tp in positions}
        if not seen or engine.in_flight() == 0 or at > departure.due:
            return True
        if seen != departure.seen:
            departure.seen, departure.seen_at = seen, at
        return at - departure.seen_at > _STILL_SECONDS

    def _let_go(self, tps: Sequence[TopicPartition]) -> None:
        """Wait until the data thread has drained these and they are recorded and released."""
        departure = _Departure(set(self.assignment.release(tps)), time.monotonic() + _DRAIN_SECONDS)
        if departure.tps:
            log.info("%s: %d partitions go to another worker", self._link.id, len(departure.tps))
            with self._lock:
                self._departures.append(departure)
            deadline = time.monotonic() + _RELEASE_SECONDS
            while not departure.done.wait(0.1) and time.monotonic() < deadline and not self._ending.is_set():
                pass
            if departure.watermarks:
                try:
                    self.mappings.put_watermarks(self._link.id, departure.watermarks)
                except DrkitError as error:
                    log.warning("%s: the last positions could not be kept: %s", self._link.id, error)
        self._holdings.drop(tps)

    def _released(self) -> None:
        """The group revokes partitions, because another worker joined."""
        if self.worker.everything:
            try:
                self.worker.heartbeat()
            except DrkitError as error:
                log.warning("%s: %s", self._link.id, error)
        self.rebalance()

    def _lost(self, tps: Collection[TopicPartition]) -> None:
        """The group has reassigned partitions while this worker was silent (by target topic)."""
        if not self.worker.everything:
            log.warning("%s: the group gave %d partitions to others", self._link.id, len(tps))
            self._drop([tp for tp in self.assignment.engaged() if not self.holds(tp)])

    def _slept(self) -> None:
        self._membership.doubt()
        self.restart()

    def _drop(self, tps: Iterable[TopicPartition]) -> None:
        """Stop these now; those that are still this worker's are claimed and resumed again, a little later."""
        dropped = list(tps)
        self._holdings.drop(dropped)
        self.assignment.dropped(dropped)
        self._forget(dropped)
