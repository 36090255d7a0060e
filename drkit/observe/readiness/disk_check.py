"""Whether the target's disks have room for what is still to come from the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.admin.disks import Disk
from drkit.model.topology import TopicPartition
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.status import LinkStatus

NAME = "disks of the target"
_LEAST_SHARE = 0.1
_REMEDY = "Make room on {target}: once a disk is full its broker stops, and with it the mirror"
_MIB = 1 << 20


def disk_check(status: LinkStatus, clusters: Clusters) -> Check:
    """Compare the room on the target with the bytes that only the source has, times the target's replicas.

    Raises:
        Refused: a cluster doesn't show it.
        Unreachable: a cluster doesn't answer.
    """
    link = status.link
    target = clusters.admin(link.id.target, may_be_gone=True)
    there = {TopicPartition(each.target_topic, each.partition) for each in status.partitions}
    replicas = {name: info.replication_factor for name, info in target.topics({tp.topic for tp in there}).items()}
    here: dict[TopicPartition, int] = {}
    if status.source_reachable:
        ours = {TopicPartition(each.topic, each.partition) for each in status.partitions}
        sizes = clusters.admin(link.id.source, may_be_gone=True).log_sizes(ours)
        here = {TopicPartition(link.target_topic(tp.topic), tp.partition): size for tp, size in sizes.items()}
    have = target.log_sizes({tp for tp in there if tp.topic in replicas})
    return judged(link.id.target, target.disks(), to_come(here, have, replicas))


def to_come(
    here: Mapping[TopicPartition, int], there: Mapping[TopicPartition, int], replicas: Mapping[str, int]
) -> int:
    """The bytes that the target will need for what it lacks. Pure.

    Args:
        here: sizes of the source's logs, by the target's names.
        there: sizes of the target's logs.
        replicas: of its topics; one where it lacks the topic.
    """
    return sum(max(0, size - there.get(tp, 0)) * replicas.get(tp.topic, 1) for tp, size in here.items())


def judged(target: str, disks: Sequence[Disk], coming: int) -> Check:
    """The check of what was seen. Pure."""
    shares = {each: each.usable / each.total for each in disks if each.usable is not None and each.total}
    if not shares or len(shares) < len(disks):
        why = f"brokers of {target} don't tell the room on their disks (Kafka before 3.3, or none that works)"
        return Check(NAME, CheckOutcome.UNKNOWN, why, "Watch it by the means of its operators")
    usable = sum(each.usable or 0 for each in disks)
    fullest = min(shares, key=lambda each: shares[each])
    left = f"{(fullest.usable or 0) / _MIB:,.0f} MiB free ({shares[fullest]:.0%}) in {fullest.folder}"
    free = f"broker {fullest.broker} has {left}"
    if coming > usable:
        room = f"{usable / _MIB:,.0f} MiB are free on {target}"
        why = f"about {coming / _MIB:,.0f} MiB are still to come and {room}; {free}"
        return Check(NAME, CheckOutcome.WARN, why, _REMEDY.format(target=target))
    if shares[fullest] < _LEAST_SHARE:
        return Check(NAME, CheckOutcome.WARN, free, _REMEDY.format(target=target))
    return Check(NAME, CheckOutcome.OK, f"the fullest: {free}; about {coming / _MIB:,.0f} MiB are still to come")
