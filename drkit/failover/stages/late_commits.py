"""Keeps positions that groups commit on topics of an old primary just before these are deleted.

Writes to the topics are blocked from the last look at them until they are gone, but commits can't be: a coordinator
takes them as long as the topic exists, and forgets them with it. Its log still has them. So before the last look that
log's ends are journaled, and after the deletion, before topics of these names exist again, what was committed since is
read there and carried over like every other committed offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Facts
from drkit.failover.failback.carried_offsets import carried, mappings_of
from drkit.failover.failback.failback_snapshot import mapped_topics, with_gaps_now
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.plan.shared_preconditions import rows_in_doubt
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.stages.stage import StageContext
from drkit.kafka.groups.commit_reader import LastCommits, LogPart, last_commits
from drkit.kafka.groups.coordinator import CommittedOffset
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.kafka.protocol.records import Damaged
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more, counted

_GONE_SECONDS = 10.0
_DECIDED_SECONDS = 10.0

Wait = Callable[[Callable[[], bool], float], bool]
"""Waits until something is true, for at most so many seconds; returns whether it came true."""


def commits_end(estate: ClusterContext, cluster: str, *, committed: bool = True) -> dict[str, int]:
    """The last stable offset of each partition of the coordinators' log, or (`committed=False`) its high watermark;
    empty if there never was a group.

    Raises:
        Unreachable: a partition's leader doesn't answer.
    """
    count = estate.groups(cluster).offsets_log().partitions
    parts = [TopicPartition(OFFSETS_TOPIC, number) for number in range(count)]
    ends = estate.admin(cluster).end_offsets(parts, committed=committed)
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
    if facts.commits_from is None:
        return facts, ""
    gone = GoneTopics(context.estate, context.link.id.reversed(), cluster, live, topics)
    try:
        carry, said = with_late_commits(gone, facts.commits_from, context.carried, context.wait)
    except Unreachable:
        raise
    except DrkitError as error:
        carry = context.carried
        said = f"; positions that groups committed on them within the last moment before aren't known: {error.what}"
    facts = replace(facts, commits_from=None)
    context.establish(facts, carry)
    return facts, said


@dataclass(frozen=True, slots=True)
class GoneTopics:
    """Topics that a scrub has deleted on a cluster. `link`: the configured one."""

    estate: ClusterContext
    link: LinkId
    cluster: str
    live: str
    topics: Sequence[ScrubTopic]


def with_late_commits(
    gone: GoneTopics, begin: Mapping[str, int], known: tuple[PlannedPosition, ...], wait: Wait
) -> tuple[tuple[PlannedPosition, ...], str]:
    """The carried offsets `known` with what groups have committed since the coordinators' log ended at `begin`, and a
    clause about it.

    Raises:
        Unreachable: the cluster doesn't answer; it can be read later.
        DrkitError: the log can't be read.
    """
    names = {topic.topic: topic for topic in gone.topics}
    try:
        _wait_until_gone(gone, names, wait)
        found = _since(gone, begin, names)
        if found.undecided:
            wait(lambda: not _since(gone, begin, names).undecided, _DECIDED_SECONDS)
            found = _since(gone, begin, names)
    except Damaged as error:
        raise DrkitError(str(error)) from error
    there = {(each.group, each.target_topic, each.partition): (each.existing, each.metadata) for each in known}
    late = [each for each in found.committed if there.get(each[:3]) != (each.offset, each.metadata)]
    said = ""
    if late:
        named = [f"{each.group} on {each.tp} at {each.offset:,}" for each in late]
        said = f"; {counted(len(late), 'position')} committed while they were deleted kept too: {and_more(named)}"
    if found.undecided:
        said += f"; transactions of {and_more(found.undecided)} that commit positions on them are still open: what was "
        said += "committed before counts"
    return _with(gone, late, names, known), said


def _since(gone: GoneTopics, begin: Mapping[str, int], topics: Collection[str]) -> LastCommits:
    """What groups have committed since the log ended there."""
    stable = commits_end(gone.estate, gone.cluster)
    ends = commits_end(gone.estate, gone.cluster, committed=False)
    parts = {
        int(number): LogPart(begin.get(number, 0), stable.get(number, 0), end)
        for number, end in ends.items()
        if end > begin.get(number, 0)
    }
    there = gone.estate.config.clusters[gone.cluster]
    return last_commits(gone.cluster, there, parts, topics, timeout_seconds=gone.estate.timeout_seconds)


def _with(
    gone: GoneTopics,
    late: Sequence[CommittedOffset],
    topics: Mapping[str, ScrubTopic],
    known: tuple[PlannedPosition, ...],
) -> tuple[PlannedPosition, ...]:
    """The carried offsets, with these instead of those that the groups had there before."""
    if not late:
        return known
    touched = [topics[name] for name in sorted({each.topic for each in late})]
    link = gone.estate.link(gone.link)
    in_doubt = rows_in_doubt(gone.estate, link)
    mappings = mappings_of(gone.estate.store, gone.link, mapped_topics(touched), in_doubt)
    compared = {topic.topic: topic for topic in with_gaps_now(gone.estate, gone.live, touched, mappings)}
    again = {each[:3] for each in late}
    others = [each for each in known if (each.group, each.target_topic, each.partition) not in again]
    return (*others, *carried(mappings, late, compared))


def _wait_until_gone(gone: GoneTopics, names: Collection[str], wait: Wait) -> None:
    """A broker that hasn't heard of the deletion yet takes commits; one that doesn't answer takes none."""
    admin = gone.estate.admin(gone.cluster)

    def everywhere() -> bool:
        try:
            return admin.absent_everywhere(names) >= set(names)
        except Unreachable:
            return True

    wait(everywhere, _GONE_SECONDS)
