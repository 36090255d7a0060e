"""A continuous audit's progress as Prometheus metrics, made again at each scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drkit.model.audit.continuous_audit import AuditProgress
from drkit.model.errors import ConfigError
from drkit.model.topology import LinkId

_OUTCOMES = ("matched", "lost", "corrupted", "duplicated", "foreign", "reordered")


class AuditCollector(Collector):
    """Collects a link's from `look`: the totals (None before it began), and whether it works."""

    def __init__(self, link: LinkId, look: Callable[[], tuple[AuditProgress | None, bool]]) -> None:
        self._link, self._look = link, look

    def collect(self) -> Iterable[Metric]:
        """One family per metric; unknown values are left out, never 0."""
        progress, works = self._look()
        up = GaugeMetricFamily(
            "drkit_audit_up", "1 if the last check of closed ranges worked and isn't overdue", labels=["link"]
        )
        up.add_metric([str(self._link)], 1 if works else 0)
        yield up
        if progress is not None:
            yield from _families(progress)


def _families(progress: AuditProgress) -> Iterable[Metric]:
    link = progress.link
    records = CounterMetricFamily(
        "drkit_audit_records", "Records reconciled, by outcome", labels=["link", "topic", "outcome"]
    )
    for topic, counts in sorted(progress.topics.items()):
        for outcome in _OUTCOMES:
            records.add_metric([link, topic, outcome], getattr(counts, outcome))
    yield records
    for name, words, count in (
        ("drkit_audit_gone", "Records that the target removed while the source has them", progress.gone),
        ("drkit_audit_ranges", "Closed ranges reconciled", progress.ranges),
        ("drkit_audit_mismatches", "Closed ranges that deviate", progress.alerts),
        ("drkit_audit_unknown_ranges", "Closed ranges that could not be reconciled", progress.unknown),
    ):
        family = CounterMetricFamily(name, words, labels=["link"])
        family.add_metric([link], count)
        yield family
    through = GaugeMetricFamily(
        "drkit_audit_through",
        "Source offset up to which closed ranges are reconciled",
        labels=["link", "topic", "partition"],
    )
    for place, offset in sorted(progress.through.items()):
        topic, _, partition = place.rpartition(":")
        through.add_metric([link, topic, partition], offset)
    yield through
    if progress.latency_seconds is not None:
        latency = GaugeMetricFamily(
            "drkit_audit_latency_seconds", "Time from the close of the last range to its verdict", labels=["link"]
        )
        latency.add_metric([link], progress.latency_seconds)
        yield latency
    if progress.reconciled_at is not None:
        last = GaugeMetricFamily("drkit_audit_last_reconciled_timestamp_seconds", "When that was", labels=["link"])
        last.add_metric([link], datetime.fromisoformat(progress.reconciled_at).timestamp())
        yield last


@contextmanager
def audit_metrics(
    host: str, port: int, link: LinkId, look: Callable[[], tuple[AuditProgress | None, bool]]
) -> Iterator[int]:
    """Serve the metrics over HTTP while the block runs; returns the port (0 asks for a free one).

    Raises:
        ConfigError: the address can't be bound.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AuditCollector(link, look))
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--metrics: {host}:{port} can't be bound: {error}", remedy="Give another address with --metrics HOST:PORT"
        ) from error
    assert isinstance(thread, threading.Thread)  # noqa: S101 - as documented
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
