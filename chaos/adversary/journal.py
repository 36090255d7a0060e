"""What was written to the source, and what has become of it: the oracle's memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.soak.reader import Record

PURGED, DEAD = "purged", "dead"
"""Why the source no longer holds a record: removed on purpose, or lost."""


@dataclass(slots=True)
class Written:
    """A record that was sent: `due` is the digest that it has on the target, None where the link leaves it out."""

    partition: int
    due: bytes | None
    aborted: bool = False
    gone: str | None = None


@dataclass(slots=True)
class Journal:
    """Records by their digests on the source; `of_due` finds them by those on the target."""

    records: dict[bytes, Written] = field(default_factory=dict)
    of_due: dict[bytes, Written] = field(default_factory=dict)

    def write(self, digest: bytes, written: Written) -> None:
        """Note a record before it is sent. Contents are unique, so digests are."""
        self.records[digest] = written
        if written.due is not None:
            self.of_due[written.due] = written

    def look(self, partition: int, source: Iterable[Record], cause: str) -> None:
        """The source holds these now; what it held and doesn't any more is gone for this cause."""
        there = {record.digest for record in source}
        for digest, written in self.records.items():
            if written.partition != partition:
                continue
            if digest in there:
                written.gone = None
            elif written.gone is None and not written.aborted:
                written.gone = cause
