"""Playing one step. What comes back is an outcome with its reason; nothing is raised but interrupts.

`failed` refutes what the step stands for; `unknown` is a step that couldn't be made or whose
answer never came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from drkit.drill.conditions import wait_for
from drkit.drill.environment.child_processes import Finished
from drkit.drill.environment.environment import DrillEnvironment, document
from drkit.drill.experiment.experiment import (
    SOURCE,
    TARGET,
    Failover,
    Kill,
    Load,
    Mirror,
    MoveClients,
    Pause,
    Restart,
    Resume,
    Step,
    StopClients,
    Wait,
    Workload,
)
from drkit.drill.faults import FAULTS
from drkit.drill.judge.result import StepOutcome
from drkit.drill.workload.reading import NotRead, create_topic
from drkit.model.errors import DrkitError, ExitCode

TOPIC_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Played:
    """How a step went."""

    outcome: StepOutcome
    reason: str | None = None


def describe(step: Step) -> str:  # noqa: PLR0911  # one arm a step
    """A step in a few words."""
    match step:
        case Kill() | Pause() | Resume() | Restart():
            return f"{step.do} {step.node}"
        case Failover():
            return f"failover to {step.to}"
        case MoveClients():
            return f"move clients to {step.to}"
        case StopClients():
            return "stop clients" if step.who == "both" else f"stop {step.who}"
        case Wait():
            return f"wait until {step.until.condition}"
        case Load():
            return f"load {step.dataset}"
        case Workload() | Mirror():
            return step.do
        case _:
            assert_never(step)


def play(env: DrillEnvironment, step: Step) -> Played:
    """Play a step to its end."""
    try:
        return _play(env, step)
    except NotRead as error:
        return Played("unknown", str(error))
    except DrkitError as error:
        return Played("unknown", str(error))


def _play(env: DrillEnvironment, step: Step) -> Played:  # noqa: PLR0911  # one arm a step
    match step:
        case Workload():
            return _start_workload(env, step)
        case Mirror():
            return Played("ok", f"started (pid {env.start_mirror().pid})")
        case Load():
            return _load(env, step)
        case Wait():
            result = wait_for(env, [step.until], step.timeout_seconds)
            return Played("ok" if result.holds else "failed", result.seen)
        case Kill() | Pause() | Resume() | Restart():
            return _fault(env, step)
        case Failover():
            return _failover(env, step)
        case MoveClients():
            return _move(env, step)
        case StopClients():
            kind = None if step.who == "both" else step.who
            stopped = env.clients.running(kind)
            env.clients.stop(stopped)
            return Played("ok", f"stopped {', '.join(client.name for client in stopped) or 'nothing'}")
        case _:
            assert_never(step)


def _start_workload(env: DrillEnvironment, step: Workload) -> Played:
    replicas = min(3, env.experiment.lab.brokers)
    create_topic(env.properties[SOURCE], step.topic, step.partitions, replicas, TOPIC_SECONDS)
    env.clients.start("consumer", SOURCE)
    env.clients.start("producer", SOURCE)
    return Played("ok", f"{step.records_per_second:g} records/s to {step.topic}, read by {step.group}")


def _load(env: DrillEnvironment, step: Load) -> Played:
    child = env.start_load(step)
    if step.background:
        return Played("ok", f"started (pid {child.pid})")
    return Played("ok" if child.wait() == 0 else "failed", child.ending())


def _fault(env: DrillEnvironment, step: Kill | Pause | Resume | Restart) -> Played:
    if step.node.partition("-")[0] == SOURCE and not isinstance(step, Resume):
        env.note_disaster()
    return Played("ok", FAULTS[step.do](env, step.node))


def _failover(env: DrillEnvironment, step: Failover) -> Played:
    env.note_disaster()
    finished = env.run_failover(step)
    env.failover = document(finished.stdout)
    played = judge_failover(finished, step.timeout_seconds)
    env.failed_over = played.outcome == "ok"
    return played


def judge_failover(finished: Finished, timeout_seconds: float) -> Played:
    """What the exit code of `drkit failover` means to a drill."""
    if finished.exit_code is None:
        return Played("failed", f"it did not end within {timeout_seconds:g} s{finished.log}")
    if finished.exit_code == ExitCode.OK:
        return Played("ok")
    if finished.exit_code == ExitCode.OBJECTIVE_MISSED:
        return Played("ok", "done; drkit itself says that an objective was missed")
    outcome: StepOutcome = "unknown" if finished.exit_code == ExitCode.UNKNOWN else "failed"
    return Played(outcome, f"exit code {finished.exit_code}{finished.log}")


def _move(env: DrillEnvironment, step: MoveClients) -> Played:
    """The group first: it is what an RTO waits for. A producer continues where the old one ended."""
    old = [client for client in env.clients.running() if client.cluster != step.to]
    consumer = env.clients.start("consumer", step.to)
    if step.to == TARGET:
        env.moved = env.failed_over
        env.note_positions(TARGET)
    env.clients.stop(old)
    producer = env.clients.start("producer", step.to)
    return Played("ok", f"{consumer.name} and {producer.name} run on {step.to}")
