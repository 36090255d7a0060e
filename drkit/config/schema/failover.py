"""Tables about failovers: `[clusters.X.fence]`, `[[waves]]` and `[approvals]`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from drkit.config.schema.base import Pattern, Strict
from drkit.config.schema.secrets import Secret

_Command = Annotated[tuple[str, ...], Field(min_length=1)]

_TWO = 2


class FenceConfig(Strict):
    """Without `command` the fence is made of access rules, where the cluster has an authorizer.

    `command`, `unfence`: programs with their arguments that keep clients out and let them in again. Each may be
    started again after it was interrupted, so doing it twice must be as good as once.
    `client`, `bootstrap_servers`: an ordinary writer, as which it is shown that writes are denied (by librdkafka
    names, as a cluster's `client`); without them it is tried as drkit itself, which proves nothing where drkit
    is a super user.
    """

    command: _Command | None = None
    unfence: _Command | None = None
    timeout_seconds: float = Field(default=60.0, gt=0, le=3600)
    bootstrap_servers: str | None = None
    client: dict[str, Secret] | None = None

    @model_validator(mode="after")
    def _both_ways(self) -> Self:
        if (self.command is None) != (self.unfence is None):
            there, missing = ("command", "unfence") if self.unfence is None else ("unfence", "command")
            raise ValueError(
                f"`{there}` is given without `{missing}`: a run that is cancelled or goes back lifts the fence again"
            )
        return self


class OnFailure(StrEnum):
    """What a wave that fails means for those after it."""

    STOP = "stop"
    CONTINUE = "continue"


class WaveConfig(Strict):
    """One `[[waves]]`: the groups that move together.

    `links`, `groups`, `topics`: patterns of whole names; a group is of the first wave that has its link, its name and
    one of the topics that it reads. `after`: commands (no shell) that are called once all of the wave stand on the
    target, in order; one that fails fails the wave. `pause_seconds`: waited for then. `max_loss_records`,
    `max_loss_seconds`: what may be lost of the topics that the wave's groups read, on each link.
    """

    name: str = Field(min_length=1)
    links: tuple[Pattern, ...] = (".*",)
    groups: tuple[Pattern, ...] = (".*",)
    topics: tuple[Pattern, ...] = (".*",)
    after: tuple[tuple[str, ...], ...] = ()
    pause_seconds: float = Field(default=0.0, ge=0, le=86400)
    timeout_seconds: float = Field(default=60.0, gt=0, le=86400)
    on_failure: OnFailure = OnFailure.STOP
    max_loss_records: int | None = Field(default=None, ge=0)
    max_loss_seconds: float | None = Field(default=None, ge=0)


class ApprovalsConfig(Strict):
    """`[approvals]`: a plan is carried out only with the signatures of two of these operators.

    `operators`: the public Ed25519 key (PEM) of each, by name. `emergency`: whether one may act alone with
    `--emergency REASON`, which is journaled.
    """

    operators: dict[str, Path] = Field(min_length=_TWO)
    emergency: bool = True

    @field_validator("operators")
    @classmethod
    def _different(cls, value: dict[str, Path]) -> dict[str, Path]:
        if len(set(value.values())) < len(value):
            raise ValueError("two operators have one key: give each a key of their own")
        return value
