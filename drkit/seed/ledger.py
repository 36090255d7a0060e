"""The ledger of a seed: the progress of each partition, the task that has it, the task's last heartbeat. No I/O, no
threads.

What holds, and why it is exact:

    a partition is with one task at a time: it is given out again only after its task handed it over (`done`), or
    after that task is gone and the time is over in which it might still produce (`find_lost`)

    a partition that was handed over continues from exactly there (offsets, delta, sequence number); of any other that
    a task had, nothing is believed: it becomes an incident, and the session looks at both clusters

    no partition becomes an incident while rows of it are on their way into the store: none lands after it was
    looked at (`keep`, `kept`)

    what a task says of a partition counts only while the partition is the task's, in the generation that it was
    given: a late word changes nothing

Times are seconds of the clock given. Not shared by threads without a lock.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from drkit.mirror.engine.interface import Incident, IncidentKind, Notice, PartitionProgress, PartitionStart
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition
from drkit.seed.protocol import incident_from, notice_from, start_document, start_from
from drkit.seed.ranges import Ready


@dataclass(slots=True)
class SeedPartition:
    """One partition since it was started, or handed over.

    `until`: what its source held then (None: not asked yet); `goal`: where its task's range ends; `task`: who has
    it now; `still`: it stands still until it is restarted.
    """

    start: PartitionStart
    generation: int
    position: PartitionProgress
    until: int | None = None
    goal: int = 0
    task: str | None = None
    still: bool = False
    epoch: int | None = None

    def ready(self) -> bool:
        """Whether a task could continue with it."""
        if self.task is not None or self.still or self.until is None:
            return False
        return self.position.source_through < self.until or self.start.fill_to is not None


@dataclass(slots=True)
class Task:
    """A task given out.

    `begun`: when it was taken up; `may_until`: until when it may produce; `ended`: it handed over; `lost`: it is gone.
    """

    parts: Mapping[TopicPartition, int]
    submitted: float
    taken_up: bool = False
    begun: float = 0.0
    ended: bool = False
    lost: bool = False
    may_until: float = 0.0
    orders: int = -1
    in_flight: int = 0
    counted: Mapping[str, Any] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether something may still come of it."""
        return not (self.ended or self.lost)


class SeedLedger:
    """See the module docstring. `incidents`, `notices`: what is to be told to the session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.incidents: queue.SimpleQueue[Incident] = queue.SimpleQueue()
        self.notices: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self.losses = 0
        self._clock = clock
        self._parts: dict[TopicPartition, SeedPartition] = {}
        self._tasks: dict[str, Task] = {}
        self._held: frozenset[TopicPartition] = frozenset()
        self._counted: Mapping[str, Any] = {}
        self._numbers = itertools.count(1)
        self._orders = 0
        self._moved_at_loss = 0
        self._lost_at = float("-inf")
        self._keeping: Counter[TopicPartition] = Counter()
        self._untold: dict[TopicPartition, Incident] = {}

    # -- what the session wants --------------------------------------------------------------------

    def start(self, starts: Iterable[PartitionStart]) -> None:
        """Begin, or begin again, with these partitions."""
        for start in starts:
            at = PartitionProgress(start.source_offset, start.target_offset)
            known = None if start.leader_epoch < 0 else start.leader_epoch
            self._parts[start.tp] = SeedPartition(start, next(self._numbers), at, epoch=known)
            self._untold.pop(start.tp, None)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """These are mirrored no more; tasks are told with their next heartbeat."""
        for tp in tps:
            self._parts.pop(tp, None)
            self._untold.pop(tp, None)
        self._orders += 1

    def hold(self, tps: Iterable[TopicPartition]) -> None:
        """Read no more of these."""
        self._set_held(self._held | set(tps))

    def release(self, tps: Iterable[TopicPartition]) -> None:
        """Read on."""
        self._set_held(self._held - set(tps))

    def _set_held(self, held: frozenset[TopicPartition]) -> None:
        if held != self._held:
            self._held = held
            self._orders += 1

    # -- what the session sees ---------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        """Progress of each partition."""
        return {tp: part.position for tp, part in self._parts.items()}

    def epochs(self, positions: Mapping[TopicPartition, PartitionProgress]) -> dict[TopicPartition, int]:
        """The source's leader epochs below these positions, where known: one that has moved on since says nothing."""
        return {
            tp: part.epoch
            for tp, part in self._parts.items()
            if part.epoch is not None and positions.get(tp) == part.position
        }

    def statistics(self) -> EngineStatistics:
        """All tasks' counters as one engine's."""
        return EngineStatistics(**_sum([self._counted, *(task.counted for task in self._tasks.values())]))

    def in_flight(self) -> int:
        """What waits for acknowledgement. A task that hasn't heard the latest orders may have something."""
        running = [task for task in self._tasks.values() if task.taken_up and task.alive]
        return sum(max(task.in_flight, int(task.orders < self._orders)) for task in running)

    def waits_for(self, tp: TopicPartition) -> str | None:
        """What a partition waits for; None where it isn't here."""
        part = self._parts.get(tp)
        if part is None:
            return None
        if part.task is None:
            return "a free place among Spark's tasks"
        return f"Spark's task {part.task}, at source offset {part.position.source_through}"

    # -- giving out --------------------------------------------------------------------------------

    def endless(self) -> list[TopicPartition]:
        """Partitions of which it isn't known yet where their source ends."""
        return [tp for tp, part in self._parts.items() if part.until is None]

    def set_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Where sources end now: up to there they are brought over."""
        for tp, end in ends.items():
            part = self._parts.get(tp)
            if part is not None and part.until is None:
                part.until = end

    def ready(self) -> list[Ready]:
        """What tasks could continue with."""
        return [
            Ready(tp, part.position.source_through, part.until or 0)
            for tp, part in self._parts.items()
            if part.ready() and tp not in self._held
        ]

    def running(self) -> int:
        """How many tasks have a place."""
        return sum(1 for task in self._tasks.values() if task.alive)

    def producing(self) -> int:
        """How many tasks may produce, now or once they begin; lost ones count until that is over."""
        return sum(1 for task in self._tasks.values() if not task.ended)

    def give(self, ranges: Sequence[Ready]) -> str:
        """Make a task of these ranges, all of them ready; its id."""
        name = f"seed-{next(self._numbers)}"
        for each in ranges:
            part = self._parts[each.tp]
            part.task, part.goal = name, each.until
        self._tasks[name] = Task({each.tp: self._parts[each.tp].generation for each in ranges}, self._clock())
        return name

    def idle_seconds(self) -> float:
        """For how long tasks have waited to be begun while none was running; 0 where one is."""
        alive = [task for task in self._tasks.values() if task.alive]
        if not alive or any(task.taken_up for task in alive):
            return 0.0
        return self._clock() - min(task.submitted for task in alive)

    # -- what is heard of tasks --------------------------------------------------------------------

    def alive(self, name: str) -> bool:
        """Whether a task's word counts."""
        return name in self._tasks and self._tasks[name].alive

    def knows(self, name: str) -> bool:
        """Whether a task isn't forgotten yet."""
        return name in self._tasks

    def taken_up(self, name: str) -> bool:
        """Whether a task has been begun."""
        return name in self._tasks and self._tasks[name].taken_up

    def take_up(self, name: str) -> list[dict[str, Any]] | None:
        """A task is begun: its work. None where it was begun before."""
        task = self._tasks[name]
        if task.taken_up:
            return None
        task.taken_up, task.begun, task.orders = True, self._clock(), self._orders
        return [start_document(part.start, part.generation, part.goal) for _, part in self._of(task)]

    def grant(self, name: str, seconds: float) -> float:
        """A task may produce for so long from now on; the same."""
        task = self._tasks[name]
        task.may_until = max(task.may_until, self._clock() + seconds)  # it may not have heard yet that it may not
        return seconds

    def keep(self, name: str, tps: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Which of these are with this task now: rows of them may be kept. `kept` is due for them afterwards."""
        mine = frozenset(tps) & {tp for tp, _ in self._of(self._tasks[name])}
        self._keeping.update(mine)
        return mine

    def kept(self, tps: Iterable[TopicPartition]) -> None:
        """Rows of these are on their way no more, kept or not; what had to wait for that is told."""
        for tp in tps:
            self._keeping[tp] -= 1
            if self._keeping[tp] > 0:
                continue
            del self._keeping[tp]
            incident = self._untold.pop(tp, None)
            if incident is not None:
                self.incidents.put(incident)

    def heartbeat(self, name: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """A task tells how far it is; what it is to do."""
        task = self._tasks[name]
        mine = dict(self._of(task))
        drop = []
        for topic, number, generation, through, end, epoch in said["parts"]:
            part = mine.get(TopicPartition(topic, number))
            if part is None or part.generation != generation:
                drop.append([topic, number])
            else:
                part.position, part.epoch = PartitionProgress(through, end), epoch
        for incident in map(incident_from, said["incidents"]):
            if incident.tp in mine:
                mine[incident.tp].still, mine[incident.tp].task = True, None
                self._tell(incident)
        for notice in said["notices"]:
            self.notices.put(notice_from(notice))
        task.counted, task.in_flight, task.orders = said["counted"], said["in_flight"], said["orders"]
        held = [[tp.topic, tp.partition] for tp in mine if tp in self._held]
        return {"drop": drop, "held": held, "orders": self._orders}

    def done(self, name: str, handed: Sequence[Mapping[str, Any]]) -> None:
        """A task is done: its partitions continue elsewhere, from exactly where it left them."""
        task = self._tasks[name]
        starts = {start.tp: start for start, _, _ in map(start_from, handed)}
        for tp, part in self._of(task):
            start = starts.get(tp)
            if start is None:
                self._uncertain(tp, part, "its task ended before all of it was settled")
            else:
                part.start, part.task = start, None
                part.position = PartitionProgress(start.source_offset, start.target_offset)
        task.ended, task.in_flight, self.losses = True, 0, 0

    def gone(self, name: str) -> None:
        """A task is heard no more. `losses` counts those in a row between which nothing moved.

        Tasks that ran side by side count once: a worker that dies takes all of its own with it.
        """
        task = self._tasks[name]
        task.lost, task.in_flight = True, 0
        if not task.taken_up:  # its worker died before
            task.begun = self._clock()
        moved = self.statistics().records
        if moved > self._moved_at_loss:
            self.losses = 1
        elif task.begun > self._lost_at:
            self.losses += 1
        else:
            return
        self._moved_at_loss, self._lost_at = moved, self._clock()

    def find_lost(self) -> None:
        """Forget tasks that are over; partitions of lost ones are uncertain once these can't produce any more."""
        at = self._clock()
        for name, task in list(self._tasks.items()):
            if task.alive or (task.lost and at <= task.may_until):
                continue
            for tp, part in self._of(task):
                if part.task == name:
                    self._uncertain(tp, part, f"Spark's task {name} is gone")
            self._counted = _sum([self._counted, task.counted])
            del self._tasks[name]

    def _of(self, task: Task) -> Iterator[tuple[TopicPartition, SeedPartition]]:
        """The task's partitions that are still what it was given."""
        for tp, generation in task.parts.items():
            part = self._parts.get(tp)
            if part is not None and part.generation == generation and not part.still:
                yield tp, part

    def _uncertain(self, tp: TopicPartition, part: SeedPartition, reason: str) -> None:
        part.still, part.task = True, None
        self._tell(Incident(tp, IncidentKind.UNCERTAIN, reason))

    def _tell(self, incident: Incident) -> None:
        """Tell the session, which then looks at the partition: not before its rows have landed, or surely won't."""
        if self._keeping[incident.tp] > 0:
            self._untold[incident.tp] = incident
        else:
            self.incidents.put(incident)


def _sum(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counters of several engines as one's."""
    total: dict[str, Any] = {}
    for counted in found:
        for each in fields(EngineStatistics):
            value = counted.get(each.name)
            if value is None:
                continue
            if isinstance(value, Mapping):
                into = total.setdefault(each.name, {})
                for reason, count in value.items():
                    into[reason] = into.get(reason, 0) + count
            else:
                total[each.name] = total.get(each.name, 0) + value
    return total
