"""Which command recovers when something breaks during a run, and what it costs. One pure function, `way_out`.

`drkit doctor`, `drkit runs`, error messages and docs/recovery.md all say what it says. The model in
`tests/support/recovery/recovery_model.py` shows that from every state its answer lets clients write somewhere, and
destroys nothing that isn't kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from drkit.failover.context.state_machine import Kind, Mode, Run, State, next_step


class Component(StrEnum):
    """The components that can break. `source`, `target`: of the configured link (old primary, cluster failed over
    to)."""

    SOURCE = "source"
    TARGET = "target"
    STORE = "store"
    MIRROR = "mirror"
    MACHINE = "machine"  # the operator's, which executes the run and has the salvage folder
    SALVAGE = "salvage"  # the folder with what only the source held


class ComponentCondition(StrEnum):
    """The state of a component."""

    UP = "up"
    DOWN = "down"
    FROZEN = "frozen"
    BACK = "back"  # with its data
    EMPTY = "back empty"
    CUT = "back cut"  # without the end of its data
    REPLACED = "replaced"  # by another one, which is empty
    FULL = "full"
    READ_ONLY = "read-only"


ANSWERS = frozenset(
    {
        ComponentCondition.UP,
        ComponentCondition.BACK,
        ComponentCondition.EMPTY,
        ComponentCondition.CUT,
        ComponentCondition.REPLACED,
    }
)
WHOLE = frozenset({ComponentCondition.UP, ComponentCondition.BACK})
_DATA = (
    ComponentCondition.DOWN,
    ComponentCondition.FROZEN,
    ComponentCondition.BACK,
    ComponentCondition.EMPTY,
    ComponentCondition.CUT,
    ComponentCondition.REPLACED,
)
FAULTS: dict[Component, tuple[ComponentCondition, ...]] = {
    Component.SOURCE: _DATA,
    Component.TARGET: _DATA,
    Component.STORE: _DATA,
    Component.MIRROR: (ComponentCondition.DOWN, ComponentCondition.FROZEN),
    Component.MACHINE: (
        ComponentCondition.DOWN,
        ComponentCondition.FROZEN,
        ComponentCondition.BACK,
        ComponentCondition.REPLACED,
    ),
    Component.SALVAGE: (
        ComponentCondition.DOWN,
        ComponentCondition.EMPTY,
        ComponentCondition.CUT,
        ComponentCondition.FULL,
        ComponentCondition.READ_ONLY,
    ),
}
"""The ways in which each component breaks."""


def faults_of(kind: Kind | None) -> dict[Component, tuple[ComponentCondition, ...]]:
    """The ways in which each component of a run breaks: a failover has no salvage."""
    salvages = kind in {Kind.FAILBACK, Kind.REPROTECT}
    return {part: conditions for part, conditions in FAULTS.items() if salvages or part is not Component.SALVAGE}


UNWRITABLE = frozenset({ComponentCondition.FULL, ComponentCondition.READ_ONLY})
"""A folder that keeps its content but can't be written to."""

NOTHING_LOST = "nothing"


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of a run (`kind` None: no run is unfinished, the link is active) and the condition of each component.

    A closed run is a situation too: the cluster that it directed clients to serves. A begun stage counts as
    reached (`furthest`): it may have done everything.
    """

    kind: Kind | None
    mode: Mode
    state: State
    source: ComponentCondition = ComponentCondition.UP
    target: ComponentCondition = ComponentCondition.UP
    store: ComponentCondition = ComponentCondition.UP
    mirror: ComponentCondition = ComponentCondition.UP
    machine: ComponentCondition = ComponentCondition.UP
    salvage: ComponentCondition = ComponentCondition.UP

    def where(self, part: Component, condition: ComponentCondition) -> Situation:
        """A copy with one component in another condition."""
        changes: dict[str, Any] = {part.value: condition}
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class WayOut:
    """How to recover. `commands`: in order, with the placeholders `RUN`, `LINK`, `SOURCE`, `TARGET`.

    `serves`: the cluster that clients write to then; None: no cluster answers, so one must come back first.
    `costs`: what is lost by it, or `nothing`.
    """

    commands: tuple[str, ...]
    serves: Component | None
    costs: str

    def filled(self, run: str, link: str, source: str, target: str) -> WayOut:
        """With the placeholders filled in."""
        names = {"RUN": run, "LINK": f"'{link}'", "SOURCE": source, "TARGET": target}

        def put(text: str) -> str:
            for word, name in names.items():
                text = text.replace(word, name)
            return text

        return WayOut(tuple(put(command) for command in self.commands), self.serves, put(self.costs))

    def __str__(self) -> str:
        return f"{'; then '.join(self.commands)} (costs: {self.costs})"


RESUME = "drkit resume RUN"
RESUME_ELSEWHERE = "drkit resume RUN --salvage-dir DIR"
ABANDON = "drkit abandon RUN"
CANCEL = "drkit resume RUN --cancel"
UNPLANNED = "drkit resume RUN --unplanned"
OPEN_SOURCE = "drkit fence --lift --cluster SOURCE --yes --link LINK"
OPEN_TARGET = "drkit fence --lift --cluster TARGET --yes --link LINK"
FAIL_OVER = "drkit failover --to TARGET --unplanned --accept-unfenced --link LINK"
STATUS = "drkit status --link LINK"
RECOVER = "drkit store recover --from TARGET --link LINK"
RECOVER_WITHOUT_COPY = {
    Component.SOURCE: "drkit store recover --from SOURCE --from-logs --link LINK",
    Component.TARGET: "drkit store recover --from TARGET --from-logs --link LINK",
}
BY_HAND = "kafka-acls.sh --remove …"

TARGET_ONLY = "records written to TARGET since the failover stay only on TARGET, if it comes back"
AFTER_AUDIT = "records written to TARGET after the last catching up stay only on TARGET, if it comes back"
UNMIRRORED = "records of SOURCE that the mirror had not copied stay only on SOURCE, if it comes back"
_LOST_WITH_STORE = "the run's journal, positions of groups over time, digests; groups may read some records again"
SALVAGE_GONE = "records that only SOURCE held and that were in the lost salvage: copy salvages elsewhere"
GONE_WITH = "records that only the cluster's lost data held"
SOURCE_HAS_OLD = (
    f"SOURCE has its records of before the failover, or what was brought back since: {OPEN_SOURCE} goes there instead"
)
SOURCE_HAS_COPY = f"SOURCE has the records brought back so far: {OPEN_SOURCE} goes there instead"

_CHANGING = frozenset({"fence", "scrub", "reverse", "commit", "switch"})
_CLOSED_SOURCE = frozenset({State.FENCED, State.DRAINED, State.TRANSLATED, State.COMMITTED})
_SWITCHED = frozenset({State.SWITCHED, State.VERIFIED})
_EARLY_BACK = frozenset({State.PLANNED, State.SALVAGED})
_COPYING = frozenset({State.SCRUBBED, State.REVERSED, State.RESEEDED})
_BEHIND = frozenset({State.FENCED, State.DRAINED, State.TRANSLATED})


def furthest(run: Run, *, begun: bool) -> State:
    """The state that a run may have reached: that of its next stage, if that was begun and changes who may write or
    where data is.
    """
    step, _ = next_step(run)
    return step.reaches if begun and step is not None and step.stage in _CHANGING else run.state


def way_out(now: Situation) -> WayOut:  # noqa: PLR0911 - one answer a case
    """The commands that recover from here, and what they cost."""
    if now.source not in ANSWERS and now.target not in ANSWERS:
        return WayOut((STATUS,), None, "no cluster answers: bring one back, then look again")
    if now.store not in ANSWERS:
        return _without_store(now)
    if now.store not in WHOLE:
        return _store_lost(now)
    if now.kind is None or (now.state is State.CLOSED and now.kind is Kind.FAILBACK):
        return _mirroring(now)
    if now.kind is Kind.FAILOVER:
        return _failover(now)
    if now.state is State.CLOSED:  # reprotect: the target is the source from now on
        return _failed_over(now)
    return _failback(now)


def serving(now: Situation) -> Component:
    """The cluster that clients use at this point of the run."""
    if now.kind is None:
        return Component.SOURCE
    if now.kind is Kind.FAILOVER:
        return Component.TARGET if now.state in _SWITCHED | {State.CLOSED} else Component.SOURCE
    if now.kind is Kind.FAILBACK and now.state in _SWITCHED | {State.CLOSED}:
        return Component.SOURCE
    return Component.TARGET


def closed(now: Situation) -> bool:
    """Whether the run keeps clients out of the cluster that they use."""
    if now.kind is Kind.FAILOVER:
        return now.state in _CLOSED_SOURCE
    return now.kind is Kind.FAILBACK and now.state in _BEHIND | {State.COMMITTED}


def _condition(now: Situation, part: Component) -> ComponentCondition:
    return now.source if part is Component.SOURCE else now.target


def _mirroring(now: Situation) -> WayOut:
    """No run is unfinished: the source serves."""
    if now.source not in ANSWERS:
        return WayOut((FAIL_OVER,), Component.TARGET, UNMIRRORED)
    if now.source not in WHOLE:
        lost = f"{GONE_WITH} ({now.source}); TARGET has the mirrored records: {FAIL_OVER} goes there instead"
        return WayOut((STATUS,), Component.SOURCE, lost)
    return WayOut((STATUS,), Component.SOURCE, NOTHING_LOST)


def _failed_over(now: Situation) -> WayOut:
    """A failover is closed: the target serves, the source is closed."""
    if now.target not in ANSWERS:
        return WayOut((OPEN_SOURCE,), Component.SOURCE, TARGET_ONLY)
    if now.target not in WHOLE:
        return WayOut((STATUS,), Component.TARGET, f"{GONE_WITH} ({now.target}); {SOURCE_HAS_OLD}")
    return WayOut((STATUS,), Component.TARGET, NOTHING_LOST)


def _failover(now: Situation) -> WayOut:  # noqa: C901, PLR0911, PLR0912 - one answer a case
    if now.state is State.CLOSED:
        return _failed_over(now)
    if now.target not in WHOLE:
        if now.state in _SWITCHED:
            if now.target not in ANSWERS:
                return WayOut((ABANDON, OPEN_SOURCE), Component.SOURCE, TARGET_ONLY)
            return WayOut((ABANDON,), Component.TARGET, f"{GONE_WITH} ({now.target}); {SOURCE_HAS_OLD}")
        if now.state is State.COMMITTED and now.target is ComponentCondition.CUT:
            beyond = "verify stops where groups are beyond it and names them; the second command is for then"
            return WayOut((RESUME, ABANDON), Component.TARGET, f"{GONE_WITH} ({now.target}); {beyond}")
        if now.source in ANSWERS and now.state is not State.COMMITTED:
            return WayOut((ABANDON,), Component.SOURCE, _of(now.source))
        if now.target not in ANSWERS:
            return WayOut((ABANDON,), Component.SOURCE, _of(now.source))
        if now.state is State.COMMITTED and now.source in ANSWERS:
            return WayOut((ABANDON, OPEN_SOURCE), Component.SOURCE, _of(now.source))
        return WayOut((ABANDON, OPEN_TARGET), Component.TARGET, f"{GONE_WITH} ({now.target}); {UNMIRRORED}")
    if now.state in _SWITCHED | {State.COMMITTED}:
        return WayOut((RESUME,), Component.TARGET, NOTHING_LOST)
    if now.mode is Mode.UNPLANNED:
        return WayOut((RESUME,), Component.TARGET, NOTHING_LOST if now.source in WHOLE else UNMIRRORED)
    if now.source not in ANSWERS:
        costs = UNMIRRORED if now.state in {State.PLANNED, State.FENCED} else NOTHING_LOST
        return WayOut((ABANDON, FAIL_OVER), Component.TARGET, costs)
    if now.source not in WHOLE:
        return WayOut((ABANDON,), Component.SOURCE, f"{_of(now.source)}; TARGET has the mirrored records: {FAIL_OVER}")
    if now.mirror is not ComponentCondition.UP and now.state in {State.PLANNED, State.FENCED}:
        return WayOut((CANCEL,), Component.SOURCE, NOTHING_LOST)
    return WayOut((RESUME,), Component.TARGET, NOTHING_LOST)


def _failback(now: Situation) -> WayOut:  # noqa: PLR0911 - one answer a case
    """A failback, or a reprotect: it moves back to the configured source."""
    if now.state in _SWITCHED:
        if now.source not in ANSWERS:
            return WayOut((ABANDON, FAIL_OVER), Component.TARGET, UNMIRRORED)
        if now.source not in WHOLE:
            return WayOut((ABANDON,), Component.SOURCE, f"{GONE_WITH} ({now.source}); TARGET has the rest: {FAIL_OVER}")
        return WayOut((RESUME,), Component.SOURCE, NOTHING_LOST)
    live_gone = now.target not in ANSWERS or now.target in {ComponentCondition.EMPTY, ComponentCondition.REPLACED}
    planned = now.mode is Mode.PLANNED or not live_gone  # without it the move was, and has to be, unplanned
    if now.state is State.COMMITTED and now.source in WHOLE and planned:
        return WayOut((RESUME,), Component.SOURCE, NOTHING_LOST)  # which has everything of the target, positions too
    if now.target not in ANSWERS:
        return _live_gone(now)
    audited = now.state not in _EARLY_BACK | _COPYING and now.kind is Kind.FAILBACK
    if live_gone and audited and now.source in WHOLE:
        return WayOut((UNPLANNED,), Component.SOURCE, f"{GONE_WITH} ({now.target})")
    if now.target not in WHOLE:
        copied = "" if now.state in _EARLY_BACK or now.source not in WHOLE else f"; {SOURCE_HAS_COPY}"
        return WayOut((ABANDON,), Component.TARGET, f"{GONE_WITH} ({now.target}){copied}")
    if now.source not in WHOLE:
        early = now.state in _EARLY_BACK
        again = "the copying so far; start drkit failback again once SOURCE is up"
        lost = f"{GONE_WITH} ({now.source})" if now.source in ANSWERS else ""
        costs = "; ".join(filter(None, (lost, "" if early else again))) or NOTHING_LOST
        return WayOut((CANCEL,) if early else (ABANDON,), Component.TARGET, costs)
    early = now.state in _EARLY_BACK
    serves = Component.TARGET if now.kind is Kind.REPROTECT else Component.SOURCE
    if early and now.salvage in UNWRITABLE:
        return WayOut((RESUME_ELSEWHERE,), serves, NOTHING_LOST)
    gone = now.salvage not in {ComponentCondition.UP, *UNWRITABLE} or now.machine is ComponentCondition.REPLACED
    costs = SALVAGE_GONE if gone and not early else NOTHING_LOST
    return WayOut((RESUME,), serves, costs)


def _live_gone(now: Situation) -> WayOut:
    """The serving cluster is gone during a failback to the old primary."""
    if now.source not in WHOLE:
        return WayOut((ABANDON, OPEN_SOURCE), Component.SOURCE, f"{TARGET_ONLY}; {GONE_WITH} ({now.source})")
    if now.state in _EARLY_BACK:
        return WayOut((CANCEL, OPEN_SOURCE), Component.SOURCE, TARGET_ONLY)
    if now.state in _COPYING or now.kind is Kind.REPROTECT:
        copied = "all but the records brought back so far stay only on TARGET, if it comes back; groups start again"
        return WayOut((ABANDON, OPEN_SOURCE), Component.SOURCE, copied)
    return WayOut((UNPLANNED,), Component.SOURCE, AFTER_AUDIT)


def _without_store(now: Situation) -> WayOut:
    """The store doesn't answer: nothing can be decided, so the serving cluster keeps serving."""
    part = serving(now)
    waits = "no run, failover or new mapping until the store is back"
    if _condition(now, part) not in ANSWERS or closed(now):
        open_one = part if _condition(now, part) in ANSWERS else _other(part)
        return WayOut((BY_HAND,), open_one, f"{waits}; only you can know which cluster is ahead")
    return WayOut((STATUS,), part, waits)


def _store_lost(now: Situation) -> WayOut:
    """The store is empty, truncated or another one: its runs are unknown. The target has a copy of the rest, and the
    fence's mark is on the cluster.
    """
    part = serving(now)
    part = part if _condition(now, part) in ANSWERS else _other(part)
    command = OPEN_SOURCE if part is Component.SOURCE else OPEN_TARGET
    if now.target not in WHOLE:
        answering = Component.SOURCE if now.source in ANSWERS else Component.TARGET
        lost = "the run, the mapping and captured positions: their copy is gone with TARGET"
        return WayOut((RECOVER_WITHOUT_COPY[answering], command), part, lost)
    if now.kind is None and part is Component.TARGET:
        return WayOut((RECOVER, FAIL_OVER), part, f"{_LOST_WITH_STORE}; {UNMIRRORED}")
    return WayOut((RECOVER, command), part, _LOST_WITH_STORE)


def _other(part: Component) -> Component:
    return Component.TARGET if part is Component.SOURCE else Component.SOURCE


def _of(source: ComponentCondition) -> str:
    return NOTHING_LOST if source in WHOLE else f"{GONE_WITH} ({source})"
