"""Plays one step and returns its outcome with the reason; what it raises nobody foresaw.

`failed`: the step refutes what it should show; `unknown`: it couldn't be played, or had no result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import assert_never

from drkit.drill.conditions import wait_for
from drkit.drill.environment.child_processes import Finished
from drkit.drill.environment.environment import DrillEnvironment, document, stated_loss, stated_positions
from drkit.drill.environment.waiting import rest
from drkit.drill.experiment.faults import Fault
from drkit.drill.experiment.steps import (
    Failback,
    Failover,
    Hold,
    Load,
    Mirror,
    Move,
    MoveClients,
    PlainStep,
    Reprotect,
    StopClients,
    Wait,
    Workload,
    describe_strike,
)
from drkit.drill.faults.inject import inject
from drkit.drill.judge.result import StepOutcome
from drkit.drill.workload.reading import NotRead, create_topic
from drkit.failover.site.site_document import link_document
from drkit.model.errors import DrkitError, ExitCode

TOPIC_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome of a step, with the strikes of a failover or failback."""

    outcome: StepOutcome
    reason: str | None = None
    strikes: tuple[PlayedStrike, ...] = ()


@dataclass(frozen=True, slots=True)
class PlayedStrike:
    """The outcome of a fault at a stage.

    `place`: the index of the strike in the step, and of the fault in it. `began`: CLOCK_MONOTONIC; None: it never did.
    """

    place: tuple[int, int]
    step: str
    played: Played
    began: float | None
    seconds: float


def play(env: DrillEnvironment, step: PlainStep) -> Played:
    """Play a step to its end."""
    try:
        return _play(env, step)
    except (NotRead, DrkitError) as error:
        return Played("unknown", str(error))


def _play(env: DrillEnvironment, step: PlainStep) -> Played:  # noqa: PLR0911, C901  # one arm a step
    if isinstance(step, Fault):
        return _fault(env, step)
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
        case Failover():
            return _failover(env, step)
        case Failback():
            return _failback(env, step)
        case Reprotect():
            return _reprotect(env, step)
        case Hold():
            rest(step.seconds)
            return Played("ok")
        case MoveClients():
            return _move(env, step)
        case StopClients():
            stopped = env.stop_clients(step.link, None if step.who == "both" else step.who)
            return Played("ok", f"stopped {', '.join(client.name for client in stopped) or 'nothing'}")
        case _:
            assert_never(step)


def _start_workload(env: DrillEnvironment, step: Workload) -> Played:
    replicas = min(3, env.experiment.lab.brokers)
    source, clients = env.experiment.link(step.link).source, env.links[step.link].clients
    create_topic(env.properties[source], step.topic, step.partitions, replicas, TOPIC_SECONDS)
    clients.start("consumer", source)
    clients.start("producer", source)
    return Played("ok", f"{step.records_per_second:g} records/s to {step.topic}, read by {step.group}")


def _load(env: DrillEnvironment, step: Load) -> Played:
    child = env.start_load(step)
    if step.background:
        return Played("ok", f"started (pid {child.pid})")
    return Played("ok" if child.wait() == 0 else "failed", child.ending())


def _fault(env: DrillEnvironment, fault: Fault) -> Played:
    env.note_fault(fault)
    return Played("ok", inject(env, fault))


def _failover(env: DrillEnvironment, step: Failover) -> Played:
    moving, began = [env.links[spec.name] for spec in env.experiment.moved_by(step)], time.monotonic()
    for link in moving:
        link.note_disaster()
        link.stated, link.stated_loss = (), None
        link.failovers += 1
    if step.runbook is None:
        finished, strikes = _move_groups(env, step)
    else:
        finished, strikes = env.run_runbook(step, step.runbook), ()
    ended = time.monotonic()
    env.failover = document(finished.stdout)
    played = judge_failover(finished, step.timeout_seconds)
    for link in moving:
        link.failover = None if env.failover is None else link_document(env.failover, link.spec.name)
    alone = [link.spec.name for link in moving if link.failover is None or "left_alone" in link.failover]
    if played.outcome == "ok" and alone:
        played = Played("failed", f"no failover moved {' and '.join(alone)}")
    for link in moving:
        link.failed_over = link.away = played.outcome == "ok"
        if link.failed_over:
            link.returned_at = None
            link.stated = stated_positions(link.failover, link.workload, ended)
            if link.failovers == 1:
                link.stated_loss = stated_loss(link.failover, link.workload, began)
    return _with_strikes(played, strikes)


def _failback(env: DrillEnvironment, step: Failback) -> Played:
    returning = env.returned_by(step)
    finished, strikes = _move_groups(env, step)
    env.failback = document(finished.stdout)
    played = judge_failover(finished, step.timeout_seconds)
    if played.outcome == "ok":
        for link in returning:
            link.away, link.returned_at = False, time.monotonic()
            link.note_positions(env.properties[link.spec.source], link.spec.source)
    return _with_strikes(played, strikes)


def _reprotect(env: DrillEnvironment, step: Reprotect) -> Played:
    returning = env.returned_by(step)
    finished = env.run_reprotect(step)
    env.reprotect = document(finished.stdout)
    played = judge_failover(finished, step.timeout_seconds)
    if played.outcome == "ok":
        for link in returning:
            link.away = False
            env.turn_link_round(link)
    return played


def _with_strikes(played: Played, strikes: tuple[PlayedStrike, ...]) -> Played:
    """A successful move is unknown if a fault did not strike: it proved nothing about that fault."""
    missing = [f"{each.step}: {each.played.reason}" for each in strikes if each.played.outcome != "ok"]
    if played.outcome == "ok" and missing:
        played = Played("unknown", "; ".join(missing))
    return replace(played, strikes=strikes)


def _move_groups(env: DrillEnvironment, step: Move) -> tuple[Finished, tuple[PlayedStrike, ...]]:
    """Run the step's command; returns the outcome of each of its strikes, in the order of the file."""
    played: dict[tuple[int, int], PlayedStrike] = {}

    def strike(stage: str) -> None:
        number = next(n for n, each in enumerate(step.strikes) if each.at == stage)
        for one, fault in enumerate(step.strikes[number].faults):
            played[number, one] = _struck(env, step, (number, one), fault)

    finished = env.run_move(step, strike)
    for number, each in enumerate(step.strikes):
        for one, fault in enumerate(each.faults):
            never = Played("unknown", f"no run reached its stage {each.at}")
            missing = PlayedStrike((number, one), describe_strike(step, each.at, fault), never, None, 0.0)
            played.setdefault((number, one), missing)
    return finished, tuple(one for _, one in sorted(played.items()))


def _struck(env: DrillEnvironment, step: Move, place: tuple[int, int], fault: Fault) -> PlayedStrike:
    name = describe_strike(step, step.strikes[place[0]].at, fault)
    env.say(f"{name} …")
    began = time.monotonic()
    try:
        broken = env.may_not_strike(fault)
        if broken is None:
            result = Played("ok", inject(env, fault))
        else:
            result = Played("unknown", f"not injected, by a safety rule: {broken}")
    except Exception as error:  # noqa: BLE001  # the run that is stopped at its stage continues, whatever happened
        result = Played("unknown", str(error) if isinstance(error, DrkitError) else unforeseen(error))
    return PlayedStrike(place, name, result, began, time.monotonic() - began)


def unforeseen(error: Exception) -> str:
    """An error that no step expects, in words."""
    return f"{type(error).__name__}: {error}"


def judge_failover(finished: Finished, timeout_seconds: float) -> Played:
    """The outcome by the exit code of `drkit failover`."""
    if finished.exit_code is None:
        return Played("failed", f"it did not end within {timeout_seconds:g} s{finished.log}")
    if finished.exit_code == ExitCode.OK:
        return Played("ok")
    if finished.exit_code == ExitCode.OBJECTIVE_MISSED:
        return Played("ok", "done; drkit itself reports a missed objective")
    outcome: StepOutcome = "unknown" if finished.exit_code == ExitCode.UNKNOWN else "failed"
    return Played(outcome, f"exit code {finished.exit_code}{finished.log}")


def _move(env: DrillEnvironment, step: MoveClients) -> Played:
    """Move the clients: the group first, because the RTO ends with it. The producer continues the old one's numbers."""
    link = env.links[step.link]
    old = [client for client in link.clients.running() if client.cluster != step.to]
    consumer = link.clients.start("consumer", step.to)
    if step.to == link.spec.target:
        link.moved = link.failed_over
        link.note_positions(env.properties[step.to], step.to)
    link.clients.stop([client for client in old if not (step.keep_producer and client.kind == "producer")])
    producer = link.clients.start("producer", step.to)
    return Played("ok", f"{consumer.name} and {producer.name} run on {step.to}")
