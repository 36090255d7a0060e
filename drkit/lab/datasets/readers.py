"""Consumer groups that read and commit while a data set is loaded: real consumers, one thread each.

| behaviour | reads | commits |
|---|---|---|
| live | everything | its position, also past invisible records (markers, aborted records) |
| lagging | a share of each partition's log, never more | its position: far behind the log's end |
| ahead | like lagging; holds back what it fetched early | the log's end, beyond what it has processed |

Every reader stops within a bounded time, even if its cluster is dead: librdkafka's own close can hang then, so it runs
in the reader's (daemon) thread, and callers stop waiting for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from drkit.lab.datasets.report import Behaviour, GroupReport
from drkit.model.topology import TopicPartition

Messages = Sequence[Any]
"""confluent-kafka messages. Any, because its stubs make every accessor optional; in a record they are never None."""

_STOPPING_ROUND_SECONDS = 0.2
_LAST_COMMIT_SECONDS = 3.0
_CLOSE_SECONDS = 5.0

POLL_SECONDS = 0.1
_BATCH = 1000
_ANSWER_SECONDS = 1.0


def reader_config(client: Mapping[str, Any], group: str) -> dict[str, Any]:
    """The librdkafka properties of a group reader: it commits itself, and gets the ends of partitions."""
    return {
        **client,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "session.timeout.ms": 10_000,  # leaves the group soon when it, or the cluster, is killed
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 16_384,
        "log_level": 0,  # error_cb gets what matters
    }


def list_offsets(consumer: Consumer, tps: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int]:
    """The first (`OFFSET_BEGINNING`) or end (`OFFSET_END`) offset of partitions, without those that don't answer.

    Kafka's ListOffsets accepts these constants in place of a timestamp, and so does this call of the client.
    """
    if not tps:
        return {}
    try:
        answers = consumer.offsets_for_times([ClientPartition(*tp, which) for tp in tps], timeout=_ANSWER_SECONDS)
    except KafkaException:
        return {}  # no cluster now: error_cb has reported it, and the next round asks again
    return {TopicPartition(a.topic, a.partition): a.offset for a in answers if a.error is None and a.offset >= 0}


def fetch(consumer: Consumer) -> list[Any]:
    """Up to a batch of messages, waiting only for the first one (`consume` would wait its whole timeout)."""
    first = consumer.poll(POLL_SECONDS)
    if first is None:
        return []
    return [first, *consumer.consume(_BATCH - 1, 0)]


class GroupReader:
    """One consumer in one group. Call `start`; later `request_stop` and `join`, or `stop`, which does both.

    Args:
        group: the consumer group.
        topics: its subscription; they should exist.
        client: librdkafka properties of the cluster (at least ``bootstrap.servers``).
        behaviour: see the module docstring.
        share: how much of each partition's log a lagging or ahead reader processes (0 to 1).
        commit_interval_seconds: the interval between commits.
        on_messages: called with each batch of processed records, in the reader's thread.
    """

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        client: Mapping[str, Any],
        behaviour: Behaviour,
        *,
        share: float = 0.1,
        commit_interval_seconds: float = 1.0,
        on_messages: Callable[[Messages], None] | None = None,
    ) -> None:
        if not topics:
            raise ValueError("a group reads at least one topic")
        if not 0 <= share <= 1:
            raise ValueError(f"share must be between 0 and 1, not {share:g}")
        self.group = group
        self.topics = tuple(topics)
        self.behaviour = behaviour
        self._client = dict(client)
        self._share = share
        self._interval = commit_interval_seconds
        self._on_messages = on_messages
        self._thread: threading.Thread | None = None
        self._stop_by: float | None = None
        self._catches_up = False
        self._stopping = False
        self._next_round = 0.0
        self._lock = threading.Lock()  # guards what other threads read: the next three
        self._read = 0
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._asked: dict[TopicPartition, int] = {}  # offsets sent to be committed
        self._assigned: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}  # the last known log ends
        self._ends_seen: dict[TopicPartition, int] = {}  # the ends that fetching reached: nothing is left below
        self._ends_come: dict[TopicPartition, int] = {}  # those that came with the last messages
        self._limits: dict[TopicPartition, int] = {}  # process only below this offset
        self._paused: set[TopicPartition] = set()
        self._held: dict[TopicPartition, deque[Any]] = {}  # fetched, not to be processed yet
        self._trouble: str | None = None
        self._refusals: set[str] = set()  # why commits were refused
        self._problem: str | None = None

    # -- for other threads -------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group and read."""
        if self._thread is not None:
            raise RuntimeError("a reader starts once")
        self._thread = threading.Thread(target=self._guarded, name=f"group-{self.group}", daemon=True)
        self._thread.start()

    def request_stop(self, *, catch_up_seconds: float = 0.0) -> None:
        """Stop soon: at once, or when it has caught up as its behaviour requires, within this time."""
        self._catches_up = catch_up_seconds > 0
        self._stop_by = time.monotonic() + catch_up_seconds

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; returns whether the reader has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def stop(self, *, catch_up_seconds: float = 0.0) -> bool:
        """`request_stop` and wait; False if it hangs (its cluster is dead), which leaves it behind."""
        self.request_stop(catch_up_seconds=catch_up_seconds)
        while not self.overdue:
            if self.join(POLL_SECONDS):
                return True
        return False

    @property
    def overdue(self) -> bool:
        """Whether it should have ended by now: don't wait any longer."""
        grace = _LAST_COMMIT_SECONDS + _CLOSE_SECONDS
        return self._stop_by is not None and time.monotonic() > self._stop_by + grace

    @property
    def trouble(self) -> str | None:
        """The client's last error (such as a dead broker) since the cluster last answered; None: there is none."""
        return self._trouble

    @property
    def ended(self) -> bool:
        """Whether it was started and has ended."""
        return self._thread is not None and not self._thread.is_alive()

    def report(self) -> GroupReport:
        """Its progress now."""
        problem = self._problem
        if problem is None and self.overdue and not self.ended:
            problem = "did not leave in time; the cluster drops it from the group when its session expires"
        with self._lock:
            return GroupReport(
                self.group,
                self.behaviour,
                self.topics,
                self._read,
                dict(self._positions),
                dict(self._committed),
                problem,
            )

    # -- the reader's thread -----------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            self._run()
        except KafkaException as failure:
            self._problem = f"stopped reading: {failure.args[0].str()}"
        except Exception as error:  # noqa: BLE001  # a thread has nobody to raise to: the report says it
            self._problem = f"stopped reading: {type(error).__name__}: {error}"

    def _run(self) -> None:
        callbacks = {"error_cb": self._on_error, "on_commit": self._on_commit}
        consumer = Consumer({**reader_config(self._client, self.group), **callbacks})
        try:
            consumer.subscribe(list(self.topics), on_assign=self._on_assign, on_revoke=self._on_revoke)
            self._read_on(consumer)
            self._commit_last(consumer)
        finally:
            consumer.close()

    def _read_on(self, consumer: Consumer) -> None:
        while not self._must_end():
            self._process(self._sort_out(fetch(consumer)), consumer)
            if time.monotonic() < self._next_round:
                continue
            if self._ask_ends(consumer):
                self._release(consumer)
                self._commit(consumer)
            self._next_round = time.monotonic() + (_STOPPING_ROUND_SECONDS if self._stopping else self._interval)

    def _must_end(self) -> bool:
        if self._stop_by is None:
            return False
        if time.monotonic() >= self._stop_by:
            if self._catches_up and not self._caught_up():
                self._problem = "was stopped before it had caught up"
            return True
        if not self._stopping:
            self._stopping = True
            self._next_round = 0.0
            self._ends.clear()  # it must reach the logs' current ends
        return self._caught_up()

    def _caught_up(self) -> bool:
        return bool(self._assigned) and all(self._done(tp) for tp in self._assigned)

    def _done(self, tp: TopicPartition) -> bool:
        """Whether a partition's position is as the behaviour requires, as far as the log's end is known."""
        end = self._ends.get(tp)
        if end is None:
            return False
        if self.behaviour is Behaviour.AHEAD and self._asked.get(tp, 0) < end:
            return False
        if self.behaviour is Behaviour.LIVE:
            return self._positions.get(tp, 0) >= end
        reached = max(self._positions.get(tp, 0), self._ends_seen.get(tp, 0))
        return bool(self._held.get(tp)) or reached >= self._limits[tp]

    def _sort_out(self, batch: Messages) -> list[Any]:
        """The records to process now; notes ends of partitions, and holds back records beyond the limit."""
        records = []
        throttled = self.behaviour is not Behaviour.LIVE
        for message in batch:
            error = message.error()
            if error is not None:
                self._note(message, error)
                continue
            tp = TopicPartition(message.topic(), message.partition())
            if throttled and message.offset() >= self._limits.get(tp, 0):
                self._held.setdefault(tp, deque()).append(message)
            else:
                records.append(message)
        return records

    def _note(self, message: Any, error: KafkaError) -> None:
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # the constant's public name
            self._trouble = error.str()
            return
        tp = TopicPartition(message.topic(), message.partition())
        self._ends_seen[tp] = message.offset()
        if self.behaviour is Behaviour.LIVE:
            self._ends_come[tp] = message.offset()

    def _process(self, records: Messages, consumer: Consumer) -> None:
        if records:
            self._trouble = None
            with self._lock:
                self._read += len(records)
                for message in records:
                    self._positions[TopicPartition(message.topic(), message.partition())] = message.offset() + 1
            if self._on_messages is not None:
                self._on_messages(records)
        if self._ends_come:  # after the records that came with them: a marker may be in between
            with self._lock:
                for tp, end in self._ends_come.items():
                    self._positions[tp] = max(end, self._positions.get(tp, 0))
            self._ends_come.clear()
        held = self._held.keys() - self._paused
        if held:
            consumer.pause([ClientPartition(*tp) for tp in held])
            self._paused |= held

    def _ask_ends(self, consumer: Consumer) -> bool:
        """Request the log ends of the assigned partitions; False if the cluster doesn't answer.

        Then nothing is committed either: the client would keep the request, and its close would wait for it.

        One request for all, because each one queues behind a fetch that waits for data on the same connection.
        """
        tps = sorted(self._assigned)
        lows = list_offsets(consumer, tps, OFFSET_BEGINNING)
        highs = list_offsets(consumer, list(lows), OFFSET_END)
        for tp, high in highs.items():
            self._trouble = None
            self._ends[tp] = high
            if self.behaviour is not Behaviour.LIVE:
                self._limits[tp] = lows[tp] + math.ceil(self._share * (high - lows[tp]))
        return bool(highs)

    def _release(self, consumer: Consumer) -> None:
        """Process the held-back records that are below the limit by now."""
        released = []
        for tp, messages in self._held.items():
            limit = self._limits.get(tp, 0)
            while messages and messages[0].offset() < limit:
                released.append(messages.popleft())
        free = [tp for tp, messages in self._held.items() if not messages]
        for tp in free:
            del self._held[tp]
            self._paused.discard(tp)
        self._process(released, consumer)
        if free:
            consumer.resume([ClientPartition(*tp) for tp in free])

    def _commit(self, consumer: Consumer) -> None:
        source = self._ends if self.behaviour is Behaviour.AHEAD else self._positions
        fresh = {tp: at for tp, at in source.items() if tp in self._assigned and self._asked.get(tp) != at}
        if fresh:
            consumer.commit(offsets=[ClientPartition(*tp, at) for tp, at in fresh.items()], asynchronous=True)
            self._asked.update(fresh)

    def _commit_last(self, consumer: Consumer) -> None:
        """Commit and wait for the response, for a while; records that arrive meanwhile aren't processed."""
        if not self._assigned:
            return
        consumer.pause([ClientPartition(*tp) for tp in self._assigned])
        if not self._ask_ends(consumer):
            self._problem = self._problem or "the cluster did not answer at the end: its last commit was not made"
            return
        self._refusals.clear()
        self._commit(consumer)
        give_up_at = time.monotonic() + _LAST_COMMIT_SECONDS
        while self._uncommitted():
            if time.monotonic() > give_up_at:
                self._problem = self._problem or "the cluster did not acknowledge its last commit"
                return
            consumer.poll(POLL_SECONDS)
        if self._refusals:
            self._problem = self._problem or f"its last commit was refused: {', '.join(sorted(self._refusals))}"

    def _uncommitted(self) -> list[TopicPartition]:
        return [tp for tp, offset in self._asked.items() if self._committed.get(tp) != offset]

    # -- callbacks (in the reader's thread, from within poll) ----------------------------------------

    def _on_assign(self, _consumer: Consumer, partitions: Iterable[ClientPartition]) -> None:
        self._assigned = {TopicPartition(p.topic, p.partition) for p in partitions}
        with self._lock:  # another member may have read further: never commit an old position
            for tp in self._assigned:
                self._positions.pop(tp, None)
                self._ends_seen.pop(tp, None)

    def _on_revoke(self, _consumer: Consumer, partitions: Iterable[ClientPartition]) -> None:
        """Another member continues from the last commit, and reads the held-back records."""
        for partition in partitions:
            tp = TopicPartition(partition.topic, partition.partition)
            self._assigned.discard(tp)
            self._paused.discard(tp)
            self._held.pop(tp, None)
            self._limits.pop(tp, None)
            self._ends.pop(tp, None)
            self._asked.pop(tp, None)

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[ClientPartition]) -> None:
        if error is not None:
            self._trouble = error.str()
            self._refusals.add(error.str())
            self._asked.clear()  # ask again in the next round
            return
        self._trouble = None
        with self._lock:
            for partition in partitions:
                tp = TopicPartition(partition.topic, partition.partition)
                if partition.error is not None:
                    self._refusals.add(partition.error.str())
                    self._asked.pop(tp, None)
                elif partition.offset != OFFSET_INVALID:
                    self._committed[tp] = partition.offset

    def _on_error(self, error: KafkaError) -> None:
        self._trouble = error.str()


def readers_for(dataset: str, topics: Sequence[str], client: Mapping[str, Any]) -> list[GroupReader]:
    """A data set's three groups, not yet started: ``flights-live``, ``flights-lagging``, ``flights-ahead``."""
    return [GroupReader(f"{dataset}-{behaviour}", topics, client, behaviour) for behaviour in Behaviour]
