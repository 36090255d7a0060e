"""What all keys of an experiment file share: nothing unknown is taken, and what a cluster and a duration are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SOURCE = "primary"
TARGET = "dr"
Cluster = Literal["primary", "dr"]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class DrillModel(BaseModel):
    """Typed, frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
