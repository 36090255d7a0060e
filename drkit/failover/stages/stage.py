"""The interface of stages and their context. The runner executes stages; the plan shows their `explain`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.interfaces import Ports, default_salvage_root
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Facts, StageOutcome
from drkit.failover.fencing.cluster_fence import FenceContext
from drkit.failover.plan.waves import WantedGroups, at_once
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.positions.positions import PlannedPosition
from drkit.model.clock import POLL_SECONDS, now
from drkit.model.errors import DrkitError, OutcomeUnknown, PartlyDone, Refused, Unreachable
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import Link, LinkId, TopicPartition

_FIRST_POLL_SECONDS = 0.025
_CAS_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StageReport:
    """The result of a successful stage: `ok`, or `skipped` with the reason.

    `positions`: the final ones, if the stage computed them; then `places` has the records there.
    """

    outcome: StageOutcome
    reason: str
    facts: Facts
    positions: tuple[PlannedPosition, ...] | None = None
    places: tuple[PositionCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class StageContext:
    """A stage's context.

    `link` is the direction of the data while groups move: they leave its source. `positions` are the final ones once
    translated, `places` the records there by the plan (once translated: by the journal). `again`: the stage was begun
    before and may be half done.
    `ports`: what a failback needs from other packages. `carried`: committed offsets of the old primary, with their
    offsets on the live cluster. `establish` journals facts and carried offsets before the stage ends.
    `in_order`: the groups to commit, in portions; iterating waits for the next portion's turn. `committed`: the offsets
    that this run is known to have put groups at, by group and partition of the target; `note_committed` journals the
    groups of more of them; `commit_begun`: it has begun with that, and can't be taken back.
    """

    estate: ClusterContext
    link: Link
    run: str
    facts: Facts
    positions: tuple[PlannedPosition, ...]
    places: tuple[PositionCheck, ...]
    again: bool
    lease: RunLease
    ports: Ports | None
    say: Callable[[str], None]
    carried: tuple[PlannedPosition, ...]
    establish: Callable[[Facts, tuple[PlannedPosition, ...]], None]
    in_order: Callable[[WantedGroups], Iterator[WantedGroups]] = at_once
    committed: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    note_committed: Callable[[Sequence[str]], None] = lambda _groups: None
    commit_begun: bool = False

    @property
    def required_ports(self) -> Ports:
        """The ports; a failback always has them.

        Raises:
            DrkitError: the run has none.
        """
        if self.ports is None:
            raise DrkitError("a failback needs a mirror, a salvager and an auditor", remedy="Run `drkit failback`")
        return self.ports

    @property
    def salvage_folder(self) -> Path:
        """Where this run's salvages are kept."""
        root = self.required_ports.salvage_root or self.facts.salvage_root or default_salvage_root()
        return Path(root) / self.run

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Poll until `done`, for at most `seconds`; returns whether it came true. Keeps the lease."""
        return wait_for(self.lease, done, seconds)


def wait_for(lease: RunLease, done: Callable[[], bool], seconds: float) -> bool:
    """Poll until `done`, often at first, for at most `seconds`; returns whether it came true. Keeps the lease."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_POLL_SECONDS
    while not done():
        if time.monotonic() >= deadline:
            return False
        lease.check()
        time.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS)
    return True


class Stage(Protocol):
    """One step of a run: a small dataclass with what it needs from the plan.

    `execute` is idempotent: after a kill it is executed again.
    """

    @property
    def name(self) -> str:
        """Its name in the journal and the contract's `stages`."""

    def explain(self) -> str:
        """What it will do, in one sentence, for the plan."""

    def execute(self, context: StageContext, /) -> StageReport:
        """Execute it.

        Raises:
            Refused: a precondition does not hold.
            OutcomeUnknown: an attempt got no answer.
            DrkitError: it failed.
        """


@runtime_checkable
class LooksFirst(Protocol):
    """A stage from which a run isn't taken back by itself, and that looks once more before it is begun: what it finds
    wrong takes a planned move back."""

    def look_first(self, context: StageContext, /) -> None:
        """Look; not repeated once the stage was begun.

        Raises:
            DrkitError: it must not be begun as things are.
        """


def sealed_before(context: StageContext) -> bool:
    """Whether an interrupted attempt of this run had sealed the link: then its mirror isn't waited for."""
    return is_sealed_by(context.estate.store.link_control(context.link.id), {context.run})


def is_sealed_by(control: LinkControl | None, runs: Collection[str | None]) -> bool:
    """Whether one of these runs sealed the link, and nobody decided it since."""
    sealed = control is not None and control.direction is Direction.SEALED
    return sealed and control is not None and control.run is not None and control.run in runs


def check_still_decided(context: StageContext, *, sealed_before_by: str | None = None) -> None:
    """Raise `PartlyDone` unless the link that groups leave is sealed by this run (or by an earlier one that the plan
    names), and, in a failback, the configured link is reversed by it: called before groups or clients are moved.

    A mirror that runs again would write beneath the positions. Only the store says so to a process whose machine stood
    still: its clock did, too, and its lease looks held.
    """
    link = context.link.id
    by = {context.run, sealed_before_by} - {None}
    check_decided_by(context, link, frozenset({Direction.SEALED}), by)
    if context.link.inverse:
        check_decided_by(context, link.reversed(), frozenset({Direction.REVERSED}), {context.run})


def check_decided_by(
    context: StageContext, link: LinkId, allowed: frozenset[Direction], runs: Collection[str | None]
) -> None:
    """Raise `PartlyDone` unless a link has one of these directions by the decision of one of these runs."""
    context.lease.check()
    control = context.estate.store.link_control(link)
    if control is not None and control.direction in allowed and control.run in runs:
        return
    direction = Direction.ACTIVE if control is None else control.direction
    by = f" by run {control.run}" if control is not None and control.run else ""
    raise PartlyDone(
        f"the link {link} is {direction}{by} by now",
        meaning=f"It was decided again since this run had it {' or '.join(sorted(allowed))}: what it found then counts "
        "no more",
        remedy=f"drkit abandon {context.run} gives this run up; `drkit status` and `drkit runs` show what happened",
    )


def decide_link(
    context: FenceContext,
    link: LinkId,
    direction: Direction,
    *,
    reason: str,
    allowed: frozenset[Direction],
    above: int = 0,
) -> LinkControl:
    """Change a link's direction by compare-and-set, from one of the `allowed` ones (none stored: active).

    Idempotent within a run. Pausing or resuming at the same time is not a conflict: it retries with the newly stored
    state. The new version is greater than `above`. The lease is checked after each look at what is stored: a process
    that stood still never replaces what another run has decided since.

    Raises:
        PartlyDone: the lease isn't surely held.
        Refused: the link's direction isn't an allowed one.
        OutcomeUnknown: the store got the change and never answered.
    """
    estate, run = context.estate, context.run
    for _ in range(_CAS_ATTEMPTS):
        kept = estate.store.link_control(link)
        context.lease.check()
        current = kept.direction if kept is not None else Direction.ACTIVE
        if kept is not None and current is direction and kept.run == run:
            return kept
        check_direction(kept, link, direction, allowed)
        wanted = LinkControl(
            link=link,
            direction=direction,
            version=max(0 if kept is None else kept.version, above) + 1,
            changed_at=now(),
            reason=reason,
            run=run,
            paused_topics=frozenset() if kept is None else kept.paused_topics,
        )
        try:
            taken = estate.store.set_link_control(wanted, expected_version=None if kept is None else kept.version)
        except Unreachable as error:
            found = _look_again(estate, link, error)
            if found is not None and found.run == run and found.direction is direction:
                return found
            continue
        if taken:
            return wanted
    raise DrkitError(
        f"the state of link {link} changed {_CAS_ATTEMPTS} times during the decision",
        remedy="Find what changes it (`drkit link pause`, another run), then try again",
    )


def check_direction(
    control: LinkControl | None, link: LinkId, direction: Direction, allowed: frozenset[Direction]
) -> None:
    """Raise `Refused` where a link's direction (none stored: active) isn't one of the `allowed` ones, from which it can
    get the other `direction`."""
    current = control.direction if control is not None else Direction.ACTIVE
    if current in allowed:
        return
    by = f" by run {control.run}" if control is not None and control.run else ""
    raise Refused(
        f"the link {link} is {current}{by}",
        meaning=f"It can become {direction} only from {', '.join(sorted(allowed))}",
        remedy="`drkit status` and `drkit runs` show what happened",
    )


def _look_again(estate: ClusterContext, link: LinkId, error: Unreachable) -> LinkControl | None:
    try:
        return estate.store.link_control(link)
    except Unreachable:
        raise OutcomeUnknown(
            f"the store did not say whether link {link} was changed: {error.what}",
            remedy="Once the store answers: drkit resume",
        ) from error
