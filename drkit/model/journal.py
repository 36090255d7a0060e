"""The journal of runs: hash-chained entries, one per intent and outcome."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime

GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line of a run's journal. `payload` is JSON text, kept verbatim: the hash covers it.

    `seq` starts at 0 and has no gaps; `previous` is the hash of the entry before (GENESIS first).
    """

    run: str
    seq: int
    at: datetime
    stage: str
    event: str
    payload: str
    previous: str
    hash: str

    @classmethod
    def chained(
        cls, previous: JournalEntry | None, *, run: str, at: datetime, stage: str, event: str, payload: str
    ) -> JournalEntry:
        """The entry that follows `previous` (None for a run's first)."""
        seq = 0 if previous is None else previous.seq + 1
        before = GENESIS if previous is None else previous.hash
        return cls(run, seq, at, stage, event, payload, before, _digest(run, seq, at, stage, event, payload, before))

    def intact(self) -> bool:
        """Whether the entry's hash still covers its content."""
        return self.hash == _digest(self.run, self.seq, self.at, self.stage, self.event, self.payload, self.previous)


def verify_chain(entries: list[JournalEntry]) -> str | None:
    """None where the chain of one run holds, else what is wrong and where."""
    before = GENESIS
    for position, entry in enumerate(entries):
        if entry.seq != position:
            return f"entry {position} is missing (found seq {entry.seq})"
        if entry.previous != before:
            return f"entry {entry.seq} does not follow the entry before it"
        if not entry.intact():
            return f"entry {entry.seq} was changed after it was written"
        before = entry.hash
    return None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as `drkit runs` lists it. `kind`: failover, failback, audit, drill …"""

    run: str
    kind: str
    state: str
    started_at: datetime
    updated_at: datetime
    detail: str = ""


def _digest(run: str, seq: int, at: datetime, stage: str, event: str, payload: str, previous: str) -> str:
    body = json.dumps([run, seq, at.isoformat(), stage, event, payload, previous], separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
