"""A model of a run with an adversary: the data, the writers, and the effect of each stage, fault and command.

Pure; tests/unit/failover/recovery/test_recovery.py explores it exhaustively. Records and positions are named by when
they were created; each stage uses the real state machine (`drkit.failover.context.state_machine`), which checks its
invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from drkit.failover.context.state_machine import (
    BEHIND_THE_FENCE,
    Facts,
    InvariantBroken,
    Kind,
    Mode,
    Run,
    StageOutcome,
    State,
    abandon,
    advance,
    back_before_fence,
    cancel,
    next_step,
)
from drkit.failover.recovery.way_out import (
    ABANDON,
    ANSWERS,
    BY_HAND,
    CANCEL,
    FAIL_OVER,
    OPEN_SOURCE,
    OPEN_TARGET,
    RECOVER,
    RECOVER_WITHOUT_COPY,
    RESUME,
    RESUME_ELSEWHERE,
    STATUS,
    UNPLANNED,
    UNWRITABLE,
    WHOLE,
    Component,
    ComponentCondition,
    Situation,
    faults_of,
    furthest,
)
from drkit.model.link_state import Direction

Names = frozenset[str]
_S, _T = Component.SOURCE, Component.TARGET
_NONE: Names = frozenset()
_GONE_BACK = frozenset({State.SWITCHED, State.VERIFIED})


class CommandRefused(Exception):
    """The command refuses in this state."""


@dataclass(frozen=True, slots=True)
class ModelWorld:
    """The model's state. `begun`: the run's next stage was begun, and the run was killed after its last action.

    `closed`: clusters that deny their clients. `on`, `positions`: by cluster, its content; `kept`: salvaged records
    and positions; `taken`: what the adversary has destroyed.
    """

    run: Run
    direction: Direction
    closed: frozenset[Component] = frozenset()
    on_source: Names = _NONE
    on_target: Names = _NONE
    kept: Names = _NONE
    taken: Names = _NONE
    begun: bool = False
    parts: tuple[tuple[Component, ComponentCondition], ...] = ()

    def condition(self, part: Component) -> ComponentCondition:
        """The condition of a component."""
        return dict(self.parts).get(part, ComponentCondition.UP)

    def answers(self, part: Component) -> bool:
        """Whether a component answers."""
        return self.condition(part) in ANSWERS

    def everything(self) -> Names:
        """All records that exist anywhere, including on a cluster that is down."""
        return self.on_source | self.on_target | self.kept

    @property
    def serves(self) -> Component:
        """The cluster that clients are directed to."""
        return _T if self.direction in {Direction.SEALED, Direction.REVERSED} else _S

    @property
    def writable(self) -> bool:
        """Whether clients can write where they are directed, or, if the store's decision is lost, anywhere."""
        where = (self.serves,) if self.condition(Component.STORE) in WHOLE else (_S, _T)
        return any(self.answers(part) and part not in self.closed for part in where)


def beginnings() -> Iterator[ModelWorld]:
    """A run of each kind before its first stage. `old` is on both, `tail` on the source, `new` on the target."""
    for mode in (Mode.UNPLANNED, Mode.PLANNED):
        run = Run(Kind.FAILOVER, State.PLANNED, Facts(mode=mode))
        yield ModelWorld(
            run, Direction.ACTIVE, on_source=frozenset({"old", "tail", "place"}), on_target=frozenset({"old"})
        )
    for kind in (Kind.FAILBACK, Kind.REPROTECT):
        run = Run(kind, State.PLANNED, Facts(mode=Mode.PLANNED, cluster_confirmed="id"))
        yield ModelWorld(
            run,
            Direction.SEALED,
            closed=frozenset({_S}),
            on_source=frozenset({"old", "tail", "old place"}),
            on_target=frozenset({"old", "new", "place"}),
        )


def situation(world: ModelWorld) -> Situation:
    """The state as input of `way_out`."""
    run = world.run
    kind: Kind | None = run.kind
    state = furthest(run, begun=world.begun)
    if run.finished:
        kind = None if world.serves is _S else Kind.FAILOVER
        state = State.CLOSED
    return Situation(kind, run.facts.mode, state, **{part.value: world.condition(part) for part in Component})


# -- the run ---------------------------------------------------------------------------------------


def carried_out(world: ModelWorld) -> ModelWorld | None:
    """The state after the run's next stage; None: it can't run now, or the run is over."""
    step, _ = next_step(world.run)
    if step is None or world.condition(Component.STORE) not in WHOLE or not world.answers(Component.MACHINE):
        return None
    done = _done(world, step.stage)
    if done is None:
        return None
    after, facts = done
    return replace(after, run=advance(world.run, step.stage, StageOutcome.OK, facts), begun=False)


def killed_after(world: ModelWorld) -> ModelWorld | None:
    """The state in which the next stage did everything but its outcome wasn't journaled."""
    step, _ = next_step(world.run)
    after = carried_out(world)
    return None if after is None or step is None else replace(after, run=world.run, begun=True)


def _done(world: ModelWorld, stage: str) -> tuple[ModelWorld, Facts] | None:  # noqa: C901, PLR0911, PLR0912 - one case a stage
    """A stage's changes, and the facts that it establishes."""
    run, facts = world.run, world.run.facts
    back = run.kind is not Kind.FAILOVER
    source, target = world.condition(_S), world.condition(_T)
    behind = stage in {"fence", "drain", "translate"}
    copying = stage in {"salvage", "scrub", "reverse", "reseed", "audit"}
    both = facts.mode is Mode.PLANNED and (behind or (back and copying))
    onto = source if back else target
    if not back and onto is ComponentCondition.CUT and stage in {"commit", "switch"}:
        onto = ComponentCondition.BACK  # only verify detects groups beyond the log's end
    if onto not in WHOLE or (both and not {source, target} <= WHOLE):
        return None
    mirrored = world.condition(Component.MIRROR) is ComponentCondition.UP
    if stage == "drain" and not back and facts.mode is Mode.PLANNED and not mirrored:
        return None
    live, other = (_T, _S) if back else (_S, _T)
    match stage:
        case "salvage":
            if world.condition(Component.SALVAGE) in UNWRITABLE:
                return None
            return replace(world, kept=world.kept | (world.on_source - world.on_target)), replace(facts, salvaged=1)
        case "scrub":
            if not world.on_source - world.on_target <= world.kept:  # verified first; else salvaged again
                if world.condition(Component.SALVAGE) in UNWRITABLE:
                    return None
                world = replace(world, kept=world.kept | (world.on_source - world.on_target))
            return replace(world, on_source=_NONE), replace(facts, scrubbed={})
        case "reverse":
            return replace(world, direction=Direction.REVERSED), replace(facts, reversed=True)
        case "reseed":
            return replace(world, on_source=world.on_source | world.on_target), facts
        case "audit":
            return (world, replace(facts, audit="clean")) if world.on_target <= world.on_source else None
        case "fence":
            left_out = back and facts.mode is Mode.UNPLANNED  # whatever answers at its address
            fenced = world.answers(live) and not left_out
            shut = world.closed | {live} if fenced else world.closed
            sealed = not back and facts.mode is Mode.UNPLANNED
            way = Direction.SEALED if sealed else world.direction
            return (
                replace(world, closed=shut, direction=way),
                replace(facts, fenced=fenced, unfenced_accepted=not fenced, sealed=facts.sealed or sealed),
            )
        case "drain":
            if back:
                moved = replace(world, on_source=world.on_source | (world.on_target if world.answers(_T) else _NONE))
                return moved, replace(facts, mirror_stopped=True, lag=0)
            if facts.mode is Mode.PLANNED:
                moved = replace(world, on_target=world.on_target | world.on_source, direction=Direction.SEALED)
                return moved, replace(facts, sealed=True, mirror_stopped=True, lag=0)
            return world, replace(facts, mirror_stopped=True)
        case "translate":
            return world, replace(facts, placed=1)
        case "commit":
            return world, replace(facts, committed=1)
        case "switch":
            if back:
                return replace(world, direction=Direction.ACTIVE, closed=(world.closed - {_S}) | {_T}), facts
            return replace(world, closed=world.closed - {other}), facts
        case "verify":
            return world, replace(facts, verified=1)
        case _:
            return world, facts


# -- the adversary ---------------------------------------------------------------------------------


def struck(world: ModelWorld) -> Iterator[ModelWorld]:
    """The states after each possible fault."""
    for part, conditions in faults_of(world.run.kind).items():
        for condition in conditions:
            nothing_there = part is Component.SALVAGE and not world.kept and condition not in UNWRITABLE
            if condition is world.condition(part) or nothing_there:
                continue
            yield _with(world, part, condition)


def _with(world: ModelWorld, part: Component, condition: ComponentCondition) -> ModelWorld:
    parts = {**dict(world.parts), part: condition}
    world = replace(world, parts=tuple(sorted((p, c) for p, c in parts.items() if c is not ComponentCondition.UP)))
    keeps = {_S: world.on_source, _T: world.on_target, Component.SALVAGE: world.kept, Component.MACHINE: world.kept}
    held = keeps.get(part, _NONE)
    left = held
    if condition in {ComponentCondition.EMPTY, ComponentCondition.REPLACED} or (
        part is Component.SALVAGE and condition is ComponentCondition.DOWN
    ):
        left = _NONE
    elif condition is ComponentCondition.CUT:
        left = held - {"tail", "new"}
    world = replace(world, taken=world.taken | (held - left))
    if condition is ComponentCondition.REPLACED and part in {_S, _T}:
        world = replace(world, closed=world.closed - {part})  # its ACLs are gone, too
    if part is _S:
        return replace(world, on_source=left)
    if part is _T:
        return replace(world, on_target=left)
    return replace(world, kept=left) if part in {Component.SALVAGE, Component.MACHINE} else world


# -- the commands ----------------------------------------------------------------------------------


def after(world: ModelWorld, command: str) -> ModelWorld:
    """The state after a command of `way_out`.

    Raises:
        CommandRefused: it is refused here.
    """
    world = (
        _with(world, Component.MACHINE, ComponentCondition.UP) if not world.answers(Component.MACHINE) else world
    )  # another one
    if command in {STATUS, BY_HAND}:
        open_ones = frozenset(part for part in (_S, _T) if world.answers(part))
        return world if command == STATUS else replace(world, closed=world.closed - open_ones)
    if world.condition(Component.STORE) not in ANSWERS:
        raise CommandRefused("the store does not answer")
    if command == RECOVER or command in RECOVER_WITHOUT_COPY.values():
        return _recovered(world, command)
    if world.condition(Component.STORE) not in WHOLE:
        raise CommandRefused("there is no store, or it doesn't know the run")
    acts: dict[str, Callable[[ModelWorld], ModelWorld]] = {
        RESUME: _resumed,
        RESUME_ELSEWHERE: lambda w: _resumed(_with(w, Component.SALVAGE, ComponentCondition.UP)),
        CANCEL: _cancelled,
        ABANDON: _abandoned,
        UNPLANNED: _unplanned,
        FAIL_OVER: _failed_over,
        OPEN_SOURCE: lambda w: _opened(w, _S),
        OPEN_TARGET: lambda w: _opened(w, _T),
    }
    return acts[command](world)


def _recovered(world: ModelWorld, command: str) -> ModelWorld:
    """A new store, which doesn't know the run. Without the copy nothing is decided."""
    if command == RECOVER and world.condition(_T) not in WHOLE:
        raise CommandRefused("the target has no copy")
    if command != RECOVER:
        world = replace(world, direction=Direction.ACTIVE)
        if not world.answers(_S if command == RECOVER_WITHOUT_COPY[_S] else _T):
            raise CommandRefused("the cluster does not answer")
    run = world.run if world.run.finished else abandon(world.run)
    return replace(_with(world, Component.STORE, ComponentCondition.UP), run=run, begun=False)


def _resumed(world: ModelWorld) -> ModelWorld:
    """Run to the end, or to a failing stage; then do what the runner does about it."""
    if world.run.finished:
        return world
    live = _T if world.run.kind is Kind.FAILBACK else _S
    there = world.answers(live) and world.condition(live) is not ComponentCondition.REPLACED
    fence_gone = world.run.facts.fenced is True and there and live not in world.closed
    switch_begun = world.run.state is State.COMMITTED and world.begun
    if world.run.state in BEHIND_THE_FENCE and fence_gone and not switch_begun:
        world = replace(world, run=back_before_fence(world.run, "its fence is gone"), begun=False)
    while (done := carried_out(world)) is not None:
        world = done
    if world.run.finished:
        return world
    return _stopped(world)


def _stopped(world: ModelWorld) -> ModelWorld:
    """A stage failed: a failback opens the live cluster again, a planned move rolls itself back."""
    run = world.run
    if run.kind is Kind.FAILBACK and run.state in BEHIND_THE_FENCE | {State.AUDITED} and not world.begun:
        opened = world.closed - {_T} if world.answers(_T) else world.closed
        return replace(world, run=back_before_fence(run, "a stage failed"), closed=opened)
    if run.kind is Kind.FAILOVER and run.facts.mode is Mode.PLANNED:
        try:
            return _cancelled(world)
        except (CommandRefused, InvariantBroken):
            return world
    return world


def _cancelled(world: ModelWorld) -> ModelWorld:
    run = world.run
    point = {Kind.FAILOVER: State.COMMITTED}.get(run.kind, State.SCRUBBED)
    if furthest(run, begun=world.begun) is point:
        raise CommandRefused("its point of no return was begun")
    if run.kind is Kind.FAILOVER and _S in world.closed and not world.answers(_S):
        raise CommandRefused("its fence can't be lifted now")
    undone = replace(run, facts=replace(run.facts, sealed=False, mirror_stopped=False, fenced=None))
    given_up = cancel(undone)
    if run.kind is not Kind.FAILOVER:
        return replace(world, run=given_up, begun=False)
    return replace(world, run=given_up, begun=False, direction=Direction.ACTIVE, closed=world.closed - {_S})


def _abandoned(world: ModelWorld) -> ModelWorld:
    run = world.run
    if run.finished:
        raise CommandRefused("it is over")
    reached = furthest(run, begun=world.begun)
    committed = reached is State.COMMITTED or reached in _GONE_BACK
    switched = reached in _GONE_BACK
    known = world.condition(_T) in {*WHOLE, ComponentCondition.CUT}
    if run.kind is Kind.FAILOVER and committed and not switched and known:
        raise CommandRefused("its commit has begun, and the target answers")
    direction = world.direction
    if (
        run.kind is Kind.FAILOVER
        and direction is Direction.SEALED
        and (not committed or (not switched and not world.answers(_T)))
    ):
        direction = Direction.ACTIVE
    world = replace(world, run=abandon(run), begun=False, direction=direction)
    opened = {world.serves} if world.answers(world.serves) else set()
    return replace(world, closed=world.closed - opened)


def _unplanned(world: ModelWorld) -> ModelWorld:
    run = world.run
    lost = world.condition(_T) in {ComponentCondition.EMPTY, ComponentCondition.REPLACED}
    if run.kind is not Kind.FAILBACK or (world.answers(_T) and not lost):
        raise CommandRefused("only a failback whose live cluster is gone")
    if run.state is not State.AUDITED and run.state not in BEHIND_THE_FENCE:
        raise CommandRefused("nothing is audited yet")
    before = back_before_fence(run, "the live cluster is gone")
    facts = replace(before.facts, mode=Mode.UNPLANNED, unfenced_accepted=True)
    return _resumed(replace(world, run=replace(before, facts=facts), begun=False))


def _failed_over(world: ModelWorld) -> ModelWorld:
    if not world.run.finished or world.direction is not Direction.ACTIVE or not world.answers(_T):
        raise CommandRefused("the link is not active, or the target does not answer")
    shut = world.closed | {_S} if world.answers(_S) else world.closed
    return replace(world, direction=Direction.SEALED, closed=shut - {_T})


def _opened(world: ModelWorld, part: Component) -> ModelWorld:
    if not world.answers(part):
        raise CommandRefused(f"{part} does not answer")
    direction = world.direction
    if part is not world.serves:
        direction = Direction.ACTIVE if part is _S else Direction.SEALED
    return replace(world, direction=direction, closed=world.closed - {part})
