"""The status snapshot as Prometheus metrics, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drkit.model.clock import now
from drkit.observe.fence import FENCED
from drkit.observe.metrics.worker_metrics import worker_metrics
from drkit.observe.status import LinkStatus

STATES = ("stopped", "mirroring", "paused", "degraded", "sealed", "reversed")


class StatusCollector(Collector):
    """Collects from `look`, which returns the current snapshot; a failure is `drkit_up 0`."""

    def __init__(self, look: Callable[[], Sequence[LinkStatus] | None]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """One family per metric; unknown values are left out, never 0."""
        up = GaugeMetricFamily("drkit_up", "1 if the store answered")
        statuses = self._look()
        up.add_metric([], 0 if statuses is None else 1)
        yield up
        if statuses is not None:
            yield from _links(statuses)
            yield from _partitions(statuses)
            yield from worker_metrics([(str(s.link.id), each) for s in statuses for each in s.statistics])


def _links(statuses: Sequence[LinkStatus]) -> Iterable[Metric]:
    state = GaugeMetricFamily("drkit_link_state", "1 for the state that the link is in", labels=["link", "state"])
    records = GaugeMetricFamily("drkit_recovery_point_records", "Records a failover now would lose", labels=["link"])
    seconds = GaugeMetricFamily("drkit_recovery_point_seconds", "Age of the oldest of them", labels=["link"])
    reachable = GaugeMetricFamily("drkit_cluster_reachable", "1 if it answered", labels=["link", "cluster"])
    problems = GaugeMetricFamily("drkit_problems", "Recorded problems", labels=["link", "kind"])
    positions = GaugeMetricFamily("drkit_group_positions", "Group positions by certainty", labels=["link", "certainty"])
    age = GaugeMetricFamily("drkit_group_position_age_seconds", "Age of the oldest captured position", labels=["link"])
    fenced = GaugeMetricFamily("drkit_fenced", "1 if the cluster that clients should use is fenced", labels=["link"])
    at = now()
    for status in statuses:
        link = str(status.link.id)
        for each in STATES:
            state.add_metric([link, each], 1 if status.state == each else 0)
        if status.recovery_point.records is not None:
            records.add_metric([link], status.recovery_point.records)
        if status.recovery_point.seconds is not None:
            seconds.add_metric([link], status.recovery_point.seconds)
        reachable.add_metric([link, status.link.id.source], 1 if status.source_reachable else 0)
        reachable.add_metric([link, status.link.id.target], 1 if status.target_reachable else 0)
        for kind, count in _counted([problem.kind for problem in status.problems]).items():
            problems.add_metric([link, kind], count)
        fenced.add_metric([link], 1 if any(problem.kind == FENCED for problem in status.problems) else 0)
        for certainty, count in _counted([group.translation.value for group in status.groups]).items():
            positions.add_metric([link, certainty], count)
        if status.groups:
            oldest = min(group.captured_at for group in status.groups)
            age.add_metric([link], max(0.0, (at - oldest).total_seconds()))
    return [state, records, seconds, reachable, problems, fenced, positions, age]


def _partitions(statuses: Sequence[LinkStatus]) -> Iterable[Metric]:
    labels = ["link", "topic", "partition"]
    lag = GaugeMetricFamily("drkit_lag_records", "Source records not on the target", labels=labels)
    seconds = GaugeMetricFamily("drkit_lag_seconds", "Time since the source's end was first seen beyond", labels=labels)
    through = GaugeMetricFamily("drkit_mirrored_through", "Source offset up to which all is copied", labels=labels)
    delta = GaugeMetricFamily("drkit_offset_delta", "Target offset minus source offset", labels=labels)
    for status in statuses:
        for each in status.partitions:
            values = [str(status.link.id), each.topic, str(each.partition)]
            for family, value in (
                (lag, each.lag_records),
                (seconds, each.lag_seconds),
                (through, each.mirrored_through),
                (delta, each.delta),
            ):
                if value is not None:
                    family.add_metric(values, value)
    return [lag, seconds, through, delta]


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
