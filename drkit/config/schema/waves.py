"""The schema of `[[waves]]`: in which order the groups of a failover move."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from drkit.config.schema.base import Pattern, Strict


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
