"""`[[foreign_keys]]`: topics whose records refer to another topic's, for the audit of foreign keys."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from drkit.config.schema.base import CallableName, Strict

RECORD_KEY = "key"
"""Means the record's own key instead of a path in its value."""


def _place(text: str) -> str:
    if text != RECORD_KEY and not re.fullmatch(r"\$((\.[A-Za-z_][\w-]*)|(\['[^']+'\])|(\[\d+\]))+", text):
        raise ValueError(
            f'{text!r} is neither "key" (the record\'s key) nor a JSON path such as $.order_id or $.a.b[0]'
        )
    return text


Place = Annotated[str, AfterValidator(_place)]


class ForeignKeyConfig(Strict):
    """Each record of `child` refers to one of `parent`: its `key` equals the other's `parent_key`.

    `decoder`, `parent_decoder`: callables that convert the bytes of a value that isn't JSON to what JSON can hold.
    """

    child: str = Field(min_length=1)
    parent: str = Field(min_length=1)
    key: Place
    parent_key: Place = RECORD_KEY
    decoder: CallableName | None = None
    parent_decoder: CallableName | None = None

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        if self.child == self.parent:
            raise ValueError(f"child and parent are both {self.child!r}; a foreign key is between two topics")
        return self
