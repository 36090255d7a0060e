"""The journal of runs: hash-chained entries, one per intent and outcome; and anchors of chain heads kept elsewhere.

docs/journal.md states the canonical form, so that anybody can recompute every hash from `drkit runs RUN`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from drkit.model.clock import iso
from drkit.model.wording import and_more

GENESIS = "0" * 64
JOURNAL_TOPIC = "__drkit_journal"
"""The topic with anchors, on the cluster that a run leads to; internal by its name, so it is never mirrored."""
_MICROS_A_MILLI = 1000


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line of a run's journal. `payload` is JSON text, kept verbatim, because the hash covers it.

    `seq` starts at 0 and has no gaps; `previous` is the hash of the entry before (GENESIS first). `at` is a whole
    millisecond, as written.
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
        at = at.replace(microsecond=at.microsecond // _MICROS_A_MILLI * _MICROS_A_MILLI)
        return cls(run, seq, at, stage, event, payload, before, _digest(run, seq, at, stage, event, before, payload))

    def intact(self) -> bool:
        """Whether the entry's hash still covers its content."""
        digest = _digest(self.run, self.seq, self.at, self.stage, self.event, self.previous, self.payload)
        return self.hash == digest and self.at.microsecond % _MICROS_A_MILLI == 0


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """The first entry at which a chain breaks, and why."""

    entry: int
    why: str

    def __str__(self) -> str:
        return f"broken at entry {self.entry}: {self.why}"


def verify_chain(entries: Sequence[JournalEntry]) -> ChainBreak | None:
    """The first break in one run's chain, or None.

    A writer who recomputed every hash or cut off the end leaves a chain without a break: `judge_chain` compares it
    with anchors kept elsewhere.
    """
    before = GENESIS
    for position, entry in enumerate(entries):
        if entry.seq != position:
            return ChainBreak(position, f"it is missing (the next one is {entry.seq})")
        if entry.previous != before:
            return ChainBreak(position, "it doesn't follow the entry before it")
        if not entry.intact():
            return ChainBreak(position, "it was changed after it was written")
        before = entry.hash
    return None


@dataclass(frozen=True, slots=True)
class Anchor:
    """The head of a run's chain at some time, kept where a writer of the store can't change it.

    `store` is the store's id (`store_identity` of `store/identity.py`); `cluster` is the alias of the cluster that the
    run leads to.
    """

    run: str
    seq: int
    hash: str
    at: datetime
    store: str
    cluster: str


@dataclass(frozen=True, slots=True)
class AnchorPlace:
    """The anchors in one place; `anchors` is None where they couldn't be read (`reason`).

    `name` is for people; `cluster` is the alias of the cluster, None for the file.
    """

    name: str
    anchors: tuple[Anchor, ...] | None
    cluster: str | None = None
    reason: str = ""


class ChainState(StrEnum):
    """The verdicts on a chain."""

    HOLDS = "holds"
    BROKEN = "broken"
    CUT = "cut"
    NOT_ANCHORED = "not anchored"


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """The verdict on a run's chain, in words, and the last entry that an anchor confirms."""

    state: ChainState
    words: str
    anchored_through: int | None = None

    @property
    def contradicted(self) -> bool:
        """Whether the journal differs from what was written."""
        return self.state in {ChainState.BROKEN, ChainState.CUT}


def judge_chain(
    run: str, entries: Sequence[JournalEntry], places: Sequence[AnchorPlace], cluster: str | None = None
) -> ChainVerdict:
    """Compare a run's journal with its anchors.

    Args:
        run: the run's id.
        entries: its entries in the store, in order.
        places: the anchors that were read, of this run and of others.
        cluster: the alias of the cluster that the run's own plan leads to, or None.
    """
    broken = verify_chain(entries)
    if broken is not None:
        return ChainVerdict(ChainState.BROKEN, str(broken))
    kept = sorted(
        ((anchor, place) for place in places for anchor in place.anchors or () if anchor.run == run),
        key=lambda pair: pair[0].seq,
    )
    confirmed: int | None = None
    for anchor, place in kept:
        if anchor.seq >= len(entries):
            ends = f"the chain ends at entry {len(entries) - 1}" if entries else "the store has no entry of the run"
            words = f"cut: anchored head not in the chain ({place.name} has entry {anchor.seq}; {ends})"
            return ChainVerdict(ChainState.CUT, words, confirmed)
        if entries[anchor.seq].hash != anchor.hash:
            first = 0 if confirmed is None else confirmed + 1
            stretch = f"entry {first}" if first == anchor.seq else f"an entry from {first} to {anchor.seq}"
            words = f"broken at entry {anchor.seq}: {place.name} has another hash; {stretch} was written again"
            return ChainVerdict(ChainState.BROKEN, words, confirmed)
        confirmed = anchor.seq
    leads_to = {cluster, *(anchor.cluster for anchor, _ in kept)} - {None}
    silent = [place for place in places if place.anchors is None and (place.cluster in leads_to or not leads_to)]
    if silent:
        agrees = "" if confirmed is None else f"; {_names(kept)} agrees through entry {confirmed}"
        words = "; ".join(f"{place.name} can't be read: {place.reason}" for place in silent)
        return ChainVerdict(ChainState.NOT_ANCHORED, f"not anchored: {words}{agrees}", confirmed)
    if confirmed is None:
        return ChainVerdict(ChainState.NOT_ANCHORED, "not anchored: no head of this run was anchored anywhere")
    more = f", of {len(entries)} in all" if confirmed < len(entries) - 1 else ""
    return ChainVerdict(
        ChainState.HOLDS, f"holds (anchored through entry {confirmed}{more}: {_names(kept)})", confirmed
    )


def missing_runs(listed: Sequence[str], places: Sequence[AnchorPlace], store: str) -> list[str]:
    """Anchored runs of a store that the store doesn't list, oldest first."""
    anchored = {anchor.run for place in places for anchor in place.anchors or () if anchor.store == store}
    return sorted(anchored - set(listed))


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as `drkit runs` lists it. `kind`: failover, failback, audit, drill …"""

    run: str
    kind: str
    state: str
    started_at: datetime
    updated_at: datetime
    detail: str = ""


def _names(kept: Sequence[tuple[Anchor, AnchorPlace]]) -> str:
    return and_more(list(dict.fromkeys(place.name for _, place in kept)))


def _digest(run: str, seq: int, at: datetime, stage: str, event: str, previous: str, payload: str) -> str:
    fields = (run, str(seq), iso(at) or "", stage, event, previous, payload)
    return hashlib.sha256("\n".join(fields).encode()).hexdigest()
