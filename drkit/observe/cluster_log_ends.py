"""Where the logs of a link's partitions begin and end on both clusters, as of one moment; or why that isn't known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import Clusters
from drkit.lag.problems_now import LogsSeen
from drkit.model.errors import AuthenticationError, DrkitError, NoAuthorizer, Refused, Unreachable, answered
from drkit.model.topics.acls import Acl
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.api import Store
from drkit.store.link_notes import check_source_cluster


@dataclass(frozen=True, slots=True)
class ClusterLogEnds:
    """Start and end offsets of one cluster's partitions, by that cluster's topic names.

    `reason` says why nothing is known; then both mappings are empty. `refused`: the cluster answers, but one side
    refuses the other (`AuthenticationError`) or it isn't the link's cluster (`NotShown`). `ids`: of its topics;
    `cluster_id`: its own. `rules`: its ACLs (empty: none, or it has no authorizer); None: not requested, or not
    readable. `held`: how many offsets are behind open transactions, if there are any and `end` is the last stable
    offset. `silent`: why partitions of a cluster that answers don't.
    """

    start: dict[TopicPartition, int] = field(default_factory=dict)
    end: dict[TopicPartition, int] = field(default_factory=dict)
    reason: str | None = None
    refused: bool = False
    rules: frozenset[Acl] | None = None
    ids: dict[str, str] = field(default_factory=dict)
    held: dict[TopicPartition, int] = field(default_factory=dict)
    silent: dict[TopicPartition, str] = field(default_factory=dict)
    cluster_id: str | None = None

    def unread(self, side: str) -> str | None:
        """Which partitions of a source or target (`side`) don't answer, and why; None: all do, or the whole cluster
        doesn't."""
        if not self.silent:
            return None
        named = and_more([f"{tp}: {why}" for tp, why in sorted(self.silent.items())], separator="; ")
        return f"the {side} does not answer for {counted(len(self.silent), 'partition')} ({named})"

    @property
    def reachable(self) -> bool:
        """Whether the cluster answered."""
        return self.reason is None

    def lists(self, tp: TopicPartition) -> bool:
        """Whether it named the partition, or didn't answer at all. Else its topic was deleted, or a broker was asked
        that doesn't know it."""
        return not self.reachable or tp in self.end or tp in self.silent


@dataclass(frozen=True, slots=True)
class _Partitions:
    """A cluster before the request of its log ends: its connection and its topics."""

    admin: ClusterAdmin
    seen: ClusterLogEnds

    def with_ends(self, *, committed: bool) -> ClusterLogEnds:
        """Read its log ends (`ClusterAdmin.end_offsets`)."""
        there = self.seen.start  # partitions without an answer were waited for once
        silent = dict(self.seen.silent)
        try:
            # high watermarks first: offsets beyond a stable end read later surely belong to open transactions
            high = self.admin.end_offsets(there, committed=False, partial=True) if committed else {}
            ends = self.admin.end_offsets(there, committed=committed, silent=silent)
        except (Unreachable, AuthenticationError) as error:
            return _silent(error)
        held = {tp: high[tp] - end for tp, end in ends.items() if high.get(tp, end) > end}
        return replace(self.seen, end=ends, held=held, silent=silent)


def _partitions_of(
    clusters: Clusters,
    alias: str,
    wanted: Callable[[str], bool],
    check: Callable[[str], None] | None = None,
) -> _Partitions | ClusterLogEnds:
    """The partitions of the wanted topics, and their log starts; or why nothing is known. Partitions without an answer
    are left out (`ClusterLogEnds.silent`).

    `check`: called with the cluster's id, raises `NotShown` if it isn't the link's cluster.
    """
    try:
        admin = clusters.admin(alias, may_be_gone=True)
        cluster_id = admin.cluster_id()
        if check is not None:
            check(cluster_id)
        topics = [info for info in admin.topics().values() if wanted(info.name)]
        there = [TopicPartition(info.name, number) for info in topics for number in range(info.partitions)]
        silent: dict[TopicPartition, str] = {}
        starts = admin.start_offsets(there, silent=silent)
        ids = {info.name: info.topic_id for info in topics}
        return _Partitions(
            admin, ClusterLogEnds(starts, rules=_rules(admin), ids=ids, silent=silent, cluster_id=cluster_id)
        )
    except (Unreachable, AuthenticationError) as error:
        return _silent(error)


def _silent(error: DrkitError) -> ClusterLogEnds:
    return ClusterLogEnds(reason=str(error), refused=answered(error))


def _rules(admin: ClusterAdmin) -> frozenset[Acl] | None:
    try:
        return admin.acls()
    except NoAuthorizer:
        return frozenset()  # it keeps nobody out
    except (Refused, Unreachable):  # no right to read them, or no answer in time
        return None


def both_ends(clusters: Clusters, store: Store, link: Link) -> tuple[ClusterLogEnds, ClusterLogEnds]:
    """The log ends of both clusters as of one moment; everything else is read before, from both concurrently: a dead
    cluster costs one timeout, not two.

    The source's ends are read right after the target's: records on the target that the source lacks are then another
    writer's, and the apparent lag exceeds the real one only by the records written in between.
    """

    def on_target(topic: str) -> bool:
        return link.source_topic(topic) is not None

    check = partial(check_source_cluster, store, link.id)
    with ThreadPoolExecutor(max_workers=2) as pool:
        asked = [
            pool.submit(_partitions_of, clusters, link.id.source, link.covers_topic, check),
            pool.submit(_partitions_of, clusters, link.id.target, on_target),
        ]
        source, target = (each.result() for each in asked)
    if isinstance(target, _Partitions):
        target = target.with_ends(committed=False)  # only the mirror writes there, and its records are acknowledged
    if isinstance(source, _Partitions):
        source = source.with_ends(committed=link.committed)
    return source, target


def logs_seen(source: ClusterLogEnds, target: ClusterLogEnds) -> LogsSeen:
    """A link's logs on both clusters, for `problems_now`."""
    there, here = (each.ids if each.reachable else None for each in (source, target))
    return LogsSeen(source.start, source.end, target.start, target.end, there, here, target.cluster_id)


def logs_by_source(
    link: Link, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Log starts and ends of the link's target, by the source's names of its partitions."""
    named = ((link.source_topic(tp.topic), tp) for tp in starts if tp in ends)
    return {TopicPartition(t, tp.partition): (starts[tp], ends[tp]) for t, tp in named if t is not None}


def silent_by_source(link: Link, silent: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """Why partitions of the link's target don't answer, by the source's names of them."""
    named = ((link.source_topic(tp.topic), tp.partition, why) for tp, why in silent.items())
    return {TopicPartition(topic, number): why for topic, number, why in named if topic is not None}
