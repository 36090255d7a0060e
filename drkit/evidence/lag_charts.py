"""The charts of a drill's page as series of points: lag of the mirror and of the group, records each second.

`charts.py` draws them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from drkit.evidence import verifier
from drkit.evidence.unknown_values import Unknown

Document = dict[str, Any]
_POINTS = 600
_MIRROR = "the mirror did not run, or its log has no reports"


def chart_series(folder: Path, began: float, started_at: datetime) -> list[Document]:
    """Acknowledged and read records each second, the group's lag, the mirror's lag."""
    history = verifier.History(folder)
    found = []
    for cluster in (history.source, history.target):
        acks = [row["acked_at"] - began for row in history.acked if row["cluster"] == cluster]
        reads = [row["at"] - began for row in history.polls if row["cluster"] == cluster]
        found.append(_rate(f"acknowledged by {cluster}", acks))
        found.append(_rate(f"read on {cluster}", reads))
        if cluster == history.source:
            found.append(_backlog(f"the group's lag on {cluster}", acks, reads))
    found.append(_lag(folder / "mirror.log", started_at))
    return found


def _rate(name: str, times: Sequence[float]) -> Document:
    counted = Counter(int(each) for each in times)
    seconds = range(min(counted), max(counted) + 1) if counted else range(0)
    points: Any = [[second, counted[second]] for second in seconds]
    return {"name": name, "unit": "records/s", "points": _thin(points) or Unknown("nothing happened there")}


def _backlog(name: str, written: Sequence[float], read: Sequence[float]) -> Document:
    steps = Counter({int(each): 0 for each in (*written, *read)})
    for each in written:
        steps[int(each)] += 1
    for each in read:
        steps[int(each)] -= 1
    level, points = 0, list[list[float]]()
    for second in sorted(steps):
        level += steps[second]
        points.append([second, max(0, level)])
    return {"name": name, "unit": "records", "points": _thin(points) or Unknown("nothing happened there")}


def _lag(log: Path, started_at: datetime) -> Document:
    points: list[list[float]] = []
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("type") == "progress" and said.get("lag_records") is not None:
                after = (datetime.fromisoformat(said["at"]) - started_at).total_seconds()
                points.append([round(after, 1), said["lag_records"]])
        except (ValueError, KeyError, TypeError):  # a line that a kill cut short
            continue
    return {"name": "the mirror's lag", "unit": "records", "points": _thin(points) or Unknown(_MIRROR)}


def _thin(points: list[list[float]]) -> list[list[float]]:
    """At most so many points as a chart shows; the last one stays."""
    step = max(1, -(-len(points) // _POINTS))
    thinned = points[::step]
    return thinned if not points or thinned[-1] == points[-1] else [*thinned, points[-1]]
