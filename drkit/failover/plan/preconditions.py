"""What must hold before a failover acts; each obstacle with its remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from drkit.failover.plan.failover_plan import AcceptedLoss, FailoverPlan, Obstacle
from drkit.failover.plan.snapshot import Snapshot
from drkit.failover.plan.waivers import ACCEPT_LOSS, ACCEPT_UNFENCED, ALLOW_REWIND
from drkit.failover.run.machine import Mode
from drkit.model.fence import FenceMethod
from drkit.model.link_state import TARGET_PURGED, Direction, Problem
from drkit.model.wording import and_more, counted
from drkit.state_topic.guard import OlderStore


def obstacles(world: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    """What stands in the way of the plan, the gravest first."""
    yield from _decided_already(world, plan)
    if plan.mode is Mode.PLANNED:
        yield from _planned(world)
    if plan.catch_up:
        yield from _backlog(world, plan)
    yield from _active(world, plan)
    yield from _rewound(world, plan)
    yield from _unfenced(world, plan)


def older_store(world: Snapshot, older: OlderStore) -> Obstacle:
    """A backup of the store was brought back: its mapping rows may be wrong beyond what it remembers."""
    link = world.link.id
    newer = []
    if older.decision is not None:
        newer.append(f"decision {older.decision} about the link")
    if older.partitions:
        newer.append(f"newer watermarks of {and_more([str(tp) for tp in older.partitions])}")
    return Obstacle(
        f"the store is older than its copy on {link.target}, which has {' and '.join(newer)}",
        "A backup of the store was brought back, or store.url is another one: what it says of positions doesn't hold",
        f"Move this store away, then drkit store recover --from {link.target} --link '{link}'; or start drkit mirror "
        f"while {link.source} answers: it compares both logs, and the store is newer again",
    )


def _decided_already(world: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    control = world.control
    link = world.link.id
    if control is None or control.direction not in {Direction.SEALED, Direction.REVERSED}:
        return
    by = f" by run {control.run}" if control.run else ""
    if control.direction is Direction.REVERSED:
        yield Obstacle(
            f"the link {link} is turned round{by}",
            "Data flows the way back: a failback is under way",
            "`drkit runs` shows it, `drkit resume` takes it to its end",
        )
    elif not plan.selection.groups:
        yield Obstacle(
            f"{link} was failed over already{by}",
            "The link is sealed; moving all groups again would take them back to where they were",
            f"`drkit runs` shows the run (`drkit resume` if it was interrupted); --group moves groups that were left "
            f"out; `drkit failback --to {link.source}` goes back",
        )


def _planned(world: Snapshot) -> Iterator[Obstacle]:
    source = world.source.alias
    if not world.source.reachable:
        yield Obstacle(
            f"{source} does not answer: {world.source.reason}",
            "A planned move needs both clusters: it loses nothing or does nothing",
            f"Bring {source} back, or fail over with --unplanned",
        )
        return
    if world.lag != 0 and world.mirror is None:
        lag = "an unknown number of" if world.lag is None else f"{world.lag:,}"
        yield Obstacle(
            f"{lag} records are not on {world.target.alias} and no mirror runs",
            "A planned move waits until the mirror has brought all of them over",
            f"Run drkit mirror --link '{world.link.id}' and leave it running",
        )
    halted = [problem for problem in world.problems if problem.halted]
    if halted:
        yield Obstacle(
            f"the mirror has halted on {halted[0].topic}: {halted[0].reason}",
            "It will not drain to zero",
            halted[0].remedy,
        )
    for problem in _removed(world)[:1]:
        yield Obstacle(
            f"records are missing on {world.target.alias} that no mirror brings back: {problem.reason}",
            "A planned move loses nothing or does nothing",
            problem.remedy,
        )


def _removed(world: Snapshot) -> list[Problem]:
    """The problems of partitions whose records somebody removed from the target, as far as the source holds them."""
    return [
        problem
        for view in world.partitions.values()
        if view.missing.purged is not None
        for problem in view.problems
        if problem.kind == TARGET_PURGED
    ]


def within(lag: int | None, accepted: AcceptedLoss) -> bool:
    """Whether so many records (None: not known how many) may be lost."""
    return accepted == "unknown" or (lag is not None and lag <= (accepted or 0))


def _backlog(world: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    """A source that answers still has what would be lost; without a mirror that works it can't be waited for."""
    halted = [problem for problem in world.problems if problem.halted]
    removed = _removed(world)
    if within(world.lag, plan.accept_loss) or (world.mirror is not None and not halted and not removed):
        return
    source, target = world.source.alias, world.target.alias
    lag = "an unknown number of records" if world.lag is None else counted(world.lag, "record")
    remedy = f"Run drkit mirror --link '{world.link.id}' and try again, with --planned to wait until nothing is missing"
    why = "no mirror runs"
    if halted:
        why = f"the mirror has halted on {halted[0].topic}: {halted[0].reason}"
    elif removed:
        why, remedy = f"no mirror brings back what somebody removed: {removed[0].reason}", removed[0].remedy
    accepted = "unknown" if world.lag is None else world.lag
    yield Obstacle(
        f"{lag} of {source} would be lost although it answers: not on {target} yet, and {why}",
        "While the source answers, nothing need be lost",
        f"{remedy}; or give {ACCEPT_LOSS} {accepted}, or --unplanned to take what is there",
        waived_by=ACCEPT_LOSS,
    )


def _active(world: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    target = world.target.alias
    moving = {position.group for position in plan.placed}
    active = sorted(group for group, members in world.members.items() if members and group in moving)
    if active:
        yield Obstacle(
            f"{and_more(active)} {'is' if len(active) == 1 else 'are'} active on {target}",
            "Kafka takes a position from outside only while a group has no members",
            f"Stop these consumers on {target}, then try again; or leave the groups out with --group",
        )


def _rewound(world: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    back = [position for position in plan.placed if position.rewinds]
    if not back or plan.allow_rewind:
        return
    first = back[0]
    groups = sorted({position.group for position in back})
    yield Obstacle(
        f"{len(back)} existing positions on {world.target.alias} would be moved back ({and_more(groups)}), e.g. "
        f"{first.group} on {first.target_tp} from {first.existing} to {first.target_offset}",
        "These groups have committed further on the target: what lies between would be read again",
        f"Leave them out with --group, or give {ALLOW_REWIND}",
        waived_by=ALLOW_REWIND,
    )


def _unfenced(world: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    """Where there is a means, the fence stage shows that it holds, or stops the run before anything else is done."""
    if plan.fence != FenceMethod.NONE:
        return
    source = world.source.alias
    why = f"answers, and drkit can't deny its writes ({plan.fence_reason})"
    yield Obstacle(
        f"{source} can't be fenced: it {why if world.source.reachable else 'does not answer'}",
        f"UNFENCED: whoever still writes to {source}, or finds it back, writes what {world.target.alias} never gets",
        f"Make sure that nobody writes to {source}, then give {ACCEPT_UNFENCED}; once it answers and can be fenced: "
        "drkit fence",
        waived_by=ACCEPT_UNFENCED,
    )
