"""A record as a link's own callables see it (`filter` and `transform` of `[[links]]`). Public: users import it.

from drkit.model.record import Record

def without_tests(record: Record) -> bool:
    return not (record.key or b"").startswith(b"test-")

def redact(record: Record) -> Record | None:
    return record.replace(value=None) if record.topic == "people" else record
"""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[str, bytes | None]


class _Unchanged:
    """Means "as it is" where None is a value of its own."""


_UNCHANGED = _Unchanged()


class Record(NamedTuple):
    """One record of the source; immutable.

    `topic`, `partition` and `offset` are its source position, `timestamp` is in milliseconds since 1970.
    `key`, `value` and a header's value may be None, as in Kafka. Headers keep their order.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    def replace(
        self,
        *,
        key: bytes | _Unchanged | None = _UNCHANGED,
        value: bytes | _Unchanged | None = _UNCHANGED,
        headers: tuple[Header, ...] | _Unchanged = _UNCHANGED,
    ) -> Record:
        """The record with another key, value or headers: what a transform may change."""
        return Record(
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.key if isinstance(key, _Unchanged) else key,
            self.value if isinstance(value, _Unchanged) else value,
            self.headers if isinstance(headers, _Unchanged) else headers,
        )
