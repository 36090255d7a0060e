"""What a failover did with one group: its position on the source, and its position on the target.

Source position: from the source itself, if the link is still as the failover left it (nobody should read there since);
else from the failover's journal, or with `--committed-at` (whose journal has the past position) from the timeline.
Target position: committed by the failover, or, if it didn't move the group, the target's current one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import FINAL_STATES, PATHS, Kind, State
from drkit.failover.journal.run_record import RunRecord, load_run
from drkit.failover.plan.failover_plan import FailoverPlan
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.snapshot.past_positions import PastPosition, committed_at
from drkit.model.audit.group_audit import After, GroupMove, GroupPositions, SourceEvidence
from drkit.model.clock import iso, now
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.link_state import Direction, LinkControl
from drkit.model.runs import run_to_resume
from drkit.model.topology import Link, TopicPartition

Offsets = Mapping[TopicPartition, int]


def find_move(estate: ClusterContext, group: str, run: str | None = None, link: str | None = None) -> GroupMove:
    """The failover that moved a group, and what it did with it.

    Args:
        estate: store and clusters; the source may be gone.
        group: its name.
        run: the failover; None: the newest that moved the group.
        link: only failovers of this configured link.

    Raises:
        Refused: no such failover, it has committed nothing yet, it doesn't concern this group, or the link was
            reversed since, so its record no longer describes that move.
        Unreachable: the target or the store doesn't answer.
    """
    record = _record(estate, group, run, link)
    plan = record.plan
    assert isinstance(plan, FailoverPlan)  # noqa: S101 - `_record` gives no other
    moved = estate.link(plan.link)
    control = estate.store.link_control(plan.link)
    gone_back = _gone_back(estate, record)
    if gone_back or control is None or control.direction.serves_source:
        raise Refused(
            f"{plan.link} was turned back after {record.run}{f' by {gone_back}' if gone_back else ''}",
            meaning="Its mapping now describes another move, so it can't identify records any more",
            remedy=f"`drkit runs {record.run}` shows what it did; `drkit audit` compares both sides as they are now",
        )
    on_source, unreadable = _on_source(estate, moved, group, control)
    on_target = _on_target(estate, moved.id.target, group)
    wanted = {TopicPartition(p.topic, p.partition): p for p in record.positions if p.group == group}
    past = _past(estate, record, plan) if plan.at is not None and plan.at.by_commits else None
    partitions = _partitions(estate, moved, wanted, on_source or {})
    return GroupMove(
        link=moved.id,
        group=group,
        run=record.run,
        moved_at=_moved_at(record),
        places=tuple(_place(tp, moved, group, wanted.get(tp), on_source, on_target, past) for tp in partitions),
        unreadable=unreadable,
    )


def _record(estate: ClusterContext, group: str, run: str | None, link: str | None) -> RunRecord:
    if run is not None:
        record = load_run(estate.store, run)
        if record.machine.kind is not Kind.FAILOVER:
            raise Refused(
                f"run {run} is a {record.machine.kind}, not a failover",
                meaning="A failback moves groups only once nothing is missing and an audit is clean",
                remedy="Name a failover; `drkit runs` lists them",
            )
        if not _committed_by(record):
            raise Refused(
                f"failover {run} is {record.machine.state}: it has committed nothing yet",
                remedy=f"Take it to its end first: drkit resume {run_to_resume(run, estate.store.runs())}",
            )
        if link is not None and str(record.plan.link) != link.strip():
            raise Refused(f"failover {run} is of {record.plan.link}, not of {link}", remedy="Leave --link out")
        if all(position.group != group for position in record.positions):
            known = ", ".join(sorted({position.group for position in record.positions})[:10])
            raise Refused(f"failover {run} is not about a group {group}", remedy=f"Its groups are: {known or 'none'}")
        return record
    for summary in estate.store.runs():
        if summary.kind != Kind.FAILOVER or (link is not None and summary.detail.split(" ")[0] != link.strip()):
            continue
        try:
            record = load_run(estate.store, summary.run)
        except Refused:  # killed before it wrote its plan
            continue
        if _committed_by(record) and any(position.group == group for position in record.positions):
            return record
    raise Refused(
        f"no failover has moved a group {group}",
        meaning="There is no position before and after to compare",
        remedy="`drkit runs` lists what ran, `drkit runs RUN` the groups of a run",
    )


def _committed_by(record: RunRecord) -> bool:
    path = [step.reaches for step in PATHS[record.machine.kind]]
    state = record.machine.state
    return (
        state in path
        and state not in FINAL_STATES - {State.CLOSED}
        and path.index(state) >= path.index(State.COMMITTED)
    )


def _gone_back(estate: ClusterContext, record: RunRecord) -> str | None:
    """The run after this failover that reversed the link, back or permanently."""
    found = (
        summary.run
        for summary in estate.store.runs()
        if summary.kind in {Kind.FAILBACK, Kind.REPROTECT}
        and summary.state == State.CLOSED
        and summary.started_at > record.started_at
        and summary.detail.split(" ")[0] == str(record.plan.link)
    )
    return next(found, None)


def _moved_at(record: RunRecord) -> datetime:
    return record.machine.facts.fenced_at or record.started_at


def _on_source(
    estate: ClusterContext, link: Link, group: str, control: LinkControl
) -> tuple[Offsets | None, str | None]:
    """The group's committed offsets on the source, and why records can't be compared; None: unknown, they can."""
    source = link.id.source
    if control.direction is not Direction.SEALED:
        return None, f"{source} is being brought back: it no longer holds what it held at the failover"
    try:
        fetched = estate.groups(source, may_be_gone=True).fetch([group])
        if fetched.failures:  # access denied, or a coordinator is down: use the recorded position
            return None, None
        return {each.tp: each.offset for each in fetched.offsets.get(group, [])}, None
    except (Unreachable, AuthenticationError) as error:
        return None, f"{source} did not answer: {error.what}"


def _on_target(estate: ClusterContext, alias: str, group: str) -> Offsets:
    return {each.tp: each.offset for each in estate.groups(alias).committed([group])}


def _past(
    estate: ClusterContext, record: RunRecord, plan: FailoverPlan
) -> dict[TopicPartition, dict[str, PastPosition]]:
    """The groups' positions at the failover, by the timeline, by partition and group."""
    store, moment = estate.store, _moved_at(record)
    known = committed_at(moment, store.group_states_around(plan.link, moment), store.group_positions(plan.link))
    found: dict[TopicPartition, dict[str, PastPosition]] = {}
    for (group, tp), position in known.items():
        found.setdefault(tp, {})[group] = position
    return found


def _partitions(
    estate: ClusterContext, link: Link, wanted: Mapping[TopicPartition, PlannedPosition], on_source: Offsets
) -> Sequence[TopicPartition]:
    """The partitions of every topic that the group has a position on, with or without one."""
    states = estate.store.topic_states(link.id)
    known = set(wanted) | {tp for tp in on_source if link.covers_topic(tp.topic)}
    for topic in {tp.topic for tp in known}:
        known |= {TopicPartition(topic, n) for n in range(states[topic].partitions if topic in states else 0)}
    return sorted(known)


def _place(
    tp: TopicPartition,
    link: Link,
    group: str,
    position: PlannedPosition | None,
    on_source: Offsets | None,
    on_target: Offsets,
    past: Mapping[TopicPartition, Mapping[str, PastPosition]] | None,
) -> GroupPositions:
    there = TopicPartition(link.target_topic(tp.topic), tp.partition)
    why: list[str] = []
    source_offset, before, seen_at = _stood(tp, group, position, on_source, past, why)
    target_now = on_target.get(there)
    target_offset, after = (None, None) if position is None else (position.target_offset, After.FAILOVER)
    if target_offset is None:
        target_offset, after = target_now, None if target_now is None else After.TARGET
        reason = position.reason if position is not None and position.reason else "it had no position to move"
        why.append(f"the failover did not move it here: {reason}")
        if target_now is None:
            why.append(f"it has committed nothing on {link.id.target}: its auto.offset.reset decides where it reads")
    elif target_now is not None and target_now < target_offset:
        why.append(f"it is at {target_now} on {link.id.target} now: it was moved back after the failover")
    return GroupPositions(
        topic=tp.topic,
        target_topic=there.topic,
        partition=tp.partition,
        source_offset=source_offset,
        before=before,
        source_seen_at=seen_at,
        target_offset=target_offset,
        after=after,
        target_now=target_now,
        why=tuple(why),
    )


def _stood(
    tp: TopicPartition,
    group: str,
    position: PlannedPosition | None,
    on_source: Offsets | None,
    past: Mapping[TopicPartition, Mapping[str, PastPosition]] | None,
    why: list[str],
) -> tuple[int | None, SourceEvidence | None, datetime | None]:
    """The source position, its origin, and when it was seen; doubts are added to `why`."""
    if on_source is not None and tp in on_source:
        return on_source[tp], SourceEvidence.SOURCE, now()
    if past is not None:
        then = past.get(tp, {}).get(group)
        if then is None or then.offset is None:
            why.append((then.reason if then is not None else None) or "the timeline has no position of it here")
            return None, None, None
        if then.reason is not None:
            why.append(then.reason)
        return then.offset, SourceEvidence.TIMELINE, then.seen_at
    if position is None or position.source_offset is None:
        why.append("it had committed nothing here on the source")
        return None, None, None
    why.append(
        f"its source position is the one seen at {iso(position.captured_at)}: what it committed after that is not known"
    )
    return position.source_offset, SourceEvidence.JOURNAL, position.captured_at
