"""The ledger of a seed: the progress of each partition, the task that has it, the task's last heartbeat. No I/O, no
threads.

Invariants that keep it exact:

    a partition has one task at a time: it is assigned again only after its task returned it (`done`), or after that
    task is gone and can no longer produce (`find_lost`)

    a returned partition continues from exactly there (offsets, delta, sequence number); any other partition of a task
    becomes an incident, and the session checks both clusters

    no partition becomes an incident while its rows are being stored: none lands after the check (`keep`, `kept`)

    a task's report on a partition counts only while the task has the partition, in the assigned generation: late
    reports change nothing

Times are seconds of the given clock. Not shared by threads without a lock.

A partition is one log: its ranges run in sequence. So only different partitions run concurrently, and there are no more
tasks than partitions with work (`share_out`).
"""

from __future__ import annotations

import itertools
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from drkit.mirror.engine.interface import (
    NOTHING_BELOW,
    BatchBelow,
    Incident,
    IncidentKind,
    Notice,
    PartitionProgress,
    PartitionStart,
)
from drkit.model.offsets import SourceBatch
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition
from drkit.seed.protocol import incident_from, notice_from, start_document, start_from

RANGE_OFFSETS = 8_000_000
"""The most offsets of one partition that a task copies before others get their turn."""

MOST_PARTITIONS = 200
"""The most partitions of one task."""


class Ready(NamedTuple):
    """A partition with work: source offsets [`first`, `until`)."""

    tp: TopicPartition
    first: int
    until: int


def next_range(ready: Ready, most: int = RANGE_OFFSETS) -> Ready:
    """The next range for a task."""
    return ready._replace(until=min(ready.until, ready.first + most))


def share_out(ready: Iterable[Ready], slots: int, most: int = RANGE_OFFSETS) -> list[list[Ready]]:
    """The next ranges, in at most `slots` tasks with about as many offsets each; the rest waits for the next slot.

    The longest go first, so that the longest doesn't run alone at the end.
    """
    if slots <= 0:
        return []
    ranges = [next_range(each, most) for each in sorted(ready, key=lambda each: each.first - each.until)]
    tasks: list[list[Ready]] = [[] for _ in range(min(slots, len(ranges)))]
    loads = [0] * len(tasks)
    for each in ranges:
        lightest = min(range(len(tasks)), key=lambda number: (loads[number], len(tasks[number])))
        full = loads[lightest] + each.until - each.first > most
        if tasks[lightest] and (full or len(tasks[lightest]) >= MOST_PARTITIONS):
            continue
        tasks[lightest].append(each)
        loads[lightest] += each.until - each.first
    return tasks


@dataclass(slots=True)
class SeedPartition:
    """One partition since it was started, or returned.

    `until`: the source offset at which it is done (None: not known yet); `goal`: the end of its task's range; `task`:
    its current task; `still`: it is halted until it is restarted.
    """

    start: PartitionStart
    generation: int
    position: PartitionProgress
    until: int | None = None
    goal: int = 0
    task: str | None = None
    still: bool = False
    below: BatchBelow = NOTHING_BELOW

    def ready(self) -> bool:
        """Whether a task could continue with it."""
        if self.task is not None or self.still or self.until is None:
            return False
        return self.position.source_through < self.until or self.start.fill_to is not None


@dataclass(slots=True)
class Task:
    """An assigned task.

    `begun`: its start; `may_until`: until when it may produce; `ended`: it returned its partitions; `lost`: it is gone.
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
        """Whether it may still produce or report."""
        return not (self.ended or self.lost)


class SeedLedger:
    """See the module docstring. `incidents`, `notices`: reports for the session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.incidents: queue.Queue[Incident] = queue.Queue()
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

    # -- orders of the session ---------------------------------------------------------------------

    def start(self, starts: Iterable[PartitionStart]) -> None:
        """Begin, or begin again, with these partitions."""
        for start in starts:
            at = PartitionProgress(start.source_offset, start.target_offset)
            below = BatchBelow(start.leader_epoch, None)
            self._parts[start.tp] = SeedPartition(start, next(self._numbers), at, below=below)
            self._untold.pop(start.tp, None)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop mirroring these; tasks learn it with their next heartbeat."""
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

    # -- views for the session ---------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        """Progress of each partition."""
        return {tp: part.position for tp, part in self._parts.items()}

    def batches_below(self, positions: Mapping[TopicPartition, PartitionProgress]) -> dict[TopicPartition, BatchBelow]:
        """See `Engine.batches_below`; none for a partition that has moved on since."""
        return {tp: part.below for tp, part in self._parts.items() if positions.get(tp) == part.position}

    def statistics(self) -> EngineStatistics:
        """All tasks' counters as one engine's."""
        return EngineStatistics(**_sum([self._counted, *(task.counted for task in self._tasks.values())]))

    def in_flight(self) -> int:
        """Unacknowledged records. A task that hasn't received the latest orders may have some."""
        running = [task for task in self._tasks.values() if task.taken_up and task.alive]
        return sum(max(task.in_flight, int(task.orders < self._orders)) for task in running)

    def unasked(self) -> set[TopicPartition]:
        """Partitions that no task is to move now: they are copied, or they wait while tasks have others."""
        busy = self.running() > 0
        return {tp for tp, part in self._parts.items() if not part.still and self._is_unasked(part, busy=busy)}

    def _is_unasked(self, part: SeedPartition, *, busy: bool) -> bool:
        if part.task is None:
            return busy or (part.until is not None and not part.ready())
        return not self._tasks[part.task].taken_up or part.position.source_through >= part.goal

    def waits_for(self, tp: TopicPartition) -> str | None:
        """What a partition waits for; None if it isn't here."""
        part = self._parts.get(tp)
        if part is None:
            return None
        if part.task is None:
            return "a free place among Spark's tasks"
        return f"Spark's task {part.task}, at source offset {part.position.source_through}"

    # -- giving out --------------------------------------------------------------------------------

    def endless(self) -> bool:
        """Whether there are partitions whose end isn't set."""
        return any(part.until is None for part in self._parts.values())

    def set_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Set the source offsets up to which records are copied, where they aren't set yet; of a partition that is none
        of them (it came later) nothing is. Nothing is set while there are none."""
        for tp, part in self._parts.items() if ends else ():
            if part.until is None:
                part.until = max(ends.get(tp, 0), part.start.source_offset)

    def ready(self) -> list[Ready]:
        """Partitions that tasks could continue."""
        return [
            Ready(tp, part.position.source_through, part.until or 0)
            for tp, part in self._parts.items()
            if part.ready() and tp not in self._held
        ]

    def last_batches(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, SourceBatch]:
        """What tasks read last of these, where they read any."""
        return {tp: batch for tp in tps if (batch := self._parts[tp].below.batch) is not None}

    def changed(self, tps: Iterable[TopicPartition]) -> None:
        """The source holds something else than was read of these: the session checks both sides, unless they were
        started again meanwhile."""
        for tp in tps:
            part = self._parts.get(tp)
            if part is not None and part.task is None and part.below.batch is not None and not part.still:
                part.still = True
                reason = "the source doesn't hold what was read last, or its cleaner wrote it anew"
                self._tell(Incident(tp, IncidentKind.SOURCE_AWAY, reason))

    def running(self) -> int:
        """How many slots are taken."""
        return sum(1 for task in self._tasks.values() if task.alive)

    def producing(self) -> int:
        """How many tasks may produce, now or once they begin; lost ones count until that is over."""
        return sum(1 for task in self._tasks.values() if not task.ended)

    def give(self, ranges: Sequence[Ready]) -> str:
        """Create a task of these ranges, all of them ready; returns its id."""
        name = f"seed-{next(self._numbers)}"
        for each in ranges:
            part = self._parts[each.tp]
            part.task, part.goal = name, each.until
        self._tasks[name] = Task({each.tp: self._parts[each.tp].generation for each in ranges}, self._clock())
        return name

    def idle_seconds(self) -> float:
        """How long tasks have waited for their start while none was running; 0 if one is."""
        alive = [task for task in self._tasks.values() if task.alive]
        if not alive or any(task.taken_up for task in alive):
            return 0.0
        return self._clock() - min(task.submitted for task in alive)

    # -- reports of tasks --------------------------------------------------------------------------

    def alive(self, name: str) -> bool:
        """Whether a task's reports count."""
        return name in self._tasks and self._tasks[name].alive

    def knows(self, name: str) -> bool:
        """Whether a task isn't forgotten yet."""
        return name in self._tasks

    def taken_up(self, name: str) -> bool:
        """Whether a task has been begun."""
        return name in self._tasks and self._tasks[name].taken_up

    def take_up(self, name: str) -> list[dict[str, Any]] | None:
        """Start a task; returns its work. None if it was started before."""
        task = self._tasks[name]
        if task.taken_up:
            return None
        task.taken_up, task.begun, task.orders = True, self._clock(), self._orders
        return [start_document(part.start, part.generation, part.goal) for _, part in self._of(task)]

    def grant(self, name: str, seconds: float) -> float:
        """Let a task produce for so long from now on; returns the same."""
        task = self._tasks[name]
        task.may_until = max(task.may_until, self._clock() + seconds)  # it may not know yet that it may not
        return seconds

    def keep(self, name: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The claims of those of these that this task has now: their rows may be stored. Call `kept` for them
        afterwards."""
        asked = frozenset(tps)
        mine = {tp: part.start.claim for tp, part in self._of(self._tasks[name]) if tp in asked}
        self._keeping.update(mine.keys())
        return mine

    def kept(self, tps: Iterable[TopicPartition]) -> None:
        """Rows of these are no longer being stored; reports pending incidents."""
        for tp in tps:
            self._keeping[tp] -= 1
            if self._keeping[tp] > 0:
                continue
            del self._keeping[tp]
            incident = self._untold.pop(tp, None)
            if incident is not None:
                self.incidents.put(incident)

    def heartbeat(self, name: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """Take a task's progress; returns its orders."""
        task = self._tasks[name]
        mine = dict(self._of(task))
        drop = []
        for topic, number, generation, through, end, epoch, batch in said["parts"]:
            part = mine.get(TopicPartition(topic, number))
            if part is None or part.generation != generation:
                drop.append([topic, number])
            else:
                part.position = PartitionProgress(through, end)
                part.below = BatchBelow(epoch, None if batch is None else SourceBatch(*batch))
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
        """End a task: its partitions continue elsewhere, exactly where it stopped."""
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
        """A task is silent. `losses` counts consecutive ones without progress between them.

        Concurrent tasks count once: a worker that dies takes all of its tasks with it.
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
        """Forget ended tasks; partitions of lost ones become uncertain once these can no longer produce."""
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
        """The task's partitions that are still as assigned."""
        for tp, generation in task.parts.items():
            part = self._parts.get(tp)
            if part is not None and part.generation == generation and not part.still:
                yield tp, part

    def _uncertain(self, tp: TopicPartition, part: SeedPartition, reason: str) -> None:
        part.still, part.task = True, None
        self._tell(Incident(tp, IncidentKind.UNCERTAIN, reason))

    def _tell(self, incident: Incident) -> None:
        """Report to the session, which then checks the partition: only once its rows have landed, or surely won't."""
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
