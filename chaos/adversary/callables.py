"""What the adversary's links do to records (`transform`, `filter`), and the same again for the oracle."""

from __future__ import annotations

from drkit.model.record import Record

DROPPED = b"drop-"
ALTERED = b"altered-"


def alters(record: Record) -> Record:
    """Another value; a tombstone stays one."""
    return record if record.value is None else record.replace(value=ALTERED + record.value)


def keeps(record: Record) -> bool:
    """All but those whose key says so."""
    return not (record.key or b"").startswith(DROPPED)
