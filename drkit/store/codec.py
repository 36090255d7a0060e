"""How values that both homes keep are written: instants as whole microseconds, topic sets as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(instant: datetime) -> int:
    """An aware instant as whole microseconds since 1970 (exact; neither home has such a type)."""
    return (instant - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The instant, UTC, that `to_micros` wrote."""
    return _EPOCH + timedelta(microseconds=micros)


def optional_micros(instant: datetime | None) -> int | None:
    """As `to_micros`; None stays None."""
    return None if instant is None else to_micros(instant)


def from_optional_micros(micros: int | None) -> datetime | None:
    """As `from_micros`; None stays None."""
    return None if micros is None else from_micros(micros)


def write_topics(topics: Iterable[str]) -> str:
    """A set of topic names as JSON text, sorted so that equal sets are equal text."""
    return json.dumps(sorted(topics), ensure_ascii=False)


def read_topics(text: str) -> frozenset[str]:
    """The set that `write_topics` wrote."""
    return frozenset(json.loads(text))
