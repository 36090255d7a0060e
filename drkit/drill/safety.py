"""Safety rules: checked before every step from the disturbance on, and before every fault at a stage.

If one doesn't hold, the method ends there, and a fault at a stage is not injected. Rollbacks run nevertheless, except
for a kill or pause that would strike the other side. A rule only observes; one that can't be evaluated doesn't hold.
"""

from __future__ import annotations

import time
from collections import Counter

from drkit.drill.conditions import ANSWER_SECONDS, StatusView, evaluate
from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.base import SOURCE
from drkit.drill.experiment.experiment import Safety
from drkit.drill.experiment.steps import Rollback, Step, struck_clusters
from drkit.drill.workload.reading import answers
from drkit.model.errors import DrkitError
from drkit.model.wording import counted


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
