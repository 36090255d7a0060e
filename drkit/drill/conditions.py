"""Evaluates conditions, and the safety rules that rest on them. Each observes now; none of them waits.

Safety rules are checked before every step from the disturbance on, and before every fault at a stage. If one doesn't
hold, the method ends there, and a fault at a stage is not injected. Rollbacks run nevertheless, except for a kill or
pause that would strike the other side. A rule that can't be evaluated doesn't hold.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, assert_never

from drkit.drill.environment.clients import LinkProgress
from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.waiting import rest
from drkit.drill.experiment.base import SOURCE, of_link
from drkit.drill.experiment.experiment import Safety
from drkit.drill.experiment.steps import (
    Acknowledged,
    Answers,
    Condition,
    Consumed,
    Drained,
    Mirrored,
    MirrorEnded,
    MirrorTold,
    NoMembers,
    PositionsCaptured,
    ProblemTold,
    Rollback,
    SameRecords,
    Silent,
    Step,
    struck_clusters,
)
from drkit.drill.judge.history import Landed, RecordId
from drkit.drill.workload.reading import NotRead, answers, log_ends, read_all
from drkit.model.errors import DrkitError
from drkit.model.wording import counted

INTERVAL_SECONDS = 0.1
STATUS_INTERVAL_SECONDS = 1.0
"""The least interval between calls of `drkit status`, each of which starts a process."""
ANSWER_SECONDS = 3.0
READ_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """`seen` describes the observation, whether the condition holds or not. `known`: False where nobody can say."""

    holds: bool
    seen: str
    known: bool = True


def _unknown(why: str) -> ConditionResult:
    """It isn't seen to hold."""
    return ConditionResult(False, why, known=False)


class StatusView:
    """One round of evaluation; `drkit status` is asked once a round, and only if a condition needs it."""

    def __init__(self, env: DrillEnvironment) -> None:
        self._rig = env
        self.asked = False

    @cached_property
    def status(self) -> dict[str, Any] | None:
        """The document of `drkit status`; None if it returns none."""
        self.asked = True
        return self._rig.status()


def evaluate(env: DrillEnvironment, condition: Condition, view: StatusView) -> ConditionResult:  # noqa: PLR0911, PLR0912, C901  # one arm a condition
    """Evaluate a condition once."""
    match condition:
        case Acknowledged():
            count = env.links[condition.link].clients.count("acks", condition.cluster)
            return ConditionResult(count >= condition.at_least, f"{count} records acknowledged by {condition.cluster}")
        case Consumed():
            count = env.links[condition.link].clients.count("polls", condition.cluster)
            return ConditionResult(count >= condition.at_least, f"{count} records read from {condition.cluster}")
        case Drained():
            return _drained(env, condition)
        case Mirrored():
            return _mirrored(view.status, env.links[condition.link], condition)
        case PositionsCaptured():
            return _captured(view.status, env.links[condition.link])
        case Answers():
            up = answers(env.properties[condition.cluster], ANSWER_SECONDS)
            return ConditionResult(up, f"{condition.cluster} {'answers' if up else 'does not answer'}")
        case Silent():
            up = answers(env.properties[condition.cluster], ANSWER_SECONDS)
            return ConditionResult(not up, f"{condition.cluster} {'answers' if up else 'does not answer'}")
        case NoMembers():
            group, members = env.links[condition.link].workload.group, env.members(condition.link, condition.cluster)
            where = f"{group} on {condition.cluster}"
            if members is None:
                return _unknown(f"{where}: can't be asked")
            return ConditionResult(members == 0, f"{where}: {counted(members, 'member')}")
        case ProblemTold():
            return _problem_told(view.status, env.links[condition.link], condition)
        case MirrorTold():
            reported = env.mirror_problems(condition.link)
            shown = sorted(kind if partition is None else f"{kind} of {partition}" for kind, partition in reported)
            topic = env.links[condition.link].workload.topic
            seen = f"the mirror tells of {topic}: {', '.join(shown) or 'no problem'}"
            met = any(kind == condition.kind and condition.partition in (None, at) for kind, at in reported)
            return ConditionResult(met, seen)
        case SameRecords():
            return _same_records(env, env.links[condition.link])
        case MirrorEnded():
            code = None if env.mirror is None else env.mirror.exit_code()
            seen = "the mirror is running" if code is None else f"the mirror ended with exit code {code}"
            return ConditionResult(code is not None, seen)
        case _:
            assert_never(condition)


def wait_for(env: DrillEnvironment, conditions: list[Condition], timeout_seconds: float) -> ConditionResult:
    """Check until all conditions hold in one round, or the time is up; returns the last observation.

    A round ends at the first condition that doesn't hold. A client that died is reported at once: waiting would only
    hide it.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        view = StatusView(env)
        seen: list[str] = []
        for condition in conditions:
            result = evaluate(env, condition, view)
            seen.append(result.seen)
            if not result.holds:
                break
        else:
            return ConditionResult(True, "; ".join(seen))
        dead = [f"{c.name} died: {c.child.ending()}" for c in env.died()]
        if dead:
            return ConditionResult(False, "; ".join([seen[-1], *dead]))
        if time.monotonic() > deadline:
            return ConditionResult(False, f"after {timeout_seconds:g} s: {seen[-1]}{_mirror_death(env)}")
        rest(STATUS_INTERVAL_SECONDS if view.asked else INTERVAL_SECONDS)


def _mirror_death(env: DrillEnvironment) -> str:
    if env.mirror is None or env.mirror.exit_code() is None:
        return ""
    return f"; the mirror is not running, it ended with {env.mirror.ending()}"


def _drained(env: DrillEnvironment, condition: Drained) -> ConditionResult:
    link = env.links[condition.link]
    workload, topic = link.workload, link.topic_on(condition.cluster)
    try:
        ends = log_ends(env.properties[condition.cluster], topic, workload.partitions, ANSWER_SECONDS)
    except NotRead as error:
        return _unknown(str(error))
    positions = link.clients.positions(condition.cluster)
    behind = sum(max(0, end - positions.get(partition, 0)) for partition, end in ends.items() if end)
    if not any(ends.values()):
        return ConditionResult(False, f"{topic} on {condition.cluster} has no record")
    return ConditionResult(behind == 0, f"{workload.group} is {behind} records from the end on {condition.cluster}")


def _mirrored(status: dict[str, Any] | None, link: LinkProgress, condition: Mirrored) -> ConditionResult:
    workload = link.workload
    if status is None:
        return _unknown("drkit status gave no answer")
    rows = [row for row in _rows(status, link, "partitions") if row["topic"] == workload.topic]
    if len({row["partition"] for row in rows}) < workload.partitions:
        return _unknown(f"drkit status knows {len(rows)} of {workload.partitions} partitions of {workload.topic}")
    lags = [row["lag_records"] for row in rows if row["partition"] not in condition.leaving_out]
    if any(lag is None for lag in lags):
        return _unknown(f"the lag of {workload.topic} is not known")
    return ConditionResult(
        sum(lags) <= condition.at_most_behind,
        f"{workload.topic}{of_link(link.spec.name)} is {sum(lags)} records behind",
    )


def _same_records(env: DrillEnvironment, link: LinkProgress) -> ConditionResult:
    """Partition by partition, by content and order; offsets may differ. There must be records to compare."""
    workload, (source, target) = link.workload, link.spec.clusters
    try:
        ours, theirs = (
            read_all(env.properties[cluster], link.drill, link.topic_on(cluster), workload.partitions, READ_SECONDS)
            for cluster in (source, target)
        )
    except NotRead as error:
        return _unknown(str(error))
    partitions = sorted({one.partition for one in (*ours, *theirs)})
    differing = [n for n in partitions if _contents(ours, n) != _contents(theirs, n)]
    held = f"{source} holds {len(ours)} records, {target} {len(theirs)}"
    if not partitions:
        return ConditionResult(False, f"{held}: there is nothing to compare")
    where = f"partitions {', '.join(map(str, differing))} differ" if differing else "each partition is the same"
    return ConditionResult(not differing, f"{held}; {where}")


def _contents(landed: list[Landed], partition: int) -> list[tuple[RecordId | None, int]]:
    rows = sorted((one for one in landed if one.partition == partition), key=lambda one: one.offset)
    return [(one.record, one.digest) for one in rows]


def _captured(status: dict[str, Any] | None, link: LinkProgress) -> ConditionResult:
    workload = link.workload
    if status is None:
        return _unknown("drkit status gave no answer")
    captured = {
        row["partition"]
        for row in _rows(status, link, "groups")
        if row["group"] == workload.group and row["topic"] == workload.topic and row["captured_at"] is not None
    }
    seen = f"the position of {workload.group} is captured on {len(captured)} of {workload.partitions} partitions"
    return ConditionResult(len(captured) == workload.partitions, seen)


def _problem_told(status: dict[str, Any] | None, link: LinkProgress, condition: ProblemTold) -> ConditionResult:
    workload = link.workload
    if status is None:
        return _unknown("drkit status gave no answer")
    reported = {row["kind"] for row in _rows(status, link, "problems") if row["topic"] == workload.topic}
    seen = f"drkit status tells of {workload.topic}: {', '.join(sorted(reported)) or 'no problem'}"
    return ConditionResult(condition.kind in reported, seen)


def _rows(status: dict[str, Any], link: LinkProgress, kind: str) -> Iterator[dict[str, Any]]:
    for each in status["links"]:
        if (each["source"], each["target"]) == link.configured:
            yield from each[kind]


# --- safety rules --------------------------------------------------------------------------------------------------


def broken_rule(env: DrillEnvironment, safety: Safety, step: Step | Rollback, began: float) -> str | None:
    """Why a step may not be played now; None: it may. `began`: the drill's start, by CLOCK_MONOTONIC."""
    limit = safety.time_limit_seconds
    if limit is not None and time.monotonic() - began > limit:
        return f"the drill takes longer than {limit:g} s"
    broken = strikes_both_sides(env, safety, step)
    return broken or _unhealthy(env, safety) or _abort(env, safety)


def strikes_both_sides(env: DrillEnvironment, safety: Safety, step: Step | Rollback) -> str | None:
    """Why a step may not be played by `never_both_sides`, the only rule for rollbacks; None: it may."""
    return _both_sides(env, step) if safety.never_both_sides else None


def _both_sides(env: DrillEnvironment, step: Step | Rollback) -> str | None:
    pairs = ((cluster, other) for cluster in struck_clusters(step) for other in env.experiment.linked_with(cluster))
    for cluster, other in pairs:
        if other in env.took_data_from:
            return f"it would strike {cluster} after a fault took data from {other}: both sides would be damaged"
        if other == SOURCE and env.wan is not None and env.wan.state.blocked:
            return f"it would strike {cluster} while nothing passes to {other}: both sides would be unavailable"
        if not answers(env.properties[other], ANSWER_SECONDS):
            return f"it would strike {cluster} while {other} does not answer: both sides would be unavailable"
    return None


def _unhealthy(env: DrillEnvironment, safety: Safety) -> str | None:
    if not safety.healthy_brokers:
        return None
    try:
        up = Counter(node.cluster for node in env.lab.status() if node.state == "up")
    except DrkitError as error:
        return f"the healthy brokers can't be counted: {error}"
    for cluster, least in safety.healthy_brokers.items():
        if up[cluster] < least:
            return f"{counted(up[cluster], 'broker')} of {cluster} healthy, at least {least} must be"
    return None


def _abort(env: DrillEnvironment, safety: Safety) -> str | None:
    view = StatusView(env)
    for condition in safety.abort_when:
        found = evaluate(env, condition, view)
        if found.holds:
            return f"{condition.condition}: {found.seen}"
        if not found.known:
            return f"{condition.condition}: whether it holds isn't known: {found.seen}"
    return None
