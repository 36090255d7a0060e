"""Whether a condition holds now, and what was seen. One function a condition; none of them waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from drkit.drill.experiment import (
    Acknowledged,
    Answers,
    Condition,
    Consumed,
    Drained,
    Mirrored,
    PositionsCaptured,
    Silent,
    Workload,
)
from drkit.drill.rig import Rig
from drkit.drill.workload.reading import NotRead, answers, log_ends

INTERVAL_SECONDS = 0.2
ANSWER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Sight:
    """`seen` says in words what was seen, whether the condition holds or not."""

    holds: bool
    seen: str


def look(rig: Rig, condition: Condition) -> Sight:  # noqa: PLR0911  # one arm a condition
    """Evaluate a condition once."""
    match condition:
        case Acknowledged():
            count = rig.clients.count("acks", condition.on)
            return Sight(count >= condition.at_least, f"{count} records acknowledged by {condition.on}")
        case Consumed():
            count = rig.clients.count("polls", condition.on)
            return Sight(count >= condition.at_least, f"{count} records read from {condition.on}")
        case Drained():
            return _drained(rig, condition)
        case Mirrored():
            return _mirrored(rig.status(), rig.experiment.workload, condition)
        case PositionsCaptured():
            return _captured(rig.status(), rig.experiment.workload)
        case Answers():
            up = answers(rig.properties[condition.cluster], ANSWER_SECONDS)
            return Sight(up, f"{condition.cluster} {'answers' if up else 'does not answer'}")
        case Silent():
            up = answers(rig.properties[condition.cluster], ANSWER_SECONDS)
            return Sight(not up, f"{condition.cluster} {'answers' if up else 'does not answer'}")
        case _:
            assert_never(condition)


def wait_for(rig: Rig, conditions: list[Condition], timeout_seconds: float) -> Sight:
    """Look until all conditions hold in one round, or time is up; what was seen last is told.

    A client or a mirror that dies is told at once: waiting on would only hide it.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        sights = [look(rig, condition) for condition in conditions]
        open_ones = [sight.seen for sight in sights if not sight.holds]
        if not open_ones:
            return Sight(True, "; ".join(sight.seen for sight in sights))
        dead = [f"{c.name} died: {c.child.ending()}" for c in rig.clients.died()]
        if dead:
            return Sight(False, "; ".join([*open_ones, *dead]))
        if time.monotonic() > deadline:
            return Sight(False, f"after {timeout_seconds:g} s: {'; '.join(open_ones)}{_mirror_death(rig)}")
        time.sleep(INTERVAL_SECONDS)


def _mirror_death(rig: Rig) -> str:
    if rig.mirror is None or rig.mirror.exit_code() is None:
        return ""
    return f"; the mirror is not running, it ended with {rig.mirror.ending()}"


def _drained(rig: Rig, condition: Drained) -> Sight:
    workload = rig.experiment.workload
    try:
        ends = log_ends(rig.properties[condition.on], workload.topic, workload.partitions, ANSWER_SECONDS)
    except NotRead as error:
        return Sight(False, str(error))
    positions = rig.clients.positions(condition.on)
    behind = sum(max(0, end - positions.get(partition, 0)) for partition, end in ends.items() if end)
    return Sight(behind == 0, f"{workload.group} is {behind} records from the end on {condition.on}")


def _mirrored(status: dict[str, Any] | None, workload: Workload, condition: Mirrored) -> Sight:
    if status is None:
        return Sight(False, "drkit status gave no answer")
    rows = [row for row in _rows(status, "partitions") if row["topic"] == workload.topic]
    if len(rows) < workload.partitions:
        return Sight(False, f"drkit status knows {len(rows)} of {workload.partitions} partitions of {workload.topic}")
    lags = [row["lag_records"] for row in rows]
    if any(lag is None for lag in lags):
        return Sight(False, f"the lag of {workload.topic} is not known")
    return Sight(sum(lags) <= condition.at_most_behind, f"{workload.topic} is {sum(lags)} records behind")


def _captured(status: dict[str, Any] | None, workload: Workload) -> Sight:
    if status is None:
        return Sight(False, "drkit status gave no answer")
    captured = {
        row["partition"]
        for row in _rows(status, "groups")
        if row["group"] == workload.group and row["topic"] == workload.topic and row["captured_at"] is not None
    }
    seen = f"the position of {workload.group} is captured on {len(captured)} of {workload.partitions} partitions"
    return Sight(len(captured) == workload.partitions, seen)


def _rows(status: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    for link in status["links"]:
        yield from link[kind]
