"""What stands in the way of a failback, and what its plan warns of. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drkit.failover.failback.failback_plan import FailbackPlan
from drkit.failover.failback.failback_snapshot import FailbackSnapshot
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.plan.waivers import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.run.machine import Kind
from drkit.model.fence import FenceMethod, GateState
from drkit.model.link_state import Direction
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted


def warnings(sight: FailbackSnapshot, plan: FailbackPlan) -> Iterator[str]:
    """What an operator should know before; nothing of it stands in the way."""
    link = sight.link
    names = {topic.topic for topic in plan.topics}
    others = [
        name for name in sight.topics if link.covers_topic(name) and name not in names and name not in sight.states
    ]
    alone = [name for name in others if link.target_topic(name) not in sight.live_topics]
    if alone:
        yield f"{and_more(alone)} on {link.id.source} were never mirrored and stay as they are"
    if sight.replaced:
        yield (
            f"{link.id.source} is another cluster ({sight.old.cluster_id}) than the one that was failed away from "
            f"({sight.old_cluster_id}), and empty: all is seeded from {link.id.target}; what only the old one held is "
            "not brought back by this"
        )
    missing = [name for name in sight.states if link.covers_topic(name) and name not in sight.topics]
    if missing:
        yield f"{and_more(missing)} are gone from {link.id.source}: they are created anew"
    active = sorted(group for group, count in sight.live_members.items() if count)
    if active:
        yield f"{and_more(active)} read on {link.id.target}: unless they stop first, they read some of it again"
    if sight.fence is not None and not sight.fence.proven and sight.fence.state is not GateState.OPEN:
        yield (
            f"{link.id.source} was to be fenced and isn't shown to be ({sight.fence.detail or 'it did not answer'}): "
            f"drkit fence --link '{link.id}' before its clients find it back"
        )
    if plan.only_here:
        yield (
            f"{counted(plan.only_here, 'offset')} only on {link.id.source}: salvaged, not brought to {link.id.target}; "
            "`drkit salvage --replay-to` can replay what the salvage holds"
        )
    if plan.carried:
        yield (
            f"{plan.carried:,} committed offsets stand on {link.id.source} only (of groups that were left out of the "
            f"failover, or aren't {link.id}'s): they are carried over by the mapping"
        )


def obstacles(sight: FailbackSnapshot, plan: FailbackPlan, alone: Sequence[PlannedPosition]) -> Iterator[Obstacle]:
    """What a failback would be refused for. `alone`: committed offsets that stand on the old primary only."""
    link, old = sight.link, sight.link.id.source
    if sight.kept:
        yield Obstacle(
            f"{link.id.target} was made the primary for good",
            f"{link.id} of the configuration points the way that data flows no more",
            f'Give the link source = "{link.id.target}" and target = "{old}" in the configuration; then groups can be '
            f"moved with drkit failover --to {old}",
        )
        return
    run = None if sight.control is None else sight.control.run
    ways = f"drkit resume {run} takes it to its end; drkit abandon {run} gives it up"
    if sight.run_problem is not None and sight.control is not None and sight.control.direction is Direction.REVERSED:
        yield Obstacle(f"a failback of {link.id} is under way (run {run})", "Two at a time would undo each other", ways)
    elif sight.run_problem is not None:
        yield Obstacle(sight.run_problem, "The failover has to be complete before the way back", ways)
    if sight.replaced and (held := _held(sight)):
        yield Obstacle(
            f"{old} is cluster {sight.old.cluster_id}; what was failed away from is {sight.old_cluster_id}, and "
            f"{and_more(held)} there hold{'s' if len(held) == 1 else ''} records",
            "drkit goes back onto another cluster only where that has nothing of the link: nothing there is deleted",
            f"Mend bootstrap_servers of {old}; or, if it is its replacement, delete these topics there by hand",
        )
    if sight.mirror is not None:
        yield Obstacle(
            f"a mirror works on {link.id}, or on its way back: {sight.mirror}",
            "It must not write while data is turned",
            "Stop it",
        )
    active = sorted(group for group, count in sight.old_members.items() if count)
    if active:
        yield Obstacle(
            f"{and_more(active)} {'is' if len(active) == 1 else 'are'} active on {old}",
            "Their committed offsets there are deleted and set anew, which Kafka takes only while nobody reads",
            f"Stop these consumers on {old}",
        )
    yield from _left_the_link(sight, plan)
    if not sight.replaced:
        yield from _foreign_topics(sight)
    if plan.level:
        yield from _unfenced(sight, plan)
        return
    yield from _gaps(sight, plan)
    yield from _stranded(sight, plan, alone)
    yield from _unfenced(sight, plan)


def _held(sight: FailbackSnapshot) -> list[str]:
    """Topics of the link on the old primary that hold records."""
    return sorted(
        name
        for name, info in sight.topics.items()
        if sight.link.covers_topic(name)
        and any(sight.ends.get(TopicPartition(name, partition)) for partition in range(info.partitions))
    )


def _gaps(sight: FailbackSnapshot, plan: FailbackPlan) -> Iterator[Obstacle]:
    """Topics of which the live cluster lacks what was mirrored: somebody deleted, cut or remade them, or retention."""
    old, live = sight.link.id.source, sight.link.id.target
    gaps = [topic for topic in plan.topics if topic.gap]
    if not gaps:
        return
    named = [f"{topic.live_topic} {topic.gap} ({counted(topic.only_here, 'offset')})" for topic in gaps]
    yield Obstacle(
        f"{live} lacks what only {old} still holds: {and_more(named)}",
        f"A failback makes {old} a copy of {live}: these records would be in the salvage only",
        f"If {live} should have them, keep them (drkit salvage --link '{sight.link.id}' --out DIR), then put them back "
        f"there; if not (retention took them, the topic was deleted on purpose), give {ACCEPT_SALVAGE_ONLY}",
        waived_by=ACCEPT_SALVAGE_ONLY,
    )


def _stranded(sight: FailbackSnapshot, plan: FailbackPlan, alone: Sequence[PlannedPosition]) -> Iterator[Obstacle]:
    """Committed offsets that are deleted with the topics and have no place to be carried to."""
    old, live = sight.link.id.source, sight.link.id.target
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
            f"{len(lost)} committed offsets on {old} have no known place on {live}, e.g. {first.group} on "
            f"{first.target_topic}:{first.partition}: {first.reason}",
            "They are deleted with the topics, and these groups would begin at their auto.offset.reset",
            f"Commit places for them on {live} (kafka-consumer-groups.sh --reset-offsets), or delete their offsets on "
            f"{old}",
        )


def _unfenced(sight: FailbackSnapshot, plan: FailbackPlan) -> Iterator[Obstacle]:
    """Where there is a means, the fence stage shows that it holds, or stops the run before groups move."""
    means, why = sight.live_fence
    if means is not FenceMethod.NONE or plan.kind is Kind.REPROTECT:
        return
    live = sight.link.id.target
    yield Obstacle(
        f"{live} can't be fenced: drkit can't deny its writes ({why})",
        f"UNFENCED: whoever still writes to {live} when groups move back writes what {sight.link.id.source} never gets",
        f"Make sure that nobody writes to {live} once the fence's turn comes, then give {ACCEPT_UNFENCED}",
        waived_by=ACCEPT_UNFENCED,
    )


def _left_the_link(sight: FailbackSnapshot, plan: FailbackPlan) -> Iterator[Obstacle]:
    """Topics that would be scrubbed and then not seeded again."""
    link, old = sight.link, sight.link.id.source
    left = [topic.topic for topic in plan.topics if not link.covers_topic(topic.topic)]
    if left:
        one = len(left) == 1
        yield Obstacle(
            f"{and_more(left)}, mirrored by {link.id}, {'is' if one else 'are'} no longer among its topics",
            f"What came on {link.id.target} since would not be brought back",
            f"Put {'it' if one else 'them'} back into the link's topics until the failback is done, or delete "
            f"{'it' if one else 'them'} on {old}",
        )


def _foreign_topics(sight: FailbackSnapshot) -> Iterator[Obstacle]:
    """Topics of the link on the old primary that hold what the mirror never saw."""
    link, old = sight.link, sight.link.id.source
    for name, info in sorted(sight.topics.items()):
        if not link.covers_topic(name):
            continue
        state = sight.states.get(name)
        tps = [TopicPartition(name, partition) for partition in range(info.partitions)]
        if (
            sight.is_ours(info)
            or link.target_topic(name) not in sight.live_topics
            or not any(sight.ends.get(tp) for tp in tps)
        ):
            continue
        what = "was recreated since it was mirrored" if state is not None else "was never mirrored"
        yield Obstacle(
            f"topic {name} on {old} {what} and holds records",
            "drkit deletes only what the link mirrored, and can't seed a topic that holds something else",
            f"Keep what is needed of it and delete it on {old}, or put it into exclude_topics",
        )
