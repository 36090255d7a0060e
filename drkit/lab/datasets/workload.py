"""Loads a data set: topics, a producer in its own thread, groups that read meanwhile, a report."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from drkit.lab.datasets.events import Dataset, TopicSpec
from drkit.lab.datasets.readers import GroupReader, readers_for
from drkit.lab.datasets.report import GroupReport, LoadOutcome, LoadProgress, LoadReport, Transactions
from drkit.lab.datasets.writing import EventWriter, LoadInterrupted, ProducerFailed
from drkit.model.clock import now, to_millis
from drkit.model.errors import Refused
from drkit.model.wording import counted

_MOST_REPLICAS = 3


class TopicPartitions(Protocol):
    """The part of a topic's description that is used here."""

    @property
    def partitions(self) -> int:
        """How many partitions it has."""


class TopicAdmin(Protocol):
    """The admin requests that are used here, as in `drkit.kafka.admin.cluster_admin.ClusterAdmin`."""

    def brokers(self) -> Sequence[Any]:
        """The live brokers."""

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, TopicPartitions]:
        """Those of `names` that exist."""

    def topic_configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Effective configuration by topic."""

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it accepts records."""


def prepare_topics(admin: TopicAdmin, specs: Sequence[TopicSpec]) -> list[str]:
    """Create the missing topics; none if an existing topic doesn't fit.

    Returns:
        Remarks for people: existing topics, to which the load appends, and those of their settings that differ from the
        data set's.

    Raises:
        Refused: a topic exists with another number of partitions.
        Unreachable: the cluster doesn't answer.
    """
    existing = admin.topics([spec.name for spec in specs])
    unfit = [spec for spec in specs if spec.name in existing and existing[spec.name].partitions != spec.partitions]
    if unfit:
        found = ", ".join(
            f"{name} has {counted(existing[name].partitions, 'partition')}, the data set needs {needed}"
            for name, needed in ((spec.name, spec.partitions) for spec in unfit)
        )
        raise Refused(
            f"existing topics don't fit the data set: {found}",
            meaning="With another number of partitions the keys would be on other partitions; nothing was written",
            remedy="Delete those topics, or load into another lab (--dir)",
        )
    replicas = min(_MOST_REPLICAS, len(admin.brokers()))
    for spec in specs:
        if spec.name not in existing:
            admin.create_topic(
                spec.name,
                partitions=spec.partitions,
                replication_factor=max(1, replicas),
                config=_config(spec, replicas),
            )
    return _remarks(admin, [spec for spec in specs if spec.name in existing])


def _config(spec: TopicSpec, replicas: int) -> dict[str, str]:
    """With three replicas, one may be down without stopping writes or losing acknowledged records."""
    config = dict(spec.config)
    if replicas >= _MOST_REPLICAS:
        config["min.insync.replicas"] = str(_MOST_REPLICAS - 1)
    return config


def _remarks(admin: TopicAdmin, kept: Sequence[TopicSpec]) -> list[str]:
    if not kept:
        return []
    remarks = [f"appending to what exists: {', '.join(spec.name for spec in kept)}"]
    effective = admin.topic_configs([spec.name for spec in kept])
    for spec in kept:
        has = effective.get(spec.name, {})
        remarks.extend(
            f"{spec.name}: {key} is {has.get(key, 'not set')}, the data set is made for {value}"
            for key, value in spec.config.items()
            if has.get(key) != value
        )
    return remarks


_POLL_SECONDS = 0.1
_CATCH_UP_SECONDS = 60.0
"""How long the live group may take after the last record."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of a load.

    rate: records per second, all topics together; None: as fast as possible.
    transactional: in transactions, some of them aborted first.
    transaction_size: records after which a transaction ends. A paced load ends it after a second's worth if that is
        less, so that readers of committed records don't wait long.
    abort_share: the share of transactions that are aborted first (0 to 1).
    seed: determines which.
    delivery_timeout_seconds: a record must be acknowledged within this time, or the load ends.
    """

    rate: float | None = None
    transactional: bool = False
    transaction_size: int = 1000
    abort_share: float = 0.1
    seed: int = 13
    delivery_timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise ValueError(f"rate must be above 0, not {self.rate:g}")
        if self.transaction_size < 1:
            raise ValueError(f"transaction_size must be at least 1, not {self.transaction_size}")
        if not 0 <= self.abort_share <= 1:
            raise ValueError(f"abort_share must be between 0 and 1, not {self.abort_share:g}")
        if not self.delivery_timeout_seconds >= 1:
            raise ValueError(f"delivery_timeout_seconds must be at least 1, not {self.delivery_timeout_seconds:g}")

    @property
    def records_a_transaction(self) -> int:
        """The number of records after which a transaction ends."""
        if self.rate is None:
            return self.transaction_size
        return max(1, min(self.transaction_size, int(self.rate)))


class DatasetWorkload:
    """Writes a data set in its own thread. The topics must exist (`prepare_topics`).

    Call `start`, then `join`; `stop` ends it early, from any thread. If the cluster dies meanwhile, it ends by
    itself, at the latest `delivery_timeout_seconds` after the last acknowledgement.
    """

    def __init__(self, dataset: Dataset, client: Mapping[str, Any], options: LoadOptions | None = None) -> None:
        self.load = secrets.token_hex(6)
        self._dataset = dataset
        self._client = dict(client)
        self._options = options or LoadOptions()
        self._stop = threading.Event()
        self._give_up = threading.Event()
        self._thread: threading.Thread | None = None
        self._report: LoadReport | None = None
        self._crash: BaseException | None = None
        self._writer: EventWriter | None = None
        self._events = 0
        self._begun: float | None = None

    def start(self) -> None:
        """Start writing."""
        if self._thread is not None:
            raise RuntimeError("a workload starts once")
        self._thread = threading.Thread(target=self._guarded, name=f"load-{self._dataset.name}", daemon=True)
        self._thread.start()

    def stop(self, *, give_up: bool = False) -> None:
        """Write no further events. It still waits for what was sent, unless `give_up`."""
        self._stop.set()
        if give_up:
            self._give_up.set()

    def join(self, timeout: float | None = None) -> LoadReport | None:
        """Wait for the end; None if it doesn't come within `timeout` seconds.

        Raises:
            DrkitError: the data can't be read, or the cluster doesn't register the producer.
        """
        if self._thread is None:
            raise RuntimeError("the workload was not started")
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        if self._crash is not None:
            raise self._crash
        return self._report

    @property
    def progress(self) -> LoadProgress:
        """Its progress; any thread may call it."""
        writer = self._writer
        if writer is None or self._begun is None:
            return LoadProgress(self._events, 0, 0, 0, 0.0)
        ledger = writer.ledger
        return LoadProgress(
            self._events,
            ledger.events_sent,
            ledger.records_sent,
            ledger.acknowledged.total,
            time.monotonic() - self._begun,
        )

    def _guarded(self) -> None:
        try:
            self._report = self._run()
        except BaseException as error:  # noqa: BLE001  # handed to whoever joins
            self._crash = error

    def _run(self) -> LoadReport:
        options = self._options
        started_at = now()
        self._events = self._dataset.size
        events = self._dataset.events(to_millis(started_at))
        writer = EventWriter(
            self._client,
            load=self.load,
            rate=options.rate,
            transactions=options.transactional,
            delivery_timeout_seconds=options.delivery_timeout_seconds,
            stop=self._stop,
            give_up=self._give_up,
        )
        self._writer = writer
        self._begun = begun = time.monotonic()
        outcome, reason = LoadOutcome.COMPLETE, None
        try:
            if options.transactional:
                writer.write_in_transactions(
                    events, size=options.records_a_transaction, abort_share=options.abort_share, seed=options.seed
                )
            else:
                writer.write(events)
        except LoadInterrupted:
            outcome, reason = LoadOutcome.INTERRUPTED, "told to stop"
        except ProducerFailed as failure:
            outcome = LoadOutcome.INTERRUPTED if self._give_up.is_set() else LoadOutcome.FAILED
            reason = str(failure)
        finally:
            writer.abandon()
        return self._make_report(writer, outcome, reason, started_at, time.monotonic() - begun)

    def _make_report(
        self, writer: EventWriter, outcome: LoadOutcome, reason: str | None, started_at: datetime, seconds: float
    ) -> LoadReport:
        ledger = writer.ledger
        transactions = None
        if self._options.transactional:
            transactions = Transactions(
                ledger.committed_transactions, ledger.aborted_transactions, ledger.unknown_transactions
            )
        return LoadReport(
            load=self.load,
            dataset=self._dataset.name,
            outcome=outcome,
            reason=reason,
            started_at=started_at,
            seconds=seconds,
            events=self._events,
            events_sent=ledger.events_sent,
            topics=ledger.topic_reports(tuple(spec.name for spec in self._dataset.topics)),
            transactions=transactions,
            errors=dict(ledger.errors),
        )


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load with its groups. `remarks`: messages for people about topics and groups."""

    report: LoadReport
    groups: tuple[GroupReport, ...]
    remarks: tuple[str, ...]


def load(
    dataset: Dataset,
    client: Mapping[str, Any],
    admin: TopicAdmin,
    options: LoadOptions | None = None,
    *,
    groups: bool = True,
    stop: Callable[[], bool] = lambda: False,
    give_up: Callable[[], bool] = lambda: False,
    on_progress: Callable[[LoadProgress], None] = lambda _progress: None,
    on_remark: Callable[[str], None] = lambda _remark: None,
) -> LoadResult:
    """Create the topics, write the data set while its groups read, and leave the groups' positions behind.

    Args:
        dataset: what to write.
        client: librdkafka properties of the cluster.
        admin: the admin client of the same cluster.
        options: how to write.
        groups: whether to run the data set's three groups meanwhile (`readers_for`).
        stop: called often; true: end the load at the next event.
        give_up: called often; true: wait for nothing any more.
        on_progress: called with the progress, a few times a second, in the caller's thread.
        on_remark: called with each remark.

    Raises:
        Refused: an existing topic doesn't fit.
        Unreachable: the cluster doesn't answer at the start.
    """
    remarks: list[str] = []

    def remark(text: str) -> None:
        remarks.append(text)
        on_remark(text)

    for text in prepare_topics(admin, dataset.topics):
        remark(text)
    readers = readers_for(dataset.name, [spec.name for spec in dataset.topics], client) if groups else []
    workload = DatasetWorkload(dataset, client, options)
    report = None
    try:
        for reader in readers:
            reader.start()
        workload.start()
        while report is None:
            report = workload.join(_POLL_SECONDS)
            on_progress(workload.progress)
            if stop():
                workload.stop(give_up=give_up())
    finally:
        workload.stop(give_up=report is None)
        healthy = report is not None and report.outcome is not LoadOutcome.FAILED
        _stop_readers(readers, seconds=_CATCH_UP_SECONDS if healthy else 0.0, give_up=give_up)
    reports = tuple(reader.report() for reader in readers)
    for text in _group_remarks(reports):
        remark(text)
    return LoadResult(report, reports, tuple(remarks))


def _stop_readers(readers: Sequence[GroupReader], *, seconds: float, give_up: Callable[[], bool]) -> None:
    """Stop all at the same time, and wait for them together."""
    for reader in readers:
        reader.request_stop(catch_up_seconds=seconds)
    for reader in readers:
        while not reader.join(_POLL_SECONDS):
            if give_up():
                reader.request_stop(catch_up_seconds=0.0)
            if reader.overdue:
                break


def _group_remarks(reports: Sequence[GroupReport]) -> Iterator[str]:
    for group in reports:
        if group.problem is not None:
            yield f"group {group.group}: {group.problem}"
