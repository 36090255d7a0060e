"""The drills in the store as Prometheus metrics, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.observe.drill_history import VERDICTS, DrillKind


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
            newest.add_metric([each.title], max(0.0, (at - each.at).total_seconds()))
            for name in VERDICTS:
                verdict.add_metric([each.title, name], 1 if each.verdict == name else 0)
        return [age, newest, verdict, changed]
