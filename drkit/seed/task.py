"""A Spark task of the seed: runs the mirror's batch engine over its partitions' ranges, controlled by the driver.

It produces only if the driver has answered within the last `VALID_SECONDS`, and lets the driver make mapping rows
durable before the records that need them. A task that Spark starts again gets no work: the driver finds the first
one's records by checking both clusters.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from drkit.audit.read.log_tasks import FAILED
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.filler import FillerTrimmer
from drkit.kafka.config.client_config import unpacked
from drkit.mirror.engine.batch_engine import BatchEngine
from drkit.mirror.engine.interface import Stopped, Withdrawn
from drkit.mirror.engine.pacing.throttle import Throttle
from drkit.model.errors import DrkitError
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition
from drkit.seed.protocol import (
    HEARTBEAT_SECONDS,
    DriverConnection,
    error_document,
    incident_document,
    notice_document,
    rows_document,
    start_document,
    start_from,
)

_LOOK_SECONDS = 0.02
_SETTLE_SECONDS = 30.0
"""How long a task waits without progress for batches in flight: longer than the target may take to answer."""

_ADMIN_SECONDS = 15.0


def run_tasks(payloads: Iterable[str]) -> Iterator[int]:
    """For Spark's `mapPartitions`: run each payload's task; yields the number of copied records.

    Raises:
        RuntimeError: a task failed; the text carries drkit's error.
    """
    for payload in payloads:
        try:
            yield _run(json.loads(payload))
        except DrkitError as error:
            raise RuntimeError(FAILED + json.dumps(error_document(error))) from None


def _run(job: dict[str, Any]) -> int:
    connect = partial(DriverConnection, job["host"], job["port"], bytes.fromhex(job["key"]))
    with ExitStack() as stack:
        line = connect()
        stack.callback(line.close)
        try:
            asked = time.monotonic()
            order = line.ask("work", task=job["task"])
            if order.get("over"):
                return 0
            rows = connect()
            stack.callback(rows.close)
            source, target = (stack.enter_context(unpacked(job[side])) for side in ("source", "target"))
            names = job["source"]["alias"], job["target"]["alias"]
            admin = stack.enter_context(ClusterAdmin(names[1], target, timeout_seconds=_ADMIN_SECONDS))
            trimmer = FillerTrimmer(names[1], target, admin, lambda: job["producers"])
            stack.callback(trimmer.close)
            throttle = Throttle(order["share"], filled=False)
            task = _Task(job["task"], line, rows, order, asked, trimmer, throttle)
            engine = BatchEngine(
                (names[0], source),
                (names[1], target),
                keep_rows=task.keep_rows,
                may_produce=task.valid,
                trim=task.trim,
                committed=job["committed"],
                buffer_bytes=job["buffer_bytes"],
                throttle=throttle if throttle.limits else None,
                rack=job["rack"],
            )
            stack.callback(engine.close)
            return task.run(engine)
        except (OSError, EOFError):
            return 0  # the driver is gone, or has dropped this task: it checks both clusters before it continues


class _Task:
    """One task's work. `valid`, `keep_rows` and `trim` are called on the engine's threads.

    Args:
        name: its id.
        line, rows: connections to the driver.
        order: the driver's response to `work`, requested at `asked` (monotonic seconds).
        trimmer: of the target.
        throttle: its share of the link's limit.
    """

    def __init__(
        self,
        name: str,
        line: DriverConnection,
        rows: DriverConnection,
        order: dict[str, Any],
        asked: float,
        trimmer: FillerTrimmer,
        throttle: Throttle,
    ) -> None:
        self._throttle = throttle
        self._given_up = threading.Event()  # rows can't be stored: nothing can continue
        self._trimmer = trimmer
        self._name = name
        self._line = line
        self._rows = rows
        self._valid_until: float = asked + order["valid"]
        work = [start_from(each) for each in order["work"]]
        self._starts = [start for start, _, _ in work]
        self._generations = {start.tp: generation for start, generation, _ in work}
        self._left = {start.tp: max(until, start.source_offset) for start, _, until in work}
        self._to_trim = {
            start.tp: (TopicPartition(start.target_topic, start.tp.partition), start.fill_to)
            for start, _, _ in work
            if start.fill_to is not None
        }
        self._trimmed: set[tuple[TopicPartition, int]] = set()
        self._orders = 0
        self._held: set[TopicPartition] = set()

    def valid(self) -> bool:
        """Whether it may produce now: the driver answered recently."""
        return time.monotonic() < self._valid_until and not self._given_up.is_set()

    def trim(self, target: TopicPartition, producer_id: int, begin: int, below: int) -> None:
        """Remove a target partition's filler below an offset, as `FillerTrimmer.trim`."""
        self._trimmer.trim(target, producer_id, begin, below)
        self._trimmed.add((target, below))

    def keep_rows(self, rows: Sequence[OffsetMapping], _: Mapping[TopicPartition, int]) -> None:
        """Returns when the driver has them durable, under the claims that it knows. See
        `drkit.mirror.engine.interface.KeepRows`."""
        try:
            answer = self._rows.ask("rows", task=self._name, rows=rows_document(rows))
        except (OSError, EOFError):
            self._given_up.set()
            raise Stopped from None
        if "failed" in answer:
            raise DrkitError(answer["failed"])
        if not answer["kept"]:
            self._given_up.set()
            raise Stopped
        if answer["withdrawn"]:  # the next heartbeat's response drops them
            raise Withdrawn(TopicPartition(*each) for each in answer["withdrawn"])

    def run(self, engine: BatchEngine) -> int:
        """Copy the partitions to their ends, settle batches in flight, report to the driver; returns copied records.

        It ends at once, without a report, if the driver dropped it or rows can't be stored: its partitions are then
        checked, and continue elsewhere.
        """
        engine.start(self._starts)
        beaten = 0.0
        try:
            while self._left and not self._given_up.is_set():
                incidents = engine.poll(_LOOK_SECONDS)
                for incident in incidents:
                    self._left.pop(incident.tp, None)
                self._take_reached(engine)
                if incidents or time.monotonic() - beaten > HEARTBEAT_SECONDS:
                    beaten = time.monotonic()
                    if not self._heartbeat(engine, [incident_document(each) for each in incidents]):
                        return engine.moved()
            if not self._settle(engine):
                return engine.moved()
            late = [incident_document(each) for each in engine.poll(0.0)]
        finally:
            self._valid_until = 0.0  # sends stop: settled batches stay as they are
        engine.close()
        handed = {tp: engine.handed_over(tp) for tp in self._generations}
        starts = [start_document(start, self._generations[tp], 0) for tp, start in handed.items() if start is not None]
        self._line.ask("done", handed=starts, unsettled=engine.unsettled(), **self._state(engine, late))
        return engine.moved()

    def _settle(self, engine: BatchEngine) -> bool:
        """Stop reading, and wait for batches in flight while any settle; false: the task is over."""
        before, since = None, time.monotonic()
        while not self._given_up.is_set():
            if engine.drain(HEARTBEAT_SECONDS):
                return True
            if not self._heartbeat(engine, [incident_document(each) for each in engine.poll(0.0)]):
                return False
            now = engine.moved(), engine.in_flight()
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > _SETTLE_SECONDS:
                return True  # unsettled partitions aren't returned
        return False

    def _take_reached(self, engine: BatchEngine) -> None:
        """Stop reading partitions that have reached their goals; their batches in flight continue."""
        positions = engine.positions()
        reached = [
            tp
            for tp, until in self._left.items()
            if tp in positions
            and positions[tp].source_through >= until
            and (tp not in self._to_trim or self._to_trim[tp] in self._trimmed)
        ]
        if reached:
            engine.hold(reached)
            for tp in reached:
                del self._left[tp]

    def _state(self, engine: BatchEngine, incidents: list[list[Any]]) -> dict[str, Any]:
        """The report to the driver."""
        positions = engine.positions()
        below = engine.batches_below(positions)
        return {
            "task": self._name,
            "parts": [
                [tp.topic, tp.partition, generation, *positions[tp], *below[tp]]
                for tp, generation in self._generations.items()
                if tp in positions and tp in below
            ],
            "incidents": incidents,
            "notices": [notice_document(each) for each in engine.notices()],
            "counted": engine.statistics().document(),
            "in_flight": engine.in_flight(),
            "orders": self._orders,
        }

    def _heartbeat(self, engine: BatchEngine, incidents: list[list[Any]]) -> bool:
        """Report to the driver, and follow its orders; false: the task is over."""
        asked = time.monotonic()
        answer = self._line.ask("heartbeat", **self._state(engine, incidents))
        if answer.get("over"):
            self._valid_until = 0.0
            return False
        self._valid_until = asked + answer["valid"]
        if answer["share"] is not None:
            self._throttle.limit(answer["share"])
        if answer["valid"] == 0:
            engine.abort_unsent()
        dropped = [TopicPartition(*each) for each in answer["drop"]]
        engine.forget(dropped)
        for tp in dropped:
            self._left.pop(tp, None)
            self._generations.pop(tp, None)
        self._hold(engine, {TopicPartition(*each) for each in answer["held"]})
        self._orders = answer["orders"]
        return True

    def _hold(self, engine: BatchEngine, held: set[TopicPartition]) -> None:
        if held != self._held:
            engine.hold(held - self._held)
            engine.release(tp for tp in self._held - held if tp in self._left)
            self._held = held
