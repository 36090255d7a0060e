"""The base of an experiment file's types: unknown keys are errors; clusters and durations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SOURCE = "primary"
TARGET = "dr"
Cluster = Literal["primary", "dr"]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class DrillModel(BaseModel):
    """A typed, frozen part of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
