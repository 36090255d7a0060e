"""What `drkit serve` knows as Prometheus metrics, computed at each scrape: links, drills, last audits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drkit.model.audit.audit_result import FindingKind
from drkit.model.clock import age_seconds, now, oldest_age
from drkit.model.errors import DrkitError
from drkit.observe.audit_history import VERDICTS as AUDIT_VERDICTS
from drkit.observe.audit_history import AuditOfLink
from drkit.observe.drill_history import VERDICTS as DRILL_VERDICTS
from drkit.observe.drill_history import DrillKind
from drkit.observe.link_status import LinkStatus
from drkit.observe.metrics.worker_metrics import worker_metrics
from drkit.observe.poll_problems import FENCED

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
    at_least = GaugeMetricFamily(
        "drkit_recovery_point_records_at_least", "The same where a cluster is silent: as last seen", labels=["link"]
    )
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
        point = status.recovery_point
        if point.records is not None:
            (at_least if point.lower_bound else records).add_metric([link], point.records)
        if point.seconds is not None and (point.seconds > 0 or not point.lower_bound):  # 0 s or more is no age
            seconds.add_metric([link], point.seconds)
        reachable.add_metric([link, status.link.id.source], 1 if status.source_reachable else 0)
        reachable.add_metric([link, status.link.id.target], 1 if status.target_reachable else 0)
        for kind, count in Counter([problem.kind for problem in status.problems]).items():
            problems.add_metric([link, kind], count)
        fenced.add_metric([link], 1 if any(problem.kind == FENCED for problem in status.problems) else 0)
        for certainty, count in Counter([group.translation.value for group in status.groups]).items():
            positions.add_metric([link, certainty], count)
        oldest = oldest_age([group.captured_at for group in status.groups], at)
        if oldest is not None:
            age.add_metric([link], oldest)
    return [state, records, at_least, seconds, reachable, problems, fenced, positions, age]


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


class DrillCollector(Collector):
    """Collects from `look`, which returns the store's drills; empty if the store doesn't answer."""

    def __init__(self, look: Callable[[], Sequence[DrillKind]]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """Age of the last passed drill, changes since, and verdict of the newest one, by title.

        No age if none ever passed; no changes if they are unknown.
        """
        age = GaugeMetricFamily(
            "drkit_drill_last_passed_age_seconds", "Seconds since the last passed drill began", labels=["title"]
        )
        newest = GaugeMetricFamily(
            "drkit_drill_last_age_seconds", "Seconds since the newest drill began", labels=["title"]
        )
        verdict = GaugeMetricFamily(
            "drkit_drill_last_verdict", "1 for the verdict of the newest drill", labels=["title", "verdict"]
        )
        changed = GaugeMetricFamily(
            "drkit_drill_changes_since_passed",
            "Changes since a drill last passed: drkit's version, the configuration, the topics",
            labels=["title"],
        )
        try:
            kinds = self._look()
        except DrkitError:
            kinds = ()
        at = now()
        for each in kinds:
            passed = each.age_seconds(at)
            if passed is not None:
                age.add_metric([each.title], passed)
            if each.changes is not None:
                changed.add_metric([each.title], len(each.changes))
            since = age_seconds(each.at, at)
            if since is not None:
                newest.add_metric([each.title], since)
            for name in DRILL_VERDICTS:
                verdict.add_metric([each.title, name], 1 if each.verdict == name else 0)
        return [age, newest, verdict, changed]


class LastAuditCollector(Collector):
    """Collects from `look`, which returns the last audit of each link; empty if the store doesn't answer."""

    def __init__(self, look: Callable[[], Sequence[AuditOfLink]]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """Verdict, age and counts of the last one-off audit, by link; nothing for a link that never had one."""
        verdict = GaugeMetricFamily(
            "drkit_last_audit_verdict", "1 for the verdict of the link's last audit", labels=["link", "verdict"]
        )
        age = GaugeMetricFamily("drkit_last_audit_age_seconds", "Seconds since the last audit began", labels=["link"])
        records = GaugeMetricFamily(
            "drkit_last_audit_records", "Records by the result of the link's last audit", labels=["link", "kind"]
        )
        try:
            audits = self._look()
        except DrkitError:
            audits = ()
        at = now()
        for each in audits:
            for name in AUDIT_VERDICTS:
                verdict.add_metric([each.link, name], 1 if each.verdict == name else 0)
            since = age_seconds(each.began, at)
            if since is not None:
                age.add_metric([each.link], since)
            for kind in ("matched", *FindingKind):
                if each.totals is not None:
                    records.add_metric([each.link, str(kind)], each.totals.get(str(kind), 0))
        return [verdict, age, records]
