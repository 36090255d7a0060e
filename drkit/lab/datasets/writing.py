"""Writes events to a cluster: idempotently or in transactions, paced, in a bounded time.

Every wait is bounded. A record that the cluster doesn't acknowledge within the delivery timeout ends the load; so do a
refusal and a fatal error of the producer. The ledger has what was acknowledged by then. Only librdkafka retries, within
the timeout, idempotently.

Transactions. Events are grouped into transactions of a moderate size; an event is never split. Before some of them (the
seed determines which; always before the first) the same events are written in a transaction that is then aborted, like
those of an application that failed and tried again. So readers of committed records see every event exactly once. The
header ``drkit-lab-txn`` of each record has its intended outcome: ``committed`` or ``aborted``. A load that fails inside
a transaction may leave one aborted in spite of its header; the report counts it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from drkit.lab.datasets.events import Event
from drkit.lab.datasets.report import LoadLedger
from drkit.model.errors import ConfigError, Unreachable

LOAD_HEADER = "drkit-lab-load"
TRANSACTION_HEADER = "drkit-lab-txn"

Headers = list[tuple[str, str | bytes | None]]

_TICK_SECONDS = 0.1
_TRANSACTION_TIMEOUT_MS = 30_000
_MOST_BUFFERED = 200_000
_LEAST_BUFFERED = 1000

_TICKS_PER_SECOND = 100
_UNPACED_QUANTUM = 500


class Pacer:
    """Computes the delay before the next record.

    Record number n (from 0) is due n / rate seconds after the first call. A producer that was held up
    goes faster until it has caught up, so the mean rate of the whole load is exact.

    Args:
        rate: records per second, above 0; None: never wait.
        clock: seconds, monotonic.
    """

    def __init__(self, rate: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if rate is not None and not rate > 0:
            raise ValueError(f"a rate must be above 0, not {rate:g}")
        self._rate = rate
        self._clock = clock
        self._start: float | None = None

    @property
    def quantum(self) -> int:
        """How many records may go between two calls without bursts: a hundredth of a second's worth."""
        if self._rate is None:
            return _UNPACED_QUANTUM
        return max(1, min(_UNPACED_QUANTUM, int(self._rate / _TICKS_PER_SECOND)))

    def delay(self, sent: int) -> float:
        """Seconds until the record that follows `sent` earlier ones is due; 0: it is due already."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        if self._start is None:
            self._start = now
        return max(0.0, self._start + sent / self._rate - now)


class LoadInterrupted(Exception):
    """The load was told to stop."""


class ProducerFailed(Exception):
    """The producer can't continue; the message says why, in words."""


class EventWriter:
    """Writes events with one producer. Not thread-safe, except that any thread may set `stop`.

    Args:
        client: librdkafka properties of the cluster (at least ``bootstrap.servers``).
        load: this load's id, for each record's header.
        rate: records per second; None: as fast as possible.
        transactions: whether to write in transactions.
        delivery_timeout_seconds: a record must be acknowledged within this time, or the load ends.
        stop: when set, the load ends at the next event, and waits for what was sent.
        give_up: when set, the load waits for nothing any more.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        load: str,
        rate: float | None,
        transactions: bool,
        delivery_timeout_seconds: float,
        stop: threading.Event,
        give_up: threading.Event,
    ) -> None:
        self.ledger = LoadLedger()
        self._load = load
        self._pacer = Pacer(rate)
        self._quantum = self._pacer.quantum
        self._next_tick = 0
        self._stop = stop
        self._give_up = give_up
        self._timeout = delivery_timeout_seconds
        self._fatal: str | None = None
        timeout_ms = int(delivery_timeout_seconds * 1000)
        self._producer = _producer(
            {
                **client,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",  # like Java's clients: the same key goes to the same partition
                "delivery.timeout.ms": timeout_ms,
                "compression.type": "lz4",
                "linger.ms": 10,
                "batch.size": 256 * 1024,
                "queue.buffering.max.messages": _buffered(rate),
                "queue.buffering.max.kbytes": 128 * 1024,
                "on_delivery": self.ledger.delivered,
                "error_cb": self._on_error,
                "log_level": 0,  # the callbacks get what matters
                **(
                    {
                        "transactional.id": f"drkit-lab-{load}",
                        "transaction.timeout.ms": max(timeout_ms, _TRANSACTION_TIMEOUT_MS),
                    }
                    if transactions
                    else {}
                ),
            }
        )

    # -- plain -------------------------------------------------------------------------------------

    def write(self, events: Iterable[Event]) -> None:
        """Write events without transactions and wait for their acknowledgements.

        Raises:
            LoadInterrupted: told to stop (the ledger accounts for what was sent).
            ProducerFailed: a record wasn't acknowledged in time, or was refused.
        """
        headers: Headers = [(LOAD_HEADER, self._load)]
        try:
            for event in events:
                self._send(event, headers, counts=True)
        except LoadInterrupted:
            self._flush()
            raise
        self._flush()

    # -- transactions ------------------------------------------------------------------------------

    def write_in_transactions(self, events: Iterable[Event], *, size: int, abort_share: float, seed: int) -> None:
        """Write events in transactions of about `size` records each; see the module docstring.

        Args:
            events: what to write.
            size: a transaction ends with the event that reaches so many records.
            abort_share: the share of transactions that are aborted first.
            seed: determines which.

        Raises:
            LoadInterrupted: told to stop; the open transaction ends with an event.
            ProducerFailed: as for `write`, or a transaction could not be ended.
            Unreachable: the cluster doesn't answer when the producer registers.
        """
        self._register()
        random = Random(seed)  # noqa: S311  # reproducible data, not a secret
        marked_aborted: Headers = [(LOAD_HEADER, self._load), (TRANSACTION_HEADER, "aborted")]
        marked_committed: Headers = [(LOAD_HEADER, self._load), (TRANSACTION_HEADER, "committed")]
        first = True
        for group in _grouped(events, size):
            if random.random() < abort_share or first:
                self._transaction(group, marked_aborted, commit=False)
            first = False
            self._transaction(group, marked_committed, commit=True)

    def _register(self) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                self._producer.init_transactions(1.0)  # another call continues where this one timed out
            except KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise Unreachable(
                        f"the cluster didn't register a transactional producer: {error.str()}",
                        remedy="Check `drkit lab status`; try again when the cluster is up",
                    ) from None
            else:
                return
            if self._stop.is_set():
                raise LoadInterrupted

    def _transaction(self, group: list[Event], headers: Headers, *, commit: bool) -> None:
        ledger = self.ledger
        ledger.begin()
        try:
            self._producer.begin_transaction()
        except KafkaException as failure:
            ledger.failed(failure.args[0])
            raise ProducerFailed(f"a transaction could not begin: {failure.args[0].str()}") from None
        try:
            for event in group:
                self._send(event, headers, counts=commit)
            self._flush()
        except LoadInterrupted:
            # Only whole events were sent: end the transaction according to its header.
            self._flush_or_roll_back()
            self._end(commit=commit)
            raise
        except ProducerFailed:
            self._roll_back_quietly()
            raise
        self._end(commit=commit)

    def _flush_or_roll_back(self) -> None:
        try:
            self._flush()
        except ProducerFailed:
            self._roll_back_quietly()
            raise

    def _end(self, *, commit: bool) -> None:
        """Commit or abort the open transaction, bounded by the delivery timeout."""
        act = self._producer.commit_transaction if commit else self._producer.abort_transaction
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                act(1.0)  # another call continues where this one timed out
                break
            except KafkaException as failure:
                error = failure.args[0]
                if commit and error.txn_requires_abort():
                    self.ledger.failed(error)
                    self._roll_back_quietly()
                    raise ProducerFailed(f"a transaction was not committed: {error.str()}") from None
                if not error.retriable() or time.monotonic() > deadline or self._give_up.is_set():
                    self.ledger.failed(error)
                    self.ledger.unresolved()
                    raise ProducerFailed(f"the outcome of a transaction is unknown: {error.str()}") from None
        if commit:
            self.ledger.committed()
        else:
            self.ledger.rolled_back()

    def _roll_back_quietly(self) -> None:
        """Abort after a failure; without a response, the coordinator aborts at its timeout."""
        try:
            self._producer.abort_transaction(1.0)
        except KafkaException as failure:
            self.ledger.failed(failure.args[0])
            self.ledger.unresolved()
        else:
            self.ledger.rolled_back()

    # -- both --------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Drop what is neither acknowledged nor refused. Returns at once, even if the cluster is dead."""
        self._producer.purge(blocking=False)
        with suppress(KafkaException):
            self._producer.flush(_TICK_SECONDS)  # gets the callbacks of purged records; nothing is sent any more

    def _send(self, event: Event, headers: Headers, *, counts: bool) -> None:
        """Send an event's records at the right pace; `counts`: the event isn't written again."""
        ledger = self.ledger
        sent = ledger.sent
        for topic, key, value, timestamp in event:
            while True:
                try:
                    self._producer.produce(topic, value, key, timestamp=timestamp, headers=headers)
                    break
                except BufferError:
                    self._wait(_TICK_SECONDS)
                except KafkaException as error:
                    self.ledger.failed(error.args[0])
                    raise ProducerFailed(f"the producer refused a record: {error.args[0].str()}") from None
            sent[topic] += 1
            ledger.records_sent += 1
        ledger.events_sent += counts
        if ledger.records_sent >= self._next_tick:
            self._tick()

    def _tick(self) -> None:
        """Serve callbacks, keep the pace, and check whether the load may continue."""
        self._next_tick = self.ledger.records_sent + self._quantum
        self._wait(0)
        while (delay := self._pacer.delay(self.ledger.records_sent)) > 0:
            if self._stop.is_set():
                break
            self._wait(min(delay, _TICK_SECONDS))
        if self._stop.is_set():
            raise LoadInterrupted

    def _flush(self) -> None:
        """Wait until everything sent is acknowledged; librdkafka's delivery timeout is the bound."""
        while self._producer.flush(_TICK_SECONDS):
            self._check()
        self._check()

    def _wait(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._check()

    def _check(self) -> None:
        if self._fatal is not None:
            raise ProducerFailed(self._fatal)
        if self.ledger.first_error is not None:
            raise ProducerFailed(f"a record was not acknowledged: {self.ledger.first_error}")
        if self._give_up.is_set():
            raise ProducerFailed("told to give up before everything was acknowledged")

    def _on_error(self, error: KafkaError) -> None:
        """Leave connection errors to librdkafka's retries; only a fatal error ends the producer."""
        if error.fatal():
            self._fatal = f"the producer failed: {error.str()}"


def _producer(config: dict[str, Any]) -> Producer:
    try:
        return Producer(config)
    except KafkaException as failure:
        raise ConfigError(
            f"the producer can't be created: {failure.args[0].str()}",
            remedy="Correct the cluster's client properties, or the delivery timeout",
        ) from None


def _buffered(rate: float | None) -> int:
    """How many records may wait for their acknowledgement: two seconds' worth.

    So a paced load doesn't get far ahead of a cluster that stopped answering.
    """
    return _MOST_BUFFERED if rate is None else max(_LEAST_BUFFERED, min(_MOST_BUFFERED, int(2 * rate)))


def _grouped(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    """Events in groups; each ends with the event that reaches `size` records."""
    group: list[Event] = []
    records = 0
    for event in events:
        group.append(event)
        records += len(event)
        if records >= size:
            yield group
            group = []
            records = 0
    if group:
        yield group
