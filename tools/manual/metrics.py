"""The Prometheus metrics that drkit's collectors have, asked of the collectors themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import Metric

from drkit.model.audit.continuous_audit import AuditProgress
from drkit.model.clock import iso, now
from drkit.model.topology import LinkId
from drkit.observe.metrics.audit_metrics import AuditCollector
from drkit.observe.metrics.status_metrics import DrillCollector, LastAuditCollector, StatusCollector
from drkit.observe.metrics.worker_metrics import LiveCollector, worker_metrics


@dataclass(frozen=True, slots=True)
class MetricDoc:
    """A metric: its name at a scrape, its kind, its labels, what it says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    says: str


def metrics() -> dict[str, list[MetricDoc]]:
    """The metrics by what serves them."""
    progress = AuditProgress("RUN", "primary->dr", iso(now()), latency_seconds=0.0, reconciled_at=now().isoformat())
    watch = AuditCollector(LinkId.parse(progress.link), lambda: (progress, True))
    return {
        "`drkit serve`, at `/metrics`": _told(
            [*StatusCollector(list).collect(), *LastAuditCollector(tuple).collect(), *DrillCollector(tuple).collect()]
        ),
        "`drkit mirror --metrics-port N`": _told([*worker_metrics([]), *LiveCollector().collect()]),
        "`drkit audit watch --metrics HOST:PORT`": _told(watch.collect()),
    }


def _told(families: Iterable[Metric]) -> list[MetricDoc]:
    found = {}
    for each in families:
        name = f"{each.name}_total" if each.type == "counter" else each.name
        labels = tuple(getattr(each, "_labelnames", ()))
        found[name] = MetricDoc(name, each.type, labels, each.documentation)
    return list(found.values())
