"""What stands in the way of a failback, and what its plan warns of. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from drkit.failover.failback_plan import FailbackPlan
from drkit.failover.failback_sight import Sight, scrub_topics
from drkit.failover.plan import Obstacle
from drkit.model.gate import GateState
from drkit.model.links import Direction
from drkit.model.text import and_more
from drkit.model.topology import TopicPartition


def warnings(sight: Sight, plan: FailbackPlan) -> Iterator[str]:
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
            f"{plan.only_here:,} offsets exist only on {link.id.source}: they are salvaged, not brought to "
            f"{link.id.target}; `drkit salvage --replay-to` can replay them"
        )


def obstacles(sight: Sight) -> Iterator[Obstacle]:
    """What a failback would be refused for."""
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
    yield from _left_the_link(sight)
    if not sight.replaced:
        yield from _foreign_topics(sight)


def _held(sight: Sight) -> list[str]:
    """Topics of the link on the old primary that hold records."""
    return sorted(
        name
        for name, info in sight.topics.items()
        if sight.link.covers_topic(name)
        and any(sight.ends.get(TopicPartition(name, partition)) for partition in range(info.partitions))
    )


def _left_the_link(sight: Sight) -> Iterator[Obstacle]:
    """Topics that would be scrubbed and then not seeded again."""
    link, old = sight.link, sight.link.id.source
    left = [topic.topic for topic in scrub_topics(sight) if not link.covers_topic(topic.topic)]
    if left:
        one = len(left) == 1
        yield Obstacle(
            f"{and_more(left)}, mirrored by {link.id}, {'is' if one else 'are'} no longer among its topics",
            f"What came on {link.id.target} since would not be brought back",
            f"Put {'it' if one else 'them'} back into the link's topics until the failback is done, or delete "
            f"{'it' if one else 'them'} on {old}",
        )


def _foreign_topics(sight: Sight) -> Iterator[Obstacle]:
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
