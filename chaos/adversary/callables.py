"""The `transform` and the `filter` of the adversary's links, which the oracle applies, too."""

from __future__ import annotations

from drkit.model.record import Record

DROPPED = b"drop-"
ALTERED = b"altered-"


def alters(record: Record) -> Record:
    """Change the value; a tombstone stays one."""
    return record if record.value is None else record.replace(value=ALTERED + record.value)


def keeps(record: Record) -> bool:
    """Keep all records except for those with a certain key."""
    return not (record.key or b"").startswith(DROPPED)
