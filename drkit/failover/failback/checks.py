"""Obstacles of a failback, and the warnings of its plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from drkit.failover.context.live_log import LiveLog
from drkit.failover.context.state_machine import Kind
from drkit.failover.failback.failback_snapshot import FailbackSnapshot
from drkit.failover.plan.failback_plan import FailbackPlan, ScrubTopic
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.positions.positions import PlannedPosition
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.mapping.mapping_rows import source_at
from drkit.model.link_state import Direction, TopicState
from drkit.model.offsets import Watermark
from drkit.model.runs import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED, FenceMethod, FenceState
from drkit.model.topics.removing import removing_more
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.link_notes import other_target_cluster, other_target_remedy


def warnings(snapshot: FailbackSnapshot, plan: FailbackPlan) -> Iterator[str]:
    """Facts that an operator should know before; none prevents the failback."""
    link = snapshot.link
    names = {topic.topic for topic in plan.topics}
    others = [
        name
        for name in snapshot.topics
        if link.covers_topic(name) and name not in names and name not in snapshot.states
    ]
    alone = [name for name in others if link.target_topic(name) not in snapshot.live_topics]
    if alone:
        yield f"{and_more(alone)} on {link.id.source} were never mirrored and stay as they are"
    if snapshot.replaced:
        yield (
            f"{link.id.source} is another cluster ({snapshot.old.cluster_id}) than the one that was failed away from "
            f"({snapshot.old_cluster_id}), and empty: all is seeded from {link.id.target}; records that only the old "
            "one held are not brought back"
        )
    missing = [name for name in snapshot.states if link.covers_topic(name) and name not in snapshot.topics]
    if missing:
        what = "is gone from {0}: it is recreated" if len(missing) == 1 else "are gone from {0}: they are recreated"
        yield f"{and_more(missing)} {what.format(link.id.source)}"
    active = sorted(group for group, count in snapshot.live_members.items() if count)
    if active:
        yield f"{and_more(active)} read on {link.id.target}: unless they stop first, they read some records again"
    yield from _not_closed(snapshot)
    if plan.level:
        yield from _shorter(snapshot)
    elif differences := _differences(snapshot):
        yield f"{differences}: all is seeded again"
    yield from _removing_more(snapshot, plan)
    if plan.only_here:
        yield (
            f"{counted(plan.only_here, 'offset')} only on {link.id.source}: salvaged, not brought to {link.id.target}; "
            "`drkit salvage --replay-to` can replay what the salvage holds"
        )
    if plan.carried:
        yield (
            f"{plan.carried:,} committed offsets are on {link.id.source} only (of groups that were left out of the "
            f"failover, or aren't {link.id}'s): the mapping carries over those that it has a place for"
        )


def _not_closed(snapshot: FailbackSnapshot) -> Iterator[str]:
    """Whether clients may reach the old primary, though it is on record as fenced."""
    fence, link = snapshot.fence, snapshot.link.id
    if fence is None or fence.state is FenceState.OPEN:
        return
    if fence.stands and snapshot.replaced:
        yield (
            f"the fence of {link.source} closed the former cluster, not the one that answers now: keep its clients "
            "away until the run is over"
        )
    elif not fence.proven:
        yield (
            f"the fence of {link.source} isn't proven ({fence.detail or 'it did not answer'}): "
            f"run drkit fence --link '{link}' before its clients reach it again; where drkit can't fence it, keep them "
            "away until the run is over"
        )


def _shorter(snapshot: FailbackSnapshot) -> Iterator[str]:
    """What the old primary no longer holds at the beginning of its logs, though the live cluster does: a move back
    that deletes nothing doesn't bring it."""
    old, live = snapshot.link.id.source, snapshot.link.id.target
    removed: dict[TopicPartition, int] = {}
    for tp, mapping in snapshot.mappings.items():
        held_from = snapshot.live_logs.get(tp.topic, LiveLog()).starts.get(tp.partition)
        if held_from is not None and mapping.rows:
            start = snapshot.starts.get(tp, 0)
            removed[tp] = max(0, start - max(source_at(mapping.rows, held_from), mapping.rows[0].source_offset))
    most = max(removed, key=lambda tp: removed[tp], default=None)
    if most is None or not removed[most]:
        return
    yield (
        f"{old} begins later than {live}: {counted(sum(removed.values()), 'offset')} that {live} still holds were "
        f"removed there by its retention, most of {most} ({removed[most]:,}), and don't come back"
    )


def _removing_more(snapshot: FailbackSnapshot, plan: FailbackPlan) -> Iterator[str]:
    """Topics that have their settings of before again at the switch, by which more is removed than on the live
    cluster."""
    if plan.kind is Kind.REPROTECT:
        return  # they stay a standby's, which follow the live cluster's
    old, live = snapshot.link.id.source, snapshot.link.id.target
    found = [
        f"{name} ({key} {before[key]}, on {live} {now[key]})"
        for name, now in sorted(snapshot.live_configs.items())
        for before in [snapshot.configs_before.get(name) or snapshot.configs.get(name, {})]
        for key in removing_more(before, now)
    ]
    if found:
        yield (
            f"{and_more(found)}: with the switch {old}'s own settings are in force again, and what they no longer keep "
            f"goes on both sides; where a group has not read everything by then, {live}'s stay, and the run says so. "
            f"To keep it in any case, change them on {old} first"
        )


def obstacles(snapshot: FailbackSnapshot, plan: FailbackPlan, alone: Sequence[PlannedPosition]) -> Iterator[Obstacle]:
    """Why a failback would be refused. `alone`: committed offsets that exist on the old primary only."""
    link, old = snapshot.link, snapshot.link.id.source
    if snapshot.kept:
        yield Obstacle(
            f"{link.id.target} was made the primary for good",
            f"Data no longer flows in the direction of {link.id}, which the configuration has",
            f'Give the link source = "{link.id.target}" and target = "{old}" in the configuration; then groups can be '
            f"moved with drkit failover --to {old}",
        )
        return
    run = None if snapshot.control is None else snapshot.control.run
    abandon = f"drkit abandon {run} gives it up"
    resume = snapshot.resumed_by
    ways = abandon if resume is None else f"drkit resume {resume} takes it to its end; {abandon}"
    if (
        snapshot.run_problem is not None
        and snapshot.control is not None
        and snapshot.control.direction is Direction.REVERSED
    ):
        yield Obstacle(
            f"a failback of {link.id} is in progress (run {run})", "Two at a time would undo each other", ways
        )
    elif snapshot.run_problem is not None:
        yield Obstacle(snapshot.run_problem, "The failover must be complete before the way back", ways)
    if snapshot.mirrored_to not in {None, snapshot.live.cluster_id}:
        found = snapshot.live.cluster_id or ""
        yield Obstacle(
            other_target_cluster(link.id, found, snapshot.mirrored_to or ""),
            f"{old} would be made a copy of a cluster that wasn't failed over to: its records would be deleted for it",
            other_target_remedy(link, found, None if snapshot.control is None else snapshot.control.direction),
        )
    if snapshot.replaced and (held := _held(snapshot)):
        yield Obstacle(
            f"{old} is cluster {snapshot.old.cluster_id}, but the failover left cluster {snapshot.old_cluster_id}, and "
            f"{and_more(held)} there hold{'s' if len(held) == 1 else ''} records",
            "drkit goes back to another cluster only if that has nothing of the link: it deletes nothing there",
            f"Correct bootstrap_servers of {old}; or, if it is its replacement, delete these topics there by hand",
        )
    if snapshot.mirror is not None:
        yield Obstacle(
            f"a mirror runs on {link.id}, or on its way back: {snapshot.mirror}",
            "It must not write while the link is reversed",
            f"Stop the mirror {snapshot.mirror}",
        )
    active = sorted(group for group, count in snapshot.old_members.items() if count)
    if active:
        yield Obstacle(
            f"{and_more(active)} {'is' if len(active) == 1 else 'are'} active on {old}",
            "Their committed offsets there are deleted and set again, which Kafka allows only while nobody reads",
            f"Stop these consumers on {old}; one that died counts until its session.timeout.ms is over",
        )
    yield from _left_the_link(snapshot, plan)
    if not snapshot.replaced:
        yield from _foreign_topics(snapshot)
    if plan.level:
        yield from _unfenced(snapshot, plan)
        return
    yield from _gaps(snapshot, plan)
    yield from _stranded(snapshot, plan, alone)
    yield from _unfenced(snapshot, plan)


def _held(snapshot: FailbackSnapshot) -> list[str]:
    """Topics of the link on the old primary that hold records."""
    return sorted(
        name
        for name, info in snapshot.topics.items()
        if snapshot.link.covers_topic(name)
        and any(snapshot.ends.get(TopicPartition(name, partition)) for partition in range(info.partitions))
    )


def _gaps(snapshot: FailbackSnapshot, plan: FailbackPlan) -> Iterator[Obstacle]:
    """Topics whose mirrored records the live cluster lacks: they were deleted, truncated, recreated or expired."""
    old, live = snapshot.link.id.source, snapshot.link.id.target
    gaps = [topic for topic in plan.topics if topic.gap]
    if not gaps:
        return
    named = [f"{topic.live_topic} {topic.gap} ({counted(topic.only_here, 'offset')})" for topic in gaps]
    yield Obstacle(
        f"{live} lacks records that only {old} still holds: {and_more(named)}",
        f"A failback makes {old} a copy of {live}: these records would be in the salvage only",
        f"If {live} should have them, keep them (drkit salvage --link '{snapshot.link.id}' --out DIR), then replay "
        "them there; if not (retention or compaction removed them, the topic was deleted on purpose), give "
        f"{ACCEPT_SALVAGE_ONLY}",
        waived_by=ACCEPT_SALVAGE_ONLY,
    )


def _stranded(snapshot: FailbackSnapshot, plan: FailbackPlan, alone: Sequence[PlannedPosition]) -> Iterator[Obstacle]:
    """Committed offsets that are deleted with the topics and can't be carried."""
    old, live = snapshot.link.id.source, snapshot.link.id.target
    if plan.kind is Kind.REPROTECT:
        names = sorted({each.group for each in alone})
        if names:
            yield Obstacle(
                f"{and_more(names)} {'stands' if len(names) == 1 else 'stand'} on {old} only",
                f"Groups stay on {live}, and what is committed on {old} is deleted with its topics",
                f"Move them first (drkit failover --to {live} --group NAME; they have to be among the link's groups), "
                f"or delete their offsets on {old}",
            )
        return
    lost = [each for each in alone if each.source_offset is None and each.target_offset is None]
    if lost:
        first = lost[0]
        yield Obstacle(
            f"{len(lost)} committed offsets on {old} have no known offset on {live}, e.g. {first.group} on "
            f"{first.target_topic}:{first.partition}: {first.reason}",
            "They are deleted with the topics, and these groups would begin at their auto.offset.reset",
            f"Commit offsets for them on {live} (kafka-consumer-groups.sh --reset-offsets), or delete their offsets on "
            f"{old}",
        )


def _unfenced(snapshot: FailbackSnapshot, plan: FailbackPlan) -> Iterator[Obstacle]:
    """Whether the live cluster has no fence method. If it has one, the fence stage proves it or stops the run."""
    method, why = snapshot.live_fence
    if method is not FenceMethod.NONE or plan.kind is Kind.REPROTECT:
        return
    live = snapshot.link.id.target
    yield Obstacle(
        f"{live} can't be fenced: drkit can't deny its writes ({why})",
        f"UNFENCED: records written to {live} after groups move back never reach {snapshot.link.id.source}",
        f"Make sure that nobody writes to {live} from the fence stage on, then give {ACCEPT_UNFENCED}",
        waived_by=ACCEPT_UNFENCED,
    )


def _left_the_link(snapshot: FailbackSnapshot, plan: FailbackPlan) -> Iterator[Obstacle]:
    """Topics that would be scrubbed but not seeded again."""
    link, old = snapshot.link, snapshot.link.id.source
    left = [topic.topic for topic in plan.topics if not link.covers_topic(topic.topic)]
    if left:
        one = len(left) == 1
        yield Obstacle(
            f"{and_more(left)}, mirrored by {link.id}, {'is' if one else 'are'} no longer among its topics",
            f"Their records that {link.id.target} received since would not be brought back",
            f"Put {'it' if one else 'them'} back into the link's topics until the failback is done, or delete "
            f"{'it' if one else 'them'} on {old}",
        )


def _foreign_topics(snapshot: FailbackSnapshot) -> Iterator[Obstacle]:
    """Topics of the link on the old primary with records that the mirror never saw."""
    link, old = snapshot.link, snapshot.link.id.source
    for name, info in sorted(snapshot.topics.items()):
        if not link.covers_topic(name):
            continue
        state = snapshot.states.get(name)
        tps = [TopicPartition(name, partition) for partition in range(info.partitions)]
        if (
            snapshot.is_ours(info)
            or link.target_topic(name) not in snapshot.live_topics
            or not any(snapshot.ends.get(tp) for tp in tps)
        ):
            continue
        what = "was recreated since it was mirrored" if state is not None else "was never mirrored"
        yield Obstacle(
            f"topic {name} on {old} {what} and holds records",
            "drkit deletes only what the link mirrored, and can't seed a topic that holds something else",
            f"Keep what is needed of it and delete it on {old}, or put it into exclude_topics",
        )


def why_not_level(snapshot: FailbackSnapshot, topics: Sequence[ScrubTopic]) -> str | None:
    """Why the old primary can't just be brought up to date, with nothing deleted there: it holds something of these
    topics that the live cluster lacks or has otherwise, or that can't be told. None: it can."""
    if differences := _differences(snapshot):
        return differences
    old, live = snapshot.link.id.source, snapshot.link.id.target
    if snapshot.other_records:
        places = and_more([str(tp) for tp in sorted(snapshot.other_records)])
        return f"{places} on {old}: the last records aren't those that were mirrored, or can't be read"
    level = is_caught_up(
        topics, snapshot.ends, snapshot.watermarks, snapshot.states, snapshot.live_topics, snapshot.live_logs
    )
    return (
        None if level else f"{old} doesn't hold exactly what was mirrored, or {live} no longer has all that came since"
    )


def _differences(snapshot: FailbackSnapshot) -> str:
    """How the beginnings of both logs differ, and what is on record of differences that neither beginnings nor ends
    show; "": nothing is known."""
    found = [why for differing in (snapshot.unlike, snapshot.not_there) for _, why in sorted(differing.items())]
    return and_more(found, separator="; ")


def is_caught_up(
    topics: Sequence[ScrubTopic],
    ends: Mapping[TopicPartition, int],
    watermarks: Mapping[TopicPartition, Watermark],
    states: Mapping[str, TopicState],
    live_topics: Mapping[str, TopicInfo],
    live_logs: Mapping[str, LiveLog],
) -> bool:
    """Whether the old primary holds exactly what was mirrored of each topic, and the live cluster has lost nothing of
    that at its logs' ends, and still has all later records. Unknown counts as no.

    Args:
        topics: the topics that would be scrubbed: still the incarnations that were mirrored.
        ends: the old primary's log ends (high watermarks).
        watermarks: of the configured link.
        states: its topic states, by the old primary's names.
        live_topics: of the live cluster, by its names.
        live_logs: its logs, by the old primary's names.
    """

    def partition_is(topic: ScrubTopic, number: int) -> bool:
        tp = TopicPartition(topic.topic, number)
        mark, live = watermarks.get(tp), live_topics.get(topic.live_topic)
        log = live_logs.get(topic.topic, LiveLog())
        start, end = log.starts.get(number), log.ends.get(number)
        if mark is None or mark.epoch != topic.epoch or live is None or start is None or end is None:
            return False
        return (
            ends.get(tp) == mark.source_through
            and mark.source_end <= mark.source_through
            and live.topic_id == states[topic.topic].target_topic_id
            and start <= mark.target_end <= end
        )

    return bool(topics) and all(partition_is(topic, number) for topic in topics for number in range(topic.partitions))
