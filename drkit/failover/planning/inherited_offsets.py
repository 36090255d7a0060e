"""Committed offsets that an abandoned failback had kept, deleted on the old primary, and not brought back.

Its scrub deleted the topics, and with them every group's offsets. Groups that have committed on the live cluster go by
that; all others (left out of the failover, or not the link's) are in the abandoned run's journal alone. The next
failback carries them over as its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.live_log import LiveLog, TopicKept
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.failback.failback_snapshot import FailbackSnapshot, live_logs
from drkit.failover.journal.run_record import RunRecord, load_anchored_run, since_brought_back
from drkit.failover.plan.failback_plan import FailbackPlan
from drkit.failover.positions.positions import PlannedPosition, Strategy
from drkit.failover.stages.late_commits import GoneTopics, with_late_commits
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.offsets import Certainty
from drkit.model.topology import LinkId

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Inherited:
    """`positions`: with their offsets on the live cluster; `remarks`: what could not be read, as warnings."""

    positions: tuple[PlannedPosition, ...] = ()
    remarks: tuple[str, ...] = ()


def inherited_offsets(estate: ClusterContext, snapshot: FailbackSnapshot) -> Inherited:
    """Those of all failbacks of a link that were abandoned before their switch, since one came further; the newest of
    each group and partition, unless the group has committed there on either cluster since.

    Raises:
        Unreachable: the store or a cluster doesn't answer.
    """
    link, remarks = snapshot.link.id, list[str]()
    there = {(each.group, each.topic, each.partition) for each in snapshot.old_offsets}
    alive = {(each.group, each.topic, each.partition) for each in snapshot.live_offsets}
    found: dict[Key, PlannedPosition] = {}
    for summary in since_brought_back(estate.store, link):
        if summary.state != State.ABANDONED or summary.kind == Kind.FAILOVER:
            continue
        run = summary.run
        try:
            record = load_anchored_run(estate, run)
        except DrkitError as error:
            if isinstance(error, Unreachable):
                raise
            remarks.append(f"positions that run {run} kept can't be read: {error.what}; they are in its salvage")
            continue
        carried, said = _with_last_moment(estate, link, record)
        remarks += said
        kept = _as_now(estate, link, record, carried)
        for each in kept:
            key = (each.group, each.target_topic, each.partition)
            if key not in there and (each.group, each.topic, each.partition) not in alive:
                found.setdefault(key, each)
    return Inherited(tuple(each for _, each in sorted(found.items())), tuple(remarks))


def _with_last_moment(
    estate: ClusterContext, link: LinkId, record: RunRecord
) -> tuple[tuple[PlannedPosition, ...], list[str]]:
    """The run's carried offsets, with those that groups committed while it deleted topics, if it hasn't read them."""
    begin, plan = record.machine.facts.commits_from, record.plan
    if begin is None or not isinstance(plan, FailbackPlan):
        return record.carried, []
    now_there = estate.admin(link.source).topics([topic.topic for topic in plan.topics])
    gone = [topic for topic in plan.topics if topic.topic not in now_there]
    if not gone:
        return record.carried, []
    topics = GoneTopics(estate, link, link.source, link.target, gone)
    try:
        carried, said = with_late_commits(topics, begin, record.carried, lambda done, _: done())
    except Unreachable:
        raise
    except DrkitError as error:
        unknown = f"positions that groups committed while run {record.run} deleted topics aren't known: {error.what}"
        return record.carried, [unknown]
    return carried, [f"run {record.run}: {said.removeprefix('; ')}"] if said else []


def _as_now(
    estate: ClusterContext, link: LinkId, record: RunRecord, carried: Iterable[PlannedPosition]
) -> Iterable[PlannedPosition]:
    """The offsets with their places on the live cluster's topics of today."""
    kept, plan = record.machine.facts.kept, record.plan
    topics = plan.topics if isinstance(plan, FailbackPlan) else ()
    logs = live_logs(estate.admin(link.target), topics)
    return [_placed(each, kept, logs, link) for each in carried]


def _placed(
    position: PlannedPosition, kept: Mapping[str, TopicKept], logs: Mapping[str, LiveLog], link: LinkId
) -> PlannedPosition:
    before, there = kept.get(position.target_topic), logs.get(position.target_topic, LiveLog())
    if there.topic_id is None:
        reason = f"{position.topic} is missing on {link.target}: the recreated topic is read from its first record"
        lost = replace(position, source_offset=None, target_offset=0, strategy=Strategy.MAPPING)
        return replace(lost, translation=Certainty.CONSERVATIVE, reason=reason, why=reason)
    if before is None or before.live.topic_id == there.topic_id:
        return position
    reason = f"{position.topic} was recreated on {link.target}: it is read from its first record"
    start = there.starts.get(position.partition, 0)
    return replace(
        position,
        source_offset=start,
        target_offset=None,
        translation=Certainty.CONSERVATIVE,
        reason=reason,
        why=reason,
    )
