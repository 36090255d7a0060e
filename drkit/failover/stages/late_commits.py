"""Keeps positions that groups commit on topics of an old primary just before these are deleted.

Writes to the topics are blocked from the last look at them until they are gone, but commits can't be: a coordinator
takes them as long as the topic exists, and forgets them with it. Its log still has them. So before the last look that
log's ends are journaled, and after the deletion, before topics of these names exist again, what was committed since is
read there and carried over like every other committed offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from drkit.failover.failback.carried_offsets import carried
from drkit.failover.failback.failback_plan import ScrubTopic
from drkit.failover.failback.topic_mapping import mappings_of
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.run.state_machine import Facts
from drkit.failover.stages.scrub_topics import mapped_topics, with_gaps_now
from drkit.failover.stages.stage import StageContext
from drkit.kafka.groups.commit_reader import LastCommits, LogPart, last_commits
from drkit.kafka.groups.coordinator import CommittedOffset
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.kafka.protocol.records import Damaged
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more, counted

_GONE_SECONDS = 10.0
_DECIDED_SECONDS = 10.0


def commits_end(context: StageContext, cluster: str, *, committed: bool = True) -> dict[str, int]:
    """The last stable offset of each partition of the coordinators' log, or (`committed=False`) its high watermark;
    empty if there never was a group.

    Raises:
        Unreachable: a partition's leader doesn't answer.
    """
    count = context.estate.groups(cluster).offsets_log().partitions
    parts = [TopicPartition(OFFSETS_TOPIC, number) for number in range(count)]
    ends = context.estate.admin(cluster).end_offsets(parts, committed=committed)
    return {str(tp.partition): end for tp, end in ends.items()}


def keep_late_commits(
    context: StageContext, cluster: str, live: str, topics: Sequence[ScrubTopic]
) -> tuple[Facts, str]:
    """Journal what groups have committed on the deleted topics since `Facts.commits_from`; returns what was done.

    Where the log can't be read for good, the second value says so: nobody knows then whether there was anything.

    Raises:
        Unreachable: the cluster doesn't answer; it can be read later.
    """
    facts = context.facts
    begin = facts.commits_from
    if begin is None:
        return facts, ""
    names = {topic.topic: topic for topic in topics}
    try:
        _wait_until_gone(context, cluster, names)
        found = _since(context, cluster, begin, names)
        if found.undecided:
            context.wait(lambda: not _since(context, cluster, begin, names).undecided, _DECIDED_SECONDS)
            found = _since(context, cluster, begin, names)
    except Unreachable:
        raise
    except (DrkitError, Damaged) as error:
        why = error.what if isinstance(error, DrkitError) else str(error)
        facts = replace(facts, commits_from=None)
        context.establish(facts, context.carried)
        said = f"; positions that groups committed on them within the last moment before aren't known: {why}"
        return facts, said
    known = {
        (each.group, each.target_topic, each.partition): (each.existing, each.metadata) for each in context.carried
    }
    late = [each for each in found.committed if known.get(each[:3]) != (each.offset, each.metadata)]
    facts = replace(facts, commits_from=None)
    context.establish(facts, _with(context, live, late, names))
    said = ""
    if late:
        named = [f"{each.group} on {each.tp} at {each.offset:,}" for each in late]
        said = f"; {counted(len(late), 'position')} committed while they were deleted kept too: {and_more(named)}"
    if found.undecided:
        said += f"; transactions of {and_more(found.undecided)} that commit positions on them are still open: what was "
        said += "committed before counts"
    return facts, said


def _since(context: StageContext, cluster: str, begin: Mapping[str, int], topics: Collection[str]) -> LastCommits:
    """What groups have committed since the log ended there."""
    stable = commits_end(context, cluster)
    ends = commits_end(context, cluster, committed=False)
    parts = {
        int(number): LogPart(begin.get(number, 0), stable.get(number, 0), end)
        for number, end in ends.items()
        if end > begin.get(number, 0)
    }
    there = context.estate.config.clusters[cluster]
    return last_commits(cluster, there, parts, topics, timeout_seconds=context.estate.timeout_seconds)


def _with(
    context: StageContext, live: str, late: Sequence[CommittedOffset], topics: dict[str, ScrubTopic]
) -> tuple[PlannedPosition, ...]:
    """The carried offsets, with these instead of those that the groups had there before."""
    if not late:
        return context.carried
    touched = [topics[name] for name in sorted({each.topic for each in late})]
    mappings = mappings_of(context.estate.store, context.link.id.reversed(), mapped_topics(touched))
    compared = {topic.topic: topic for topic in with_gaps_now(context, live, touched, mappings)}
    again = {each[:3] for each in late}
    others = [each for each in context.carried if (each.group, each.target_topic, each.partition) not in again]
    return (*others, *carried(mappings, late, compared))


def _wait_until_gone(context: StageContext, cluster: str, names: Collection[str]) -> None:
    """A broker that hasn't heard of the deletion yet takes commits; one that doesn't answer takes none."""
    admin = context.estate.admin(cluster)

    def gone() -> bool:
        try:
            return admin.absent_everywhere(names) >= set(names)
        except Unreachable:
            return True

    context.wait(gone, _GONE_SECONDS)
