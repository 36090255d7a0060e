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
    """`[clusters.X.fence]`: without `command`, the fence consists of ACLs, if the cluster has an authorizer.

    `command`, `unfence`: programs with their arguments that keep clients out, and admit them again. drkit may start
    each again after an interruption, so they must be idempotent.
    `client`, `bootstrap_servers`: the properties of an ordinary writer (librdkafka names, as in a cluster's `client`),
    with which drkit proves that writes are denied. Without them it tries with its own client, which proves nothing if
    drkit is a super user.
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
                f"`{there}` is given without `{missing}`: a cancelled or rolled-back run lifts the fence again"
            )
        return self


class OnFailure(StrEnum):
    """What a failed wave means for those after it."""

    STOP = "stop"
    CONTINUE = "continue"


class WaveConfig(Strict):
    """One `[[waves]]`: the groups that move together.

    `links`, `groups`, `topics`: patterns of whole names; a group belongs to the first wave that matches its link, its
    name and one of the topics that it reads. `after`: commands (no shell), called in order once all groups of the wave
    are on the target; a failed one fails the wave. `pause_seconds`: the pause after that. `max_loss_records`,
    `max_loss_seconds`: the most that may be lost, on each link, of the topics that the wave's groups read.
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
    """`[approvals]`: drkit executes a plan only with the signatures of two of these operators.

    `operators`: the public Ed25519 key (PEM) of each, by name. `emergency`: whether one operator may act alone with
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
