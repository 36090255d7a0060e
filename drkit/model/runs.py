"""What a run leaves: its journal, the approvals it had, and the fence that it made."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from drkit.model.clock import iso
from drkit.model.link_state import Direction
from drkit.model.topics.acls import Acl
from drkit.model.topology import Link
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

    `store` is the store's id (`store_identity` of `store/open.py`); `cluster` is the alias of the cluster that the
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


PART_OF = ", of site run "
"""In the detail of a link's run: what the id of the site run follows that it is a part of."""
OVER = frozenset({"closed", "cancelled", "abandoned"})


def run_to_resume(run: str, listed: Iterable[RunSummary]) -> str:
    """The id by which `drkit resume` continues a run: its site run's, where it is a part of one that isn't over."""
    found = {each.run: each for each in listed}
    site = found[run].detail.partition(PART_OF)[2] if run in found else ""
    return site if site in found and found[site].state not in OVER else run


def _names(kept: Sequence[tuple[Anchor, AnchorPlace]]) -> str:
    return and_more(list(dict.fromkeys(place.name for _, place in kept)))


def _digest(run: str, seq: int, at: datetime, stage: str, event: str, previous: str, payload: str) -> str:
    fields = (run, str(seq), iso(at) or "", stage, event, previous, payload)
    return hashlib.sha256("\n".join(fields).encode()).hexdigest()


ACCEPT_UNFENCED = "--accept-unfenced"
ACCEPT_SALVAGE_ONLY = "--accept-salvage-only"
ACCEPT_LOSS = "--accept-loss"
ALLOW_REWIND = "--allow-rewind"
CLUSTER_ID = "--cluster-id"


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval with verified signatures, or an emergency.

    Args:
        digest: of the plan; empty in an emergency.
        operators: who signed.
        allows: the flags that all of them accept, as typed on the command line.
        emergency: why one operator acts alone; None: two approved.
    """

    digest: str = ""
    operators: tuple[str, ...] = ()
    allows: frozenset[str] = frozenset()
    emergency: str | None = None

    def journaled(self) -> dict[str, Any]:
        """The fields that go into the journal."""
        if self.emergency is not None:
            return {"emergency": self.emergency}
        return {"digest": self.digest, "operators": list(self.operators), "allows": sorted(self.allows)}


FENCES = "fence"
"""Kind of the notes that hold the records: by cluster and epoch."""
_EPOCH_DIGITS = 20


def write_block_kind(cluster: str) -> str:
    """Kind of the notes about topics of a cluster whose writes a scrub blocks: by topic, the settings before, as
    JSON."""
    return f"write_block {cluster}"


_MARK = "drkit-fence"


class FenceMethod(StrEnum):
    """How clients are kept out."""

    ACL = "acl"
    COMMAND = "command"
    NONE = "none"


class FenceState(StrEnum):
    """The intended state of a fence. `pending`: the cluster is to be closed, but did not answer."""

    PENDING = "pending"
    CLOSING = "closing"
    CLOSED = "closed"
    STANDBY = "standby"
    OPENING = "opening"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """The newest decision about a cluster's fence. `proven`: the cluster was shown to be closed; `detail`: how.

    `let_in`: the client that was seen to be let in before a command closed the cluster: once it is turned away, that is
    a proof, whichever attempt sees it.
    """

    cluster: str
    epoch: int
    run: str
    state: FenceState
    method: FenceMethod
    at: datetime
    proven: bool = False
    detail: str = ""
    let_in: str = ""

    @property
    def stands(self) -> bool:
        """Whether rules may be on the cluster, or its fence command may have run, even if it was unreachable since."""
        return self.method is not FenceMethod.NONE and self.state is not FenceState.OPEN

    @property
    def name(self) -> str:
        """The name of its note; it holds the epoch, so a late process can't overwrite a newer note."""
        return f"{self.cluster} {self.epoch:0{_EPOCH_DIGITS}d}"


_RECORD = TypeAdapter(FenceRecord)


def record_text(record: FenceRecord) -> str:
    """The record as the text of its note."""
    return _RECORD.dump_json(record).decode()


def newest(notes: Mapping[str, str], cluster: str) -> FenceRecord | None:
    """The cluster's newest record among the notes of a link, or None."""
    names = [name for name in notes if name.rpartition(" ")[0] == cluster]
    return _RECORD.validate_json(notes[max(names)]) if names else None


def older(notes: Mapping[str, str], record: FenceRecord) -> list[str]:
    """Names of the notes that a record replaces."""
    return [name for name in notes if name.rpartition(" ")[0] == record.cluster and name < record.name]


def serving_cluster(link: Link, direction: Direction | None) -> str:
    """The cluster that clients of a configured link should use, by the link's direction (None: undecided)."""
    away = direction is not None and not direction.serves_source
    return link.id.target if away else link.id.source


def serve_again(link: Link) -> str:
    """How the source of a configured link that was failed over, and that alters records, serves again: no failback goes
    back along it. A remedy, in words and commands."""
    source, target = link.id.source, link.id.target
    if link.shares_target:
        merged = f"Once the links into {source} have brought it what was written to {target}"
    else:
        merged = f"Stop the clients on {target} and write to {source} by hand what they wrote there"
    return (
        f"{merged}; then `drkit fence --lift --cluster {source} --yes --link '{link.id}'` lets {source} serve again, "
        f'and `drkit mirror` run (docs/topologies.md, "Back over a link that alters records")'
    )


def mark_of(link: Link) -> Acl:
    """The ACL that marks a cluster as fenced by drkit for a configured link.

    It concerns a topic and a principal that don't exist, so it has no effect. It identifies drkit's other fence ACLs
    even where the store's notes are lost.
    """
    id_ = min(link.id, link.id.reversed(), key=str)
    name = f"{_MARK}.{id_.source}.{id_.target}.{patterns_checksum(link):08x}"
    return Acl("topic", name, "literal", f"User:{_MARK}", "*", "write", "deny")


def patterns_checksum(link: Link) -> int:
    """Tells links apart that connect the same clusters but carry different topics."""
    return zlib.crc32("\n".join((*link.topics, "", *link.exclude_topics)).encode())


def is_mark(rule: Acl) -> bool:
    """Whether a rule is a fence's mark."""
    return rule.principal == f"User:{_MARK}" and rule.resource == "topic"
