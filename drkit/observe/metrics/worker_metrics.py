"""A link's workers as Prometheus metrics: those of the process itself, or all from the store.

`drkit mirror --metrics-port` serves those of its own process, as of the last second. `drkit serve` has
those of all workers from the store, a few seconds old. Both use the same names.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from drkit.model.offsets import Watermark
from drkit.model.statistics import Latency, WorkerStatistics

STATES = ("mirroring", "degraded", "paused", "waiting")
_LABELS = ("link", "worker")


@dataclass(frozen=True, slots=True)
class LiveLink:
    """The last report of a running mirror about one link."""

    link: str
    worker: WorkerStatistics
    watermarks: tuple[Watermark, ...]


class LiveCollector(Collector):
    """Collects from the last reports of this process's runtimes. Any thread may call `update`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[str, LiveLink] = {}

    def update(self, link: LiveLink) -> None:
        """Take a runtime's report."""
        with self._lock:
            self._links[link.link] = link

    def collect(self) -> Iterable[Metric]:
        """One family per metric; unknown values are left out, never 0."""
        with self._lock:
            links = list(self._links.values())
        yield from worker_metrics([(each.link, each.worker) for each in links])
        yield from _partition_metrics(links)


def worker_metrics(workers: Sequence[tuple[str, WorkerStatistics]]) -> Iterable[Metric]:
    """The metrics of workers, given with their link's name."""
    yield from _counters(workers)
    yield from _gauges(workers)
    yield from _latencies([(link, worker.worker, worker.latency) for link, worker in workers if worker.latency])


def _counters(workers: Sequence[tuple[str, WorkerStatistics]]) -> Iterable[Metric]:
    records = CounterMetricFamily("drkit_mirror_records", "Records acknowledged by the target", labels=_LABELS)
    size = CounterMetricFamily("drkit_mirror_bytes", "Bytes of them, as the engine counts", labels=_LABELS)
    markers = CounterMetricFamily("drkit_mirror_markers_matched", "Markers matched on the target", labels=_LABELS)
    fetches = CounterMetricFamily("drkit_mirror_fetch_requests", "Fetches of the source", labels=_LABELS)
    fetched = CounterMetricFamily("drkit_mirror_fetched_bytes", "Received from the source", labels=_LABELS)
    produces = CounterMetricFamily("drkit_mirror_produce_requests", "Produce requests sent", labels=_LABELS)
    throttled = CounterMetricFamily("drkit_mirror_throttled_seconds", "Waited by brokers' quotas", labels=_LABELS)
    batches = CounterMetricFamily("drkit_mirror_batches", "Source batches by treatment", labels=[*_LABELS, "treatment"])
    rebuilt = CounterMetricFamily("drkit_mirror_batches_rebuilt", "Rebuilt, by reason", labels=[*_LABELS, "reason"])
    dropped = CounterMetricFamily("drkit_mirror_records_dropped", "Left out, by reason", labels=[*_LABELS, "reason"])
    for link, worker in workers:
        labels, counted, created = [link, worker.worker], worker.statistics, worker.started_at.timestamp()
        for family, value in (
            (records, counted.records),
            (size, counted.bytes),
            (markers, counted.markers_matched),
            (fetches, counted.fetch_requests),
            (fetched, counted.fetch_bytes),
            (produces, counted.produce_requests),
            (throttled, counted.throttled_seconds),
        ):
            if value is not None:
                family.add_metric(labels, value, created=created)
        batches.add_metric([*labels, "forwarded"], counted.batches_forwarded, created=created)
        batches.add_metric([*labels, "merged"], counted.batches_merged, created=created)
        batches.add_metric([*labels, "rebuilt"], sum(counted.batches_rebuilt.values()), created=created)
        for reason, count in sorted(counted.batches_rebuilt.items()):
            rebuilt.add_metric([*labels, reason], count, created=created)
        for reason, count in sorted(counted.records_dropped.items()):
            dropped.add_metric([*labels, reason], count, created=created)
    return [records, size, markers, fetches, fetched, produces, throttled, batches, rebuilt, dropped]


def _gauges(workers: Sequence[tuple[str, WorkerStatistics]]) -> Iterable[Metric]:
    state = GaugeMetricFamily("drkit_mirror_state", "1 for the worker's state", labels=[*_LABELS, "state"])
    partitions = GaugeMetricFamily("drkit_mirror_partitions", "Partitions that it mirrors", labels=_LABELS)
    records = GaugeMetricFamily("drkit_mirror_in_flight_records", "Records not yet acknowledged", labels=_LABELS)
    size = GaugeMetricFamily("drkit_mirror_in_flight_bytes", "Bytes of them", labels=_LABELS)
    record_rate = GaugeMetricFamily("drkit_mirror_records_per_second", "Over the last seconds", labels=_LABELS)
    byte_rate = GaugeMetricFamily("drkit_mirror_bytes_per_second", "Over the last seconds", labels=_LABELS)
    behind = GaugeMetricFamily("drkit_mirror_partitions_behind", "Partitions with a backlog", labels=_LABELS)
    limit = GaugeMetricFamily("drkit_mirror_catch_up_bytes_per_second", "Limit for a backlog, if any", labels=_LABELS)
    target = GaugeMetricFamily("drkit_mirror_target_latency_seconds", "p99 of its answers, catching up", labels=_LABELS)
    seen = GaugeMetricFamily("drkit_mirror_report_timestamp_seconds", "Time of its last report", labels=_LABELS)
    started = GaugeMetricFamily("drkit_mirror_start_timestamp_seconds", "Time of its start", labels=_LABELS)
    for link, worker in workers:
        labels = [link, worker.worker]
        for each in STATES:
            state.add_metric([*labels, each], 1 if worker.state == each else 0)
        for family, value in (
            (partitions, worker.partitions),
            (records, worker.statistics.in_flight_records),
            (size, worker.statistics.in_flight_bytes),
            (record_rate, worker.records_per_second),
            (byte_rate, worker.bytes_per_second),
            (behind, worker.statistics.partitions_behind),
            (limit, worker.statistics.catch_up_bytes_per_second),
            (target, worker.statistics.target_latency_seconds),
            (seen, worker.at.timestamp()),
            (started, worker.started_at.timestamp()),
        ):
            if value is not None:
                family.add_metric(labels, value)
    return [state, partitions, records, size, record_rate, byte_rate, behind, limit, target, seen, started]


def _latencies(found: Sequence[tuple[str, str, Latency | None]]) -> Iterable[Metric]:
    family = SummaryMetricFamily(
        "drkit_canary_latency_seconds", "From the send on the source to a reader of the target", labels=_LABELS
    )
    waiting = GaugeMetricFamily("drkit_canary_waiting_seconds", "Age of the oldest one not there yet", labels=_LABELS)
    for link, worker, latency in found:
        if latency is None:
            continue
        labels = [link, worker]
        family.add_metric(labels, count_value=latency.arrived, sum_value=latency.seconds)
        for share, value in (("0.5", latency.p50), ("0.99", latency.p99)):
            if value is not None:
                named = {"link": link, "worker": worker, "quantile": share}
                family.add_sample("drkit_canary_latency_seconds", named, value)
        waiting.add_metric(labels, latency.waiting_seconds)
    return [family, waiting]


def _partition_metrics(links: Sequence[LiveLink]) -> Iterable[Metric]:
    """Lag by partition, under the same names as in `drkit serve`."""
    labels = ["link", "topic", "partition"]
    lag = GaugeMetricFamily("drkit_lag_records", "Source records not on the target", labels=labels)
    seconds = GaugeMetricFamily("drkit_lag_seconds", "Time since the source's end was first seen beyond", labels=labels)
    through = GaugeMetricFamily("drkit_mirrored_through", "Source offset up to which all is copied", labels=labels)
    for each in links:
        for mark in each.watermarks:
            values = [each.link, mark.topic, str(mark.partition)]
            records, waiting = mark.lag_at(each.worker.at)
            if records is not None:
                lag.add_metric(values, records)
            seconds.add_metric(values, waiting)
            through.add_metric(values, mark.source_through)
    return [lag, seconds, through]
