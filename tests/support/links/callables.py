"""The tests' own callables for `filter` and `transform`."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from drkit.model.record import Record


def keeps_two_of_three(record: Record) -> bool:
    return record.offset % 3 != 1


def keeps_most(record: Record) -> bool:
    return record.offset % 1_000 != 7


def keeps_none(record: Record) -> bool:
    return record.topic == ""


def redacts(record: Record) -> Record | None:
    """Filters out marked records; gives the others another key, an upper-case value and one more header."""
    if (record.value or b"").startswith(b"secret"):
        return None
    return record.replace(
        key=b"k-" + (record.key or b""), value=(record.value or b"").upper(), headers=(*record.headers, ("by", b"test"))
    )


def swells(record: Record) -> Record:
    return record.replace(value=(record.value or b"") * 2)


def strips_headers(record: Record) -> Record:
    return record.replace(headers=())


def fails_on_poison(record: Record) -> bool:
    """Raises on the record `poison` unless the file named by the environment exists."""
    if record.value == b"poison" and not Path(os.environ["TEST_MENDED"]).exists():
        raise ValueError("can't read this")
    return True


_TURNS = itertools.count()


def answers_by_chance(record: Record) -> Record:
    """Returns another result at each call for the record `odd`."""
    return record if record.key != b"odd" else record.replace(value=b"%d" % next(_TURNS))


def raises_on_some(record: Record) -> Record:
    if record.key == b"odd":
        raise ValueError("no way")
    return record


def answers_none(record: Record) -> None:
    """Never returns a valid result."""


def moves(record: Record) -> Record:
    return record._replace(topic="elsewhere")


def answers_text(record: Record) -> Record:
    return record._replace(value="text")  # type: ignore[arg-type]


def takes_two(record: Record, other: Record) -> bool:
    return record == other


async def waits(record: Record) -> bool:
    return bool(record)


NO_FUNCTION = 7
