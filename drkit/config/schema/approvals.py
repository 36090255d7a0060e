"""The schema of `[approvals]`: the two-person rule."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from drkit.config.schema.base import Strict

_TWO = 2


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
