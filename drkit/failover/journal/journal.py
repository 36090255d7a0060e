"""A run's journal: intent before acting, outcome after, in the store, hash-chained.

    seq  stage      event      payload
    0    plan       plan       the complete decision
    1    fence      intent     {}
    2    fence      outcome    {"outcome", "reason", "seconds", "facts"}
    …    translate  places     the records at the groups' new positions
    …    translate  positions  the final positions
    …    salvage    carried    committed offsets of the old primary, with their offsets on the live cluster
    …    commit     committed  the groups of one lot that the coordinators took: {"groups"}
    …    scrub      facts      facts established before the stage's end: written before anything is deleted
    …    resume     taken      who took the run over
    …    fence      rewound    the fence is no longer in place: {"reason", "facts"}
    …    cancel     cancelled  why
    …    abandon    abandoned  why, and what stays unchanged
    …    audited    audited    the loss, counted once the old primary was back

A long payload is split into several entries (`part`), so that no single write is too large for a store.
A retried append recognises its earlier entry by the hash.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from drkit.failover.context.state_machine import Facts, Loss, StageOutcome
from drkit.failover.plan.codec import Packed
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.positions.positions import PlannedPosition
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.runs import JournalEntry, verify_chain
from drkit.model.topology import TopicPartition
from drkit.store.api import Store

PLAN = "plan"
INTENT = "intent"
OUTCOME = "outcome"
PLACES = "places"
POSITIONS = "positions"
CARRIED = "carried"
COMMITTED = "committed"
ESTABLISHED = "facts"
TAKEN = "taken"
CANCELLED = "cancelled"
REWOUND = "rewound"
ABANDONED = "abandoned"
AUDITED = "audited"

_WITHIN_A_STAGE = frozenset({INTENT, PLACES, POSITIONS, CARRIED, COMMITTED})
"""Events that the outcome of their stage follows, which is anchored."""
_PART_CHARACTERS = 1_000_000
_ULID_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

FACTS = TypeAdapter(Facts)
LOSS = TypeAdapter(Loss)
POSITION_LIST: TypeAdapter[tuple[PlannedPosition, ...]] = TypeAdapter(Packed)
PLACE_LIST = TypeAdapter(tuple[PositionCheck, ...])


def new_run_id() -> str:
    """A ULID: 26 characters that sort by time (milliseconds), 80 bits of them random."""
    number = (int(now().timestamp() * 1000) << 80) | secrets.randbits(80)
    return "".join(_ULID_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


@dataclass(frozen=True, slots=True)
class StageRecord:
    """A stage's last outcome. `seconds`: the duration of the last attempt."""

    name: str
    outcome: StageOutcome
    reason: str
    seconds: float


class Event(NamedTuple):
    """One event: `payload` is complete JSON text."""

    stage: str
    event: str
    payload: str


class Journal:
    """The journal of one run; the holder of the run's lease appends to it.

    `anchor` gets the chain's head after each completed step (`failover/context/anchors.py`); the writer sets it.

    Args:
        store: where it is kept.
        run: the run's id.
        entries: the stored entries, in order.
        anchor: see above.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        entries: Iterable[JournalEntry] = (),
        *,
        anchor: Callable[[JournalEntry], None] | None = None,
    ) -> None:
        self._store = store
        self.run = run
        self.entries: list[JournalEntry] = list(entries)
        self.anchor = anchor

    @classmethod
    def open(cls, store: Store, run: str) -> Journal:
        """The journal of an existing run.

        Raises:
            DrkitError: there is no such run, or its hash chain is broken.
        """
        entries = store.entries(run)
        if not entries:
            raise Refused(f"there is no run {run}", remedy="`drkit runs` lists them")
        broken = verify_chain(entries)
        if broken is not None:
            raise DrkitError(
                f"the journal of run {run} is {broken}",
                meaning="Its content can't be trusted, so drkit does not act on it",
                remedy=f"drkit abandon {run} ends it by what the store, the fence and both clusters say",
            )
        return cls(store, run, entries)

    def write(self, stage: str, event: str, payload: object) -> None:
        """Append; returns only when the entry is durable.

        Raises:
            Refused: another process has written to this run meanwhile.
            Unreachable: the store doesn't answer.
        """
        text = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
        if len(text) <= _PART_CHARACTERS:
            self._append(stage, event, text)
        else:
            parts = [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]
            for number, part in enumerate(parts, 1):
                self._append(stage, event, json.dumps({"part": number, "of": len(parts), "text": part}))
        if self.anchor is not None and event not in _WITHIN_A_STAGE:
            self.anchor(self.entries[-1])

    def intent(self, stage: str) -> None:
        """Record that a stage is about to act."""
        self.write(stage, INTENT, {})

    def outcome(self, record: StageRecord, facts: Facts) -> None:
        """Record how a stage ended and its facts."""
        body = {
            "outcome": record.outcome,
            "reason": record.reason,
            "seconds": round(record.seconds, 3),
            "facts": FACTS.dump_python(facts, mode="json"),
        }
        self.write(record.name, OUTCOME, body)

    def rewound(self, facts: Facts, why: str) -> None:
        """Record that the run went back to before its fence."""
        self.write("fence", REWOUND, {"reason": why, "facts": FACTS.dump_python(facts, mode="json")})

    def positions(self, stage: str, positions: tuple[PlannedPosition, ...]) -> None:
        """Record the final positions."""
        self.write(stage, POSITIONS, POSITION_LIST.dump_json(positions).decode())

    def carried(self, stage: str, positions: tuple[PlannedPosition, ...]) -> None:
        """Record the offsets carried over from the old primary."""
        self.write(stage, CARRIED, POSITION_LIST.dump_json(positions).decode())

    def committed(self, stage: str, groups: Sequence[str]) -> None:
        """Record groups whose final positions were committed."""
        self.write(stage, COMMITTED, {"groups": groups})

    def offsets_committed(self) -> dict[tuple[str, TopicPartition], int]:
        """The offsets that groups recorded as committed were last put at, by group and partition of the target,
        whatever positions were chosen for them since."""
        chosen: tuple[PlannedPosition, ...] = ()
        found = {}
        text = ""
        for each in self.events():
            if each.event == POSITIONS:
                text = each.payload
            elif each.event == COMMITTED:
                if text:
                    chosen, text = POSITION_LIST.validate_json(text), ""
                groups = set(json.loads(each.payload)["groups"])
                mine = (position for position in chosen if position.group in groups)
                found.update({(p.group, p.target_tp): p.target_offset for p in mine if p.target_offset is not None})
        return found

    def established(self, stage: str, facts: Facts) -> None:
        """Record a stage's facts so far."""
        self.write(stage, ESTABLISHED, {"facts": FACTS.dump_python(facts, mode="json")})

    def places(self, stage: str, places: tuple[PositionCheck, ...]) -> None:
        """Record the records at the groups' new positions."""
        self.write(stage, PLACES, PLACE_LIST.dump_json(places).decode())

    def events(self) -> Iterator[Event]:
        """All events in order, with parts joined; an incomplete series of parts is left out."""
        parts: list[str] = []
        for entry in self.entries:
            body = json.loads(entry.payload)
            if not _is_part(body):
                yield Event(entry.stage, entry.event, entry.payload)
                continue
            parts = [*(parts if body["part"] > 1 else []), body["text"]]
            if body["part"] == body["of"] == len(parts):
                yield Event(entry.stage, entry.event, "".join(parts))

    def read(self, event: str) -> str | None:
        """The newest complete payload of an event, or None."""
        found = [happened.payload for happened in self.events() if happened.event == event]
        return found[-1] if found else None

    def stages(self) -> list[StageRecord]:
        """The last outcome of each stage, in the order of their first execution."""
        records: dict[str, StageRecord] = {}
        for happened in self.events():
            if happened.event == OUTCOME:
                body = json.loads(happened.payload)
                records[happened.stage] = StageRecord(
                    happened.stage, StageOutcome(body["outcome"]), body["reason"], float(body["seconds"])
                )
        return list(records.values())

    def attempted(self, stage: str) -> bool:
        """Whether the stage was begun before."""
        return any(entry.stage == stage and entry.event == INTENT for entry in self.entries)

    def _append(self, stage: str, event: str, payload: str) -> None:
        last = self.entries[-1] if self.entries else None
        entry = JournalEntry.chained(last, run=self.run, at=now(), stage=stage, event=event, payload=payload)
        try:
            kept = self._store.append_entry(entry)
        except Unreachable:
            kept = self._store.append_entry(entry)  # an append is idempotent: the same entry once more
        if not kept and not self._mine(entry):
            raise Refused(
                f"another process has written to run {self.run} meanwhile",
                meaning="Two operators act on the same run; this one stops",
                remedy=f"See `drkit runs {self.run}`",
            )
        self.entries.append(entry)

    def _mine(self, entry: JournalEntry) -> bool:
        found = self._store.entries(self.run)
        return len(found) > entry.seq and found[entry.seq].hash == entry.hash


def _is_part(body: Any) -> bool:
    return isinstance(body, dict) and body.keys() == {"part", "of", "text"}
