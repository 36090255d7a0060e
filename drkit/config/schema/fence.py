"""`[clusters.X.fence]`: how drkit keeps clients out of a cluster, and as whom it shows that they are out."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from drkit.config.schema.base import Strict
from drkit.config.schema.secrets import Secret

_Command = Annotated[tuple[str, ...], Field(min_length=1)]


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
