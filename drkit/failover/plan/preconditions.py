"""A failover's preconditions; each obstacle has its remedy. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from drkit.failover.context.state_machine import Mode
from drkit.failover.plan.failover_plan import AcceptedLoss, FailoverPlan, Obstacle
from drkit.failover.plan.loss_budget import accepted, flag_for, over_budget, what_accepts
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.snapshot.snapshot import PartitionView, Snapshot
from drkit.model.link_state import TARGET_RECREATED, TARGET_REPLACED, Direction, Problem
from drkit.model.runs import ACCEPT_LOSS, ACCEPT_UNFENCED, ALLOW_REWIND, FenceMethod, serve_again
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted
from drkit.state_topic.other_store import other_store

AS_THEY_ARE = "A planned move takes groups from where they are, not from where they were last seen"


def obstacles(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    """Obstacles of the plan, the worst first."""
    yield from _another_target(snapshot)
    yield from _decided_already(snapshot, plan)
    yield from _nothing_there(snapshot, plan)
    if plan.mode is Mode.PLANNED:
        yield from _planned(snapshot, plan)
    if plan.waits:
        yield from _backlog(snapshot, plan)
    elif plan.mode is Mode.UNPLANNED:
        yield from _over_budget(plan)
    yield from _active(snapshot, plan)
    yield from _rewound(snapshot, plan)
    yield from _unfenced(snapshot, plan)


def mirrored_with_another_store(snapshot: Snapshot, mirrors: Sequence[str]) -> Obstacle:
    """A mirror that uses another store ignores this store's decisions."""
    why = other_store(snapshot.link, mirrors)
    return Obstacle(why.what, why.meaning or "", why.remedy or "")


def _another_target(snapshot: Snapshot) -> Iterator[Obstacle]:
    """Whether the target is another cluster than the one that was mirrored to."""
    for problem in snapshot.problems:
        if problem.kind == TARGET_REPLACED:
            none = f"Nothing of what {snapshot.link.id} mirrored is there: no group would have a position or a record"
            yield Obstacle(problem.reason, none, problem.remedy)


def _nothing_there(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    """Whether the target has no topic of all that the groups read (or, without groups, that were mirrored)."""
    read = {TopicPartition(each.topic, each.partition) for each in plan.positions}
    views = [
        view for tp, view in snapshot.partitions.items() if (tp in read if read else view.tp.topic in snapshot.topics)
    ]
    if not views or any(_is_there(view) for view in views) or accepted(plan.loss, plan.accept_loss):
        return
    source, target = snapshot.source.alias, snapshot.target.alias
    topics = sorted({view.target_topic for view in views})
    groups = sorted({each.group for each in plan.positions})
    told = next((each for view in views for each in view.problems if each.kind == TARGET_RECREATED), None)
    loss = "all records of them" if plan.loss.records is None else counted(plan.loss.records, "record")
    yield Obstacle(
        f"{target} has nothing of what {'was mirrored' if not groups else f'{and_more(groups)} read'}: "
        f"{and_more(topics)} {'is' if len(topics) == 1 else 'are'} not there as mirrored",
        f"No group would have a position on {target}, and {loss} of {source} would be lost",
        f"{'Run drkit mirror' if told is None else told.remedy}; or give {flag_for(plan.loss)} to serve from {target} "
        "without them",
        waived_by=ACCEPT_LOSS,
        loss=what_accepts(plan.loss),
    )


def _is_there(view: PartitionView) -> bool:
    """Whether the target has the partition that was mirrored, though it may not answer for it."""
    return (view.on_target or view.target_silent is not None) and not any(
        problem.kind == TARGET_RECREATED for problem in view.problems
    )


def _decided_already(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    control = snapshot.control
    link = snapshot.link.id
    if control is None or control.direction.serves_source:
        return
    by = f" by run {control.run}" if control.run else ""
    if control.direction is Direction.REVERSED:
        yield Obstacle(
            f"the link {link} is reversed{by}",
            f"Data flows in the opposite direction: a failback is in progress, or {link.target} was made the primary "
            "for good",
            f"`drkit runs` shows the run: `drkit resume` finishes one that was interrupted; after a reprotect give the "
            f'link source = "{link.target}" and target = "{link.source}" in the configuration',
        )
    elif not plan.selection.groups:
        yield Obstacle(
            f"{link} was failed over already{by}",
            "The link is sealed; moving all groups again would take them back to where they were",
            f"`drkit runs` shows the run (`drkit resume` if it was interrupted); --group moves groups that were left "
            f"out; {_back(snapshot, f'`drkit failback --to {link.source}` goes back')}",
        )
    elif plan.mode is Mode.PLANNED:
        groups = " ".join(f"--group {shlex.quote(group)}" for group in plan.selection.groups)
        yield Obstacle(
            f"the link {link} is sealed{by}",
            "A planned move waits for the mirror and then seals the link: no mirror may run on it any more",
            f"Without --planned these groups move by what was mirrored: drkit failover --to {link.target} "
            f"--link '{link}' {groups}",
        )


def vanished_groups(snapshot: Snapshot, placed: Iterable[PlannedPosition]) -> list[str]:
    """The groups with a place of which the source, which answered for all, has no commit any more."""
    vanished = snapshot.vanished
    return sorted({position.group for position in placed if position.group in vanished}) if vanished else []


def vanished_says(source: str, groups: Sequence[str]) -> tuple[str, str]:
    """What happened to them, and how to have them moved nevertheless."""
    return (
        f"{source} has no committed offset any more of {and_more(groups)}: deleted, expired or lost there",
        f"kafka-consumer-groups.sh --reset-offsets on {source} puts a group that it lost where it continues",
    )


def _planned(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    source = snapshot.source.alias
    if not snapshot.source.reachable:
        yield Obstacle(
            f"{source} {snapshot.source.unreached}: {snapshot.source.reason}",
            "A planned move needs both clusters: it loses nothing or does nothing",
            snapshot.source.denied or f"Bring {source} back, or fail over with --unplanned",
        )
        return
    if snapshot.silent:
        yield Obstacle(
            _unreadable(snapshot),
            "A planned move loses nothing or does nothing, and what only this source holds there isn't known",
            f"{_bring_back(snapshot)}, or fail over with --unplanned, which loses what was not mirrored of it",
        )
    if snapshot.unread_reason is not None:
        yield Obstacle(
            f"groups of {source} can't all be read: {snapshot.unread_reason}",
            AS_THEY_ARE,
            f"Bring up the brokers of {source} that coordinate its groups, and grant drkit's principal DESCRIBE on "
            "them; or fail over with --unplanned: it uses the captured positions",
        )
    if vanished := vanished_groups(snapshot, plan.placed):
        what, remedy = vanished_says(source, vanished)
        yield Obstacle(
            what,
            AS_THEY_ARE,
            f"{remedy}. Of a group that was deleted: run drkit mirror --link '{snapshot.link.id}' until it forgets it, "
            "or leave it out with exclude_groups. Or fail over with --unplanned: it uses the captured positions",
        )
    if snapshot.unjudged:
        yield Obstacle(
            _open_questions(snapshot),
            "A planned move loses nothing or does nothing",
            f"Run drkit mirror --link '{snapshot.link.id}' until drkit status no longer says so, or fail over with "
            "--unplanned, which loses what was not mirrored",
        )
    if snapshot.lag != 0 and snapshot.mirror is None:
        lag = "an unknown number of records" if snapshot.lag is None else counted(snapshot.lag, "record")
        yield Obstacle(
            f"{lag} {'is' if snapshot.lag == 1 else 'are'} not on {snapshot.target.alias} and no mirror runs",
            "A planned move waits until the mirror has copied all of them",
            "Move these groups with --unplanned; "
            + _back(snapshot, f"`drkit failback --to {source}` keeps what only {source} holds")
            if _left_behind(snapshot)
            else f"Run drkit mirror --link '{snapshot.link.id}' and leave it running",
        )
    halted = [problem for problem in snapshot.problems if problem.halted]
    if halted:
        yield Obstacle(
            f"the mirror has halted on {halted[0].topic}: {halted[0].reason}",
            "Its lag will not reach zero",
            halted[0].remedy,
        )
    for problem in _gaps(snapshot)[:1]:
        yield Obstacle(
            f"{snapshot.target.alias} lacks records that no mirror brings back: {problem.reason}",
            "A planned move loses nothing or does nothing",
            problem.remedy,
        )


def _back(snapshot: Snapshot, failback: str) -> str:
    """How to go back over a link that a failover has sealed: what `failback` says, where one is possible."""
    return f"to go back: {serve_again(snapshot.link)}" if snapshot.link.alters else failback


def _left_behind(snapshot: Snapshot) -> bool:
    """Whether a failover has sealed the link: no mirror may bring what its source still holds."""
    return snapshot.control is not None and not snapshot.control.direction.serves_source


def _unreadable(snapshot: Snapshot) -> str:
    """Which partitions of a source that answers can't be read, and why."""
    told = [f"{view.tp} ({view.silent})" for view in snapshot.silent]
    return f"{counted(len(told), 'partition')} of {snapshot.source.alias} can't be read: {and_more(told)}"


def _open_questions(snapshot: Snapshot) -> str:
    """Of which partitions it isn't known whether both sides still hold what was mirrored, and why."""
    told = [view.doubts.unjudged for view in snapshot.unjudged if view.doubts.unjudged]
    return f"what is missing of {counted(len(told), 'partition')} isn't known: {and_more(told, separator='; ')}"


def _bring_back(snapshot: Snapshot) -> str:
    return f"Bring up the brokers of {snapshot.source.alias} that lead {and_more([str(v.tp) for v in snapshot.silent])}"


def _gaps(snapshot: Snapshot) -> list[Problem]:
    """The problems that name records which the source holds and the target lacks below what it has."""
    return [
        problem
        for view in snapshot.partitions.values()
        if view.missing.gaps
        for problem in view.problems
        if problem.missing
    ]


def records_of(lost: int | None) -> str:
    """So many records, in words; None: nobody knows how many."""
    return "an unknown number of records" if lost is None else counted(lost, "record")


def within(lag: int | None, accepted: AcceptedLoss) -> bool:
    """Whether that many records (None: an unknown number) may be lost."""
    return accepted == "unknown" or (lag is not None and lag <= (accepted or 0))


def _backlog(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    """Loss although the source answers: it holds the records, but without a working mirror waiting doesn't help."""
    halted = [problem for problem in snapshot.problems if problem.halted]
    gaps = _gaps(snapshot)
    at_least = bool(snapshot.silent or snapshot.unjudged)  # what these hold since the mirror's last look isn't known
    waits = snapshot.mirror is not None and not halted and not gaps and not at_least
    if waits or within(None if at_least else snapshot.lag, plan.accept_loss):
        return
    source, target = snapshot.source.alias, snapshot.target.alias
    lag = records_of(snapshot.lag)
    lag += " or more" if at_least and snapshot.lag is not None else ""
    remedy = (
        f"Run drkit mirror --link '{snapshot.link.id}' and try again, with --planned to wait until nothing is missing"
    )
    why = "no mirror runs"
    if _left_behind(snapshot):
        why = "the link is sealed"
        remedy = _back(snapshot, f"`drkit failback --to {source}` keeps what only {source} holds, and goes back")
    elif halted:
        why, remedy = f"the mirror has halted on {halted[0].topic}: {halted[0].reason}", halted[0].remedy
    elif gaps:
        why, remedy = f"no mirror brings back removed records: {gaps[0].reason}", gaps[0].remedy
    elif not snapshot.silent and at_least:
        why = _open_questions(snapshot)
    elif at_least:
        why, remedy = _unreadable(snapshot), f"{_bring_back(snapshot)}, and try again"
    needed: AcceptedLoss = "unknown" if snapshot.lag is None or at_least else snapshot.lag
    yield Obstacle(
        f"{lag} of {source} would be lost although it answers: not on {target} yet, and {why}",
        "While the source answers, nothing need be lost",
        f"{remedy}; or give {ACCEPT_LOSS} {needed}, or --unplanned to accept the loss",
        waived_by=ACCEPT_LOSS,
        loss=needed,
    )


def _over_budget(plan: FailoverPlan) -> Iterator[Obstacle]:
    """A loss above the configured limit, or an unknown one: an operator must accept it."""
    found = list(over_budget(plan.loss, plan.budgets))
    if not found or accepted(plan.loss, plan.accept_loss):
        return
    wait = f"{plan.source.alias} answers: without --unplanned the run waits for the missing records; or "
    wait = wait if plan.source.reachable else ""
    yield Obstacle(
        and_more(found, separator="; "),
        "The configuration limits what a failover may lose ([objectives], [[waves]])",
        f"{wait}give {flag_for(plan.loss)}",
        waived_by=ACCEPT_LOSS,
        loss=what_accepts(plan.loss),
    )


def _active(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    target = snapshot.target.alias
    moving = {position.group for position in plan.placed}
    active = sorted(group for group, members in snapshot.members.items() if members and group in moving)
    if active:
        yield Obstacle(
            f"{and_more(active)} {'is' if len(active) == 1 else 'are'} active on {target}",
            "Kafka accepts an offset from outside only while a group has no members",
            f"Stop these consumers on {target}, then try again; or leave the groups out with --group",
        )


def _rewound(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    back = [position for position in plan.placed if position.rewinds]
    if not back or plan.allow_rewind:
        return
    first = back[0]
    groups = sorted({position.group for position in back})
    yield Obstacle(
        f"{len(back)} existing positions on {snapshot.target.alias} would be moved back ({and_more(groups)}), e.g. "
        f"{first.group} on {first.target_tp} from {first.existing} to {first.target_offset}",
        "These groups have committed further on the target: they would read the records in between again",
        f"Leave them out with --group, or give {ALLOW_REWIND}",
        waived_by=ALLOW_REWIND,
    )


def _unfenced(snapshot: Snapshot, plan: FailoverPlan) -> Iterator[Obstacle]:
    """Whether the source has no fence method. If it has one, the fence stage proves it or stops the run first."""
    if plan.fence != FenceMethod.NONE:
        return
    source = snapshot.source.alias
    why = f"answers, and drkit can't deny its writes ({plan.fence_reason})"
    if not snapshot.source.reachable:
        denied = f" ({snapshot.source.reason})" if snapshot.source.denied is not None else ""
        why = f"{snapshot.source.unreached}{denied}"
    first = f"{snapshot.source.denied}. Or: make" if snapshot.source.denied is not None else "Make"
    yield Obstacle(
        f"{source} can't be fenced: it {why}",
        f"UNFENCED: records that clients still write to {source}, now or once it is back, never reach "
        f"{snapshot.target.alias}",
        f"{first} sure that nobody writes to {source}, then give {ACCEPT_UNFENCED}; once it answers and can be fenced: "
        "`drkit fence`",
        waived_by=ACCEPT_UNFENCED,
    )
