"""What a fence by access rules doesn't reach: topics of the link that were made after it. Found, and closed too.

A rule names a topic. A link's topics are patterns, and somebody may make one more at any time (brokers do it by
themselves where `auto.create.topics.enable` is on): until a rule names it, whoever may write there can.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkit.failover.fencing.cluster_fence import ClusterFence, gate_record
from drkit.failover.fencing.fence_proof import FenceContext, FenceProof
from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.acls import fence_rules_kind, others_rules_kind, topics_denied
from drkit.model.fence import FenceMethod, GateState
from drkit.model.topology import Link, TopicPartition, is_canary
from drkit.model.wording import counted

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ClosedTopics:
    """Topics that a fence didn't reach, and what came of closing them. `offsets`: what they held then."""

    topics: tuple[str, ...]
    offsets: int
    proof: FenceProof

    def __str__(self) -> str:
        more = f" and {len(self.topics) - _SHOWN} more" if len(self.topics) > _SHOWN else ""
        return (
            f"made after the fence, and closed since: {', '.join(self.topics[:_SHOWN])}{more} "
            f"({counted(self.offsets, 'offset')} there may be nowhere else)"
        )


def made_since(estate: ClusterContext, link: Link, cluster: str) -> tuple[str, ...]:
    """The link's topics on a cluster that its standing fence doesn't name, by their names there; () where no fence by
    rules stands.

    Raises:
        Unreachable: the cluster or the store doesn't answer.
    """
    record = gate_record(estate.store, link.id, cluster)
    if record is None or record.means is not FenceMethod.ACL or record.state is not GateState.CLOSED:
        return ()
    admin = estate.admin(cluster)
    others = estate.store.notes(link.id, others_rules_kind(cluster))
    standing = {rule.key for rule in admin.acls()} & others.keys() if others else ()  # theirs to take away any time
    denied = topics_denied([*estate.store.notes(link.id, fence_rules_kind(cluster)), *standing])
    found = admin.topics()
    return tuple(sorted(n for n in found if link.covers_topic(n) and not is_canary(n) and n not in denied))


def close_gaps(acting: FenceContext, cluster: str) -> ClosedTopics | None:
    """Close what `made_since` finds on the source of the link, and show the whole fence once more; None: it is whole.

    Raises:
        Unreachable: the cluster or the store doesn't answer.
        Refused: a newer run has decided otherwise.
    """
    topics = made_since(acting.estate, acting.link, cluster)
    if not topics:
        return None
    proof = ClusterFence(acting, cluster).close()
    admin = acting.estate.admin(cluster)
    tps = [TopicPartition(name, n) for name, info in admin.topics(topics).items() for n in range(info.partitions)]
    return ClosedTopics(topics, sum(admin.end_offsets(tps, committed=False).values()), proof)
