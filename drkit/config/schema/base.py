"""The base of all tables of the schema: strict models, and patterns that are checked when read."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Strict(BaseModel):
    """A table of the file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def scalars_as_text(value: object) -> object:
    """A table with its booleans and numbers as text, as Kafka and librdkafka write them; anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {name: str(each).lower() if isinstance(each, bool | int | float) else each for name, each in value.items()}


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        hint = " (all names: '.*')" if pattern.startswith("*") else ""
        raise ValueError(f"{pattern!r} is not a regular expression: {error}{hint}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_regex)]


def _callable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text):
        raise ValueError(f'{text!r} is not of the form "module:function"')
    return text


CallableName = Annotated[str, AfterValidator(_callable)]
"""A Python callable as `module:function`. The caller imports and checks it before anything depends on it."""
