"""Short descriptions of steps, for results."""

from __future__ import annotations

from typing import assert_never

from drkit.drill.experiment.base import of_link, of_links
from drkit.drill.experiment.faults import ApplicationFault, Fault, NetworkFault, NodeFault, TopicFault
from drkit.drill.experiment.steps import (
    Failback,
    Failover,
    Hold,
    Load,
    Mirror,
    Move,
    MoveClients,
    Parallel,
    Reprotect,
    Rollback,
    Step,
    StopClients,
    Wait,
    Workload,
)


def describe(step: Step | Rollback) -> str:  # noqa: PLR0911, PLR0912, C901  # one arm a step
    """A step's short description."""
    if isinstance(step, NodeFault):
        return f"{step.do} {step.node}"
    if isinstance(step, TopicFault | ApplicationFault | NetworkFault):
        return f"{step.do.replace('_', ' ')} on {step.cluster}"
    match step:
        case Failover():
            return f"failover{of_links(step.links)} to {step.to}"
        case Failback():
            to = "" if step.to is None else f" to {step.to}"
            return f"failback{of_links(step.links)}{to}"
        case Reprotect():
            return f"reprotect{of_links(step.links)}"
        case MoveClients():
            return f"move clients{of_link(step.link)} to {step.to}"
        case StopClients():
            return f"stop {'clients' if step.who == 'both' else step.who}{of_link(step.link)}"
        case Wait():
            return f"wait until {step.until.condition}{of_link(getattr(step.until, 'link', None))}"
        case Hold():
            return f"hold {step.seconds:g} s"
        case Load():
            return f"load {step.dataset}"
        case Parallel():
            return f"in parallel: {' | '.join(', '.join(map(describe, branch)) for branch in step.branches)}"
        case Workload():
            return f"workload{of_link(step.link)}"
        case Mirror():
            return step.do
        case _:
            assert_never(step)


def describe_strike(move: Move, stage: str, fault: Fault) -> str:
    """The short description of a fault at a stage."""
    return f"{describe(fault)} at {move.do} {stage}"
