"""The records written to the source, and their fate: the oracle's memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.soak.reader import Record

PURGED, DEAD = "purged", "dead"
"""Why the source no longer holds a record: removed on purpose, or lost."""


@dataclass(slots=True)
class Written:
    """A sent record. `due`: its digest on the target, None if the link filters it out."""

    partition: int
    due: bytes | None
    aborted: bool = False
    gone: str | None = None


@dataclass(slots=True)
class Journal:
    """Records by their digests on the source; `of_due` finds them by their digests on the target."""

    records: dict[bytes, Written] = field(default_factory=dict)
    of_due: dict[bytes, Written] = field(default_factory=dict)

    def write(self, digest: bytes, written: Written) -> None:
        """Note a record before it is sent. Contents are unique, and so are digests."""
        self.records[digest] = written
        if written.due is not None:
            self.of_due[written.due] = written

    def look(self, partition: int, source: Iterable[Record], cause: str) -> None:
        """Set the records that the source holds now; earlier ones that are missing are gone for this cause."""
        there = {record.digest for record in source}
        for digest, written in self.records.items():
            if written.partition != partition:
                continue
            if digest in there:
                written.gone = None
            elif written.gone is None and not written.aborted:
                written.gone = cause
