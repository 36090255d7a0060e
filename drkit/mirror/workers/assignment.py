"""Which partitions run, wait for their start, or are halted: state shared by a session's threads.

topics thread ── ready ──▶ wanted ── resume thread ──▶ started (data thread: engine.start)
                             ▲                             │
                             └──── incident: observe again ┘        halted: until its problem is cleared

Of the ready partitions only those that this worker holds are wanted (`drkit.mirror.workers.rebalance`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from drkit.mirror.engine.interface import Incident
from drkit.mirror.topics.topic_sync import ReadyTopic
from drkit.model.topology import TopicPartition

_CALM_SECONDS = 10.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_DROPPED_PAUSE = 2.0


class Assignment:
    """See the module docstring. Threads may share it.

    Args:
        halts: whether a problem halts a partition.
        holds: whether a partition is this worker's.
    """

    def __init__(self, halts: Callable[[TopicPartition], bool], holds: Callable[[TopicPartition], bool]) -> None:
        self._halts = halts
        self._holds = holds
        self._lock = threading.Lock()
        self._ready: dict[TopicPartition, ReadyTopic] | None = None
        self._running: dict[TopicPartition, int] = {}
        self._wanted: dict[TopicPartition, float] = {}
        self._resuming: dict[TopicPartition, int] = {}
        self._pauses: dict[TopicPartition, tuple[float, float]] = {}
        self._takes = 0

    def update(self, topics: dict[str, ReadyTopic]) -> list[TopicPartition]:
        """Set the topics that may be mirrored now. Returns running partitions that no longer may, or not as they do."""
        ready = {tp: topic for topic in topics.values() for tp in topic.tps()}
        with self._lock:
            self._ready = ready
            gone = [tp for tp, epoch in self._running.items() if tp not in ready or ready[tp].state.epoch != epoch]
            for tp in gone:
                del self._running[tp]
            self._wanted = {tp: due for tp, due in self._wanted.items() if tp in ready}
            self._want(ready)
        return gone

    def again(self) -> None:
        """This worker's partitions may have changed: update the wanted ones."""
        with self._lock:
            self._want(self._ready or {})

    def _want(self, ready: Iterable[TopicPartition]) -> None:
        for tp in ready:
            busy = tp in self._running or tp in self._wanted or tp in self._resuming
            if not busy and self._holds(tp) and not self._halts(tp):
                self._wanted[tp] = 0.0

    def take(self, most: int) -> tuple[dict[TopicPartition, ReadyTopic], int]:
        """Partitions to be resumed now, and the number of this take, for `started`.

        The caller gives each back, or calls `halted` or `started`.
        """
        at = time.monotonic()
        with self._lock:
            ready = self._ready or {}
            due = [tp for tp, when in self._wanted.items() if when <= at and tp in ready][:most]
            self._takes += 1
            for tp in due:
                del self._wanted[tp]
                self._resuming[tp] = self._takes
            return {tp: ready[tp] for tp in due}, self._takes

    def give_back(self, tps: Iterable[TopicPartition]) -> None:
        """Return partitions that couldn't be observed; they are due again soon."""
        due = time.monotonic() + _FIRST_PAUSE
        with self._lock:
            for tp in tps:
                if self._resuming.pop(tp, None) is not None and tp in (self._ready or {}):
                    self._wanted[tp] = due

    def started(self, tp: TopicPartition, epoch: int, take: int) -> bool:
        """A partition is about to be started; False if it no longer may, not in this epoch, or was taken again
        after `take`.
        """
        with self._lock:
            if self._resuming.get(tp) != take:
                return False
            del self._resuming[tp]
            ready = (self._ready or {}).get(tp)
            if ready is None or ready.state.epoch != epoch:
                return False  # the next topic sync wants it again, if at all
            self._running[tp] = epoch
            return True

    def observe_again(self, incident: Incident) -> None:
        """A partition halted for a cause that may pass: resume it, after a longer wait at each repetition."""
        at = time.monotonic()
        with self._lock:
            self._running.pop(incident.tp, None)
            if incident.tp not in (self._ready or {}) or not self._holds(incident.tp):
                return
            last, pause = self._pauses.get(incident.tp, (0.0, 0.0))
            pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE) if at - last < _CALM_SECONDS + pause else 0.0
            self._pauses[incident.tp] = (at, pause)
            self._wanted[incident.tp] = at + pause

    def hurry(self, topic: str) -> None:
        """Retry partitions of the topic at once: somebody has fixed their cause."""
        with self._lock:
            for tp in self._wanted:
                if tp.topic == topic:
                    self._wanted[tp] = 0.0
                    self._pauses.pop(tp, None)

    def halted(self, tps: Iterable[TopicPartition]) -> None:
        """These are halted until their problem is cleared."""
        with self._lock:
            for tp in tps:
                self._running.pop(tp, None)
                self._wanted.pop(tp, None)
                self._resuming.pop(tp, None)

    def release(self, tps: Sequence[TopicPartition]) -> list[TopicPartition]:
        """These go to another worker. Returns those that were running."""
        with self._lock:
            released = [tp for tp in tps if self._running.pop(tp, None) is not None]
            for tp in tps:
                self._wanted.pop(tp, None)
                self._resuming.pop(tp, None)
            return released

    def dropped(self, tps: Iterable[TopicPartition]) -> None:
        """These were lost; those that this worker still holds are wanted again, a little later."""
        due = time.monotonic() + _DROPPED_PAUSE
        with self._lock:
            for tp in tps:
                self._running.pop(tp, None)
                self._wanted.pop(tp, None)
                self._resuming.pop(tp, None)
                if tp in (self._ready or {}) and self._holds(tp) and not self._halts(tp):
                    self._wanted[tp] = due

    def engaged(self) -> list[TopicPartition]:
        """Partitions that run, are being resumed or wait for it."""
        with self._lock:
            return list({**self._running, **self._resuming, **self._wanted})

    def partitions(self) -> dict[TopicPartition, ReadyTopic]:
        """All partitions that the link has now, running or not."""
        with self._lock:
            return dict(self._ready or {})

    def running(self) -> list[TopicPartition]:
        """Partitions that were started."""
        with self._lock:
            return list(self._running)
