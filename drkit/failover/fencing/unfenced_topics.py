"""Finds and fences topics of a link that were created after its fence by ACLs.

An ACL names a topic. A link's topics are patterns, and a new topic may match at any time (brokers create topics if
`auto.create.topics.enable` is on). Until an ACL names it, clients can write to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkit.failover.fencing.cluster_fence import ClusterFence, fence_record
from drkit.failover.fencing.fence_proof import FenceContext, FenceProof
from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.runs.fence import FenceMethod, FenceState
from drkit.model.topics.acls import fence_rules_kind, others_rules_kind, topics_denied
from drkit.model.topology import Link, TopicPartition, is_canary
from drkit.model.wording import and_more, counted

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TopicsOutsideFence:
    """Topics that a fence didn't cover, and the proof after closing them. `offsets`: how many they held by then."""

    topics: tuple[str, ...]
    offsets: int
    proof: FenceProof

    def __str__(self) -> str:
        return (
            f"created after the fence, and fenced since: {and_more(self.topics, shown=_SHOWN)} "
            f"({counted(self.offsets, 'offset')} may exist there only)"
        )


def topics_outside_fence(estate: ClusterContext, link: Link, cluster: str) -> tuple[str, ...]:
    """The link's topics on a cluster that its fence doesn't name, by their names there; () if no fence by ACLs is in
    place.

    Raises:
        Unreachable: the cluster or the store doesn't answer.
    """
    record = fence_record(estate.store, link.id, cluster)
    if record is None or record.method is not FenceMethod.ACL or record.state is not FenceState.CLOSED:
        return ()
    admin = estate.admin(cluster)
    others = estate.store.notes(link.id, others_rules_kind(cluster))
    standing = {rule.key for rule in admin.acls()} & others.keys() if others else ()  # their owners may remove them
    denied = topics_denied([*estate.store.notes(link.id, fence_rules_kind(cluster)), *standing])
    found = admin.topics()
    return tuple(sorted(n for n in found if link.covers_topic(n) and not is_canary(n) and n not in denied))


def close_topics_outside(acting: FenceContext, cluster: str) -> TopicsOutsideFence | None:
    """Fence the topics that `topics_outside_fence` finds on the link's source, and prove the fence again; None if there
    are none.

    Raises:
        Unreachable: the cluster or the store doesn't answer.
        Refused: a newer run has decided otherwise.
    """
    topics = topics_outside_fence(acting.estate, acting.link, cluster)
    if not topics:
        return None
    proof = ClusterFence(acting, cluster).close()
    admin = acting.estate.admin(cluster)
    tps = [TopicPartition(name, n) for name, info in admin.topics(topics).items() for n in range(info.partitions)]
    return TopicsOutsideFence(topics, sum(admin.end_offsets(tps, committed=False).values()), proof)
