"""The history of a link's status: one sample per poll, in the store in rings of a fixed size.

A ring has a slot for each step of its span, as a note of the link; a slot's name is its time modulo the span, so a new
lap overwrites the old one and the store never exceeds `RINGS` (4,416 notes of some 120 bytes a link).
A step keeps the worst of its samples; if one of them is unknown, the worst is unknown. Rates are means.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from drkit.model.clock import now, oldest_age
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import LinkId
from drkit.model.totals import greatest, total
from drkit.observe.link_status import LinkStatus
from drkit.store.api import LinkStore

MEASURES = (
    "rpo_records",
    "rpo_seconds",
    "lag_records",
    "lag_seconds",
    "records_per_second",
    "bytes_per_second",
    "latency_p50",
    "latency_p99",
    "group_age_seconds",
)
_RATES = frozenset({"records_per_second", "bytes_per_second"})
_LIVE_SECONDS = 3600
_LIVE_STEP = 10
_RAREST = 60
"""The longest interval between two polls, in seconds."""

Values = tuple[float | None, ...]
"""One value for each of `MEASURES`; None: unknown."""


@dataclass(frozen=True, slots=True)
class Ring:
    """`slots` steps of `step` seconds; `kind` of its notes in the store."""

    kind: str
    step: int
    slots: int


RINGS = (Ring("history_minutes", 60, 1440), Ring("history_quarters", 900, 2976))
SPANS = {"1h": _LIVE_SECONDS, "24h": 24 * 3600, "31d": 31 * 24 * 3600}
"""The spans that can be requested, and their lengths in seconds."""


def measure(status: LinkStatus, at: datetime) -> Values:
    """The sample of one poll of a link. Counts of a source that doesn't answer are lower bounds: unknown.

    A link that was failed over has no lag and no recovery point: nothing is mirrored.
    """
    if status.failed_over:
        return (None,) * len(MEASURES)
    lags = [each.lag_records for each in status.partitions]
    seconds = [each.lag_seconds for each in status.partitions]
    captured = [each.captured_at for each in status.groups if each.type is None]
    latencies = [each.latency for each in status.statistics if each.latency is not None]
    found: dict[str, float | None] = {
        "rpo_records": None if status.recovery_point.lower_bound else status.recovery_point.records,
        "rpo_seconds": status.recovery_point.seconds,
        "lag_records": total(lags) if lags and status.source_reachable else None,
        "lag_seconds": greatest(seconds),
        "records_per_second": sum(each.records_per_second for each in status.statistics) if status.statistics else None,
        "bytes_per_second": sum(each.bytes_per_second for each in status.statistics) if status.statistics else None,
        "latency_p50": greatest([each.p50 for each in latencies]),
        "latency_p99": greatest([each.p99 for each in latencies]),
        "group_age_seconds": oldest_age(captured, at),
    }
    return tuple(_rounded(found[name]) for name in MEASURES)


class StatusHistory:
    """The rings of links, in memory and in the store.

    Args:
        store: holds them; samples taken while it doesn't answer are lost at a restart. None: `begin` gives it later.
        links: the links; their history is read from the store at once.
    """

    def __init__(self, store: LinkStore | None, links: Iterable[LinkId]) -> None:
        self._store: LinkStore | None = None
        self._lock = threading.Lock()
        self._links = {link: _LinkHistory() for link in links}
        self.reason: str | None = "the store has not answered yet"
        """Why the last samples aren't in the store; None if they are."""
        if store is not None:
            self.begin(store)

    def begin(self, store: LinkStore) -> None:
        """Read the history from the store, and keep what comes there."""
        self.reason = None
        self._read(store)
        self._store = store

    def add(self, statuses: Sequence[LinkStatus], at: datetime) -> None:
        """Add a poll's sample of each link; a link without a status gets an unknown sample."""
        seen = {status.link.id: measure(status, at) for status in statuses if not status.link.inverse}
        closed: list[tuple[LinkId, Ring, int, Values]] = []
        with self._lock:
            for link, history in self._links.items():
                values = seen.get(link, (None,) * len(MEASURES))
                closed += [(link, *each) for each in history.add(at.timestamp(), values)]
        for link, ring, step, values in closed:
            self._keep(link, ring, step, values)

    def document(self, link: LinkId, span: str, at: datetime) -> dict[str, Any]:
        """Times (seconds since the epoch) and the values of each measure, oldest first; a null marks a gap.

        Raises:
            KeyError: no such link or span.
        """
        with self._lock:
            step, points = self._links[link].points(span, at.timestamp())
        whole = _with_gaps(points, step)
        columns = zip(*(values for _, values in whole), strict=True) if whole else ([] for _ in MEASURES)
        return {
            "link": str(link),
            "span": span,
            "step_seconds": step,
            "at": [time for time, _ in whole],
            "series": dict(zip(MEASURES, map(list, columns), strict=True)),
        }

    def _keep(self, link: LinkId, ring: Ring, step: int, values: Values) -> None:
        if self._store is None:
            return
        body = json.dumps({"at": step * ring.step, "v": values}, separators=(",", ":"))
        try:
            self._store.put_notes(link, ring.kind, {f"{step % ring.slots:05d}": body})
        except DrkitError as error:
            self.reason = error.what
        else:
            self.reason = None

    def _read(self, store: LinkStore) -> None:
        for link, history in self._links.items():
            for ring in RINGS:
                try:
                    notes = store.notes(link, ring.kind)
                except Unreachable as error:  # each further read would wait as long
                    self.reason = error.what
                    return
                except DrkitError as error:
                    self.reason = error.what
                    continue
                with self._lock:  # not while the store is read: each poll takes it
                    history.load(ring, notes, now().timestamp())


class _LinkHistory:
    """One link's rings in memory, the open steps, and every sample of the last hour."""

    def __init__(self) -> None:
        self._rings: dict[Ring, dict[int, Values]] = {ring: {} for ring in RINGS}
        self._open: dict[Ring, tuple[int, list[Values]]] = {}
        self._live: deque[tuple[float, Values]] = deque()

    def load(self, ring: Ring, notes: Mapping[str, str], at: float) -> None:
        newest = math.floor(at / ring.step)
        for body in notes.values():
            try:
                kept = json.loads(body)
                step, values = int(kept["at"]) // ring.step, tuple(map(_number, kept["v"]))
            except (ValueError, KeyError, TypeError):  # written by another version
                continue
            if len(values) == len(MEASURES) and newest - ring.slots < step <= newest:
                self._rings[ring][step] = values

    def add(self, at: float, values: Values) -> list[tuple[Ring, int, Values]]:
        """Add a sample; returns the finished steps to store."""
        self._live.append((at, values))
        while self._live and self._live[0][0] < at - _LIVE_SECONDS:
            self._live.popleft()
        ended = []
        for ring in RINGS:
            step = math.floor(at / ring.step)
            begun = self._open.get(ring)
            if begun is not None and begun[0] != step:
                ended.append((ring, begun[0], aggregate(begun[1])))
                self._rings[ring][begun[0]] = ended[-1][2]
                begun = None
                for old in [each for each in self._rings[ring] if each <= step - ring.slots]:
                    del self._rings[ring][old]
            if begun is None:
                self._open[ring] = begun = (step, [])
            begun[1].append(values)
        return ended

    def points(self, span: str, at: float) -> tuple[int, list[tuple[int, Values]]]:
        """The step in seconds, and time and values of each, oldest first."""
        since = at - SPANS[span]
        if span != "1h":
            ring = next(ring for ring in RINGS if ring.step * ring.slots >= SPANS[span])
            kept = self._rings[ring].items()
            return ring.step, sorted((step * ring.step, values) for step, values in kept if step * ring.step >= since)
        steps: dict[int, list[Values]] = {}
        for time, values in self._live:
            steps.setdefault(math.floor(time / _LIVE_STEP) * _LIVE_STEP, []).append(values)
        live = sorted((time, aggregate(samples)) for time, samples in steps.items() if time >= since)
        begins = live[0][0] if live else math.inf
        minutes = self._rings[RINGS[0]].items()
        before = sorted((step * 60, values) for step, values in minutes if since <= step * 60 < begins - 60)
        return (60 if before else _LIVE_STEP), before + live


def aggregate(samples: Sequence[Values]) -> Values:
    """One sample for several: the worst of each measure (None where one of them is), the mean of rates."""
    return tuple(
        _rounded(_mean(column) if name in _RATES else greatest(column))
        for name, column in zip(MEASURES, zip(*samples, strict=True), strict=True)
    )


def _with_gaps(points: Sequence[tuple[int, Values]], step: int) -> list[tuple[int, Values]]:
    """The points, with an unknown one in each gap, so that no line is drawn across it.

    Polls may be rarer than steps: a gap is three times as long as the usual interval between points (a minute at
    most).
    """
    between = sorted(after - before for (before, _), (after, _) in pairwise(points))
    usual = max(step, min(between[len(between) // 2], _RAREST) if between else 0)
    found: list[tuple[int, Values]] = []
    for time, values in points:
        if found and time - found[-1][0] >= 3 * usual:
            found.append((found[-1][0] + step, (None,) * len(MEASURES)))
        found.append((time, values))
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(value)
    return value
