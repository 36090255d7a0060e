"""The user's commands that a run calls: before it changes anything, and after the verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from drkit.config.schema.directory import HooksConfig
from drkit.directory.command import ended, run_bounded
from drkit.failover.context.state_machine import Kind
from drkit.failover.plan.failover_plan import StagePlan
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, Refused

Command = tuple[str, ...]


class When(StrEnum):
    """Names of the two moments, in the journal and among the contract's `stages`."""

    PRE = "pre_hooks"
    POST = "post_hooks"


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of one run. `environment`: variables for the commands, besides this process's own."""

    pre: tuple[Command, ...] = ()
    post: tuple[Command, ...] = ()
    timeout_seconds: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def commands(self, when: When) -> tuple[Command, ...]:
        """The commands of a moment, in order."""
        return self.pre if when is When.PRE else self.post

    def call(self, when: When, state: str) -> str:
        """Call the commands of a moment, one after the other; returns what was done, in a sentence.

        Raises:
            Refused: one failed, didn't end in time or can't be started. Those after it weren't called.
        """
        commands = self.commands(when)
        for command in commands:
            name = f"{when.value.removesuffix('s').replace('_', '-')} {command[0]}"
            told = {**self.environment, "DRKIT_HOOK": when.value.removesuffix("s"), "DRKIT_STATE": state}
            try:
                done = run_bounded(command, told, "", Deadline.after(self.timeout_seconds))
            except DrkitError as error:
                raise Refused(f"{name}: {error.what}", remedy=error.remedy) from error
            if done.code != 0:
                failed = ended(name, "do its work", done)
                raise Refused(failed.what, remedy=failed.remedy)
        return f"{', '.join(command[0] for command in commands)} done"


def hooks_of(config: HooksConfig, kind: Kind, environment: Mapping[str, str]) -> Hooks:
    """The hooks of a run of this kind."""
    if kind is Kind.FAILOVER:
        return Hooks(config.pre_failover, config.post_failover, config.timeout_seconds, environment)
    return Hooks(config.pre_failback, config.post_failback, config.timeout_seconds, environment)


def with_hooks(stages: tuple[StagePlan, ...], hooks: Hooks) -> tuple[StagePlan, ...]:
    """The plan's stages with the hooks inserted."""
    planned: list[StagePlan] = []
    if hooks.pre:
        planned.append(StagePlan(When.PRE, f"call {_named(hooks.pre)}; one that fails stops the run"))
    for stage in stages:
        if stage.name == "close" and hooks.post:
            planned.append(StagePlan(When.POST, f"call {_named(hooks.post)}; one that fails is reported"))
        planned.append(stage)
    return tuple(planned)


def _named(commands: tuple[Command, ...]) -> str:
    return ", then ".join(command[0] for command in commands)
