"""Whether two aliases reach one cluster, where Kafka's cluster ids don't say.

A cluster id tells clusters apart only where each was formatted with one of its own. Container images come
with a fixed one (apache/kafka's and testcontainers' are the same on every machine), and a cluster restored
from a copy of another's disks has that one's. Then two things are looked at: the addresses that the brokers
advertise, and the topics' ids (KIP-516), which are random and one cluster's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drkit.kafka.admin.cluster_admin import ClusterAdmin

_NO_ID = "A" * 22
"""Sixteen zero bytes in Kafka's text form: the broker is older than topic ids."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What identifies the cluster behind an alias. `topics`: ids by name; None from a broker that knows no topic
    ids.
    """

    cluster_id: str
    addresses: frozenset[tuple[str, int]]
    topics: Mapping[str, str | None]

    @classmethod
    def of(cls, admin: ClusterAdmin) -> ClusterIdentity:
        """Look.

        Raises:
            Unreachable: the cluster doesn't answer.
        """
        addresses = frozenset((broker.host, broker.port) for broker in admin.brokers())
        topics = {name: None if info.topic_id == _NO_ID else info.topic_id for name, info in admin.topics().items()}
        return cls(admin.cluster_id(), addresses, topics)


def same_cluster(one: ClusterIdentity, other: ClusterIdentity) -> bool | None:
    """Whether both are one cluster; None: nothing tells them apart yet, nor shows that they are one.

    Where brokers know no topic ids, equal names count as one cluster: refusing is the safe mistake.
    """
    if one.cluster_id != other.cluster_id:
        return False
    if one.addresses & other.addresses:
        return True
    shared = one.topics.keys() & other.topics.keys()
    if any(None in (ids := {one.topics[name], other.topics[name]}) or len(ids) == 1 for name in shared):
        return True
    return False if one.topics and other.topics else None
