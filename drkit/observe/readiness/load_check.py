"""How long the target's disks last at the rate at which the link mirrors now.

A broker has at most one replica of each partition, so no disk fills faster than the whole link writes: the disk with
the least room lasts at least that room divided by the link's bytes per second, however the replicas are placed. Other
links and programs that write there aren't counted.

Retention removes a record at the latest `retention.ms` after its segment's last one, and a segment is rolled at the
latest after `segment.ms` (records that are stamped in the future stay longer). Where that comes sooner for every topic
than the disk would be full, the link alone never fills it. Removal by size isn't counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from drkit.kafka.admin.cluster_description import Disk
from drkit.kafka.admin.clusters import Clusters
from drkit.model.topics.removing import CLEANUP
from drkit.model.wording import and_more
from drkit.observe.drill_history import age_in_words
from drkit.observe.link_status import LinkStatus
from drkit.observe.readiness.check import Check, CheckOutcome

LOAD = "load of the target"
LEAST_SECONDS = 3 * 86_400.0
"""Disks that may be full within a long weekend are a warning."""
_CAUGHT_UP_SECONDS = 60.0
"""A link that is further behind mirrors at the rate of its backlog, which says nothing of the source's."""
_TIME, _ROLL = "retention.ms", "segment.ms"
_MIB = 1 << 20
_STORED = "Start drkit mirror: it measures the rate"


def load_check(status: LinkStatus, clusters: Clusters) -> Check:
    """Take the rate of the mirror's workers, and the room on the target's disks.

    Raises:
        Refused: the target doesn't show its disks.
        Unreachable: it doesn't answer.
    """
    alias = status.link.id.target
    rate, why = mirrored_rate(status)
    if rate is None:
        return Check(LOAD, CheckOutcome.UNKNOWN, f"how long {alias}'s disks last isn't known: {why}", _STORED)
    target = clusters.admin(alias, may_be_gone=True)
    topics = {each.target_topic for each in status.partitions}

    def settings() -> Mapping[str, Mapping[str, str]]:
        return target.topic_configs(topics, keys=(CLEANUP, _TIME, _ROLL), denied=set())

    return judged_load(alias, rate, target.disks(), lambda: not_removed_within(topics, settings()))


def mirrored_rate(status: LinkStatus) -> tuple[float | None, str]:
    """Bytes per second that the link's workers mirror; None: that isn't the rate of the source, or isn't known, and the
    reason. Pure."""
    measured = {each.worker: each.bytes_per_second for each in status.statistics}
    unmeasured = sorted({each.owner for each in status.workers} - measured.keys())
    behind = status.recovery_point.seconds
    if not measured:
        return None, "no mirror has measured its rate"
    if unmeasured:
        return None, f"no rate is known of {and_more(unmeasured)}"
    if behind is None or behind > _CAUGHT_UP_SECONDS:
        by = "by how long isn't known" if behind is None else f"by {age_in_words(behind)}"
        return None, f"the link is behind ({by}), so its rate isn't that of {status.link.id.source}"
    return sum(measured.values()), ""


def not_removed_within(
    topics: Sequence[str] | set[str], settings: Mapping[str, Mapping[str, str]]
) -> tuple[float | None, list[str]]:
    """After how many seconds retention by time has removed a record of any of these topics; None: it never removes some
    (compaction, no limit), or may not be read, and these topics. Pure."""
    kept: dict[str, float] = {}
    for topic in topics:
        told = settings.get(topic, {})
        limit, roll = int(told.get(_TIME, -1)), int(told.get(_ROLL, -1))
        if "delete" in told.get(CLEANUP, "") and limit >= 0 and roll >= 0:
            kept[topic] = (limit + roll) / 1000
    endless = sorted(set(topics) - kept.keys())
    return (None if endless else max(kept.values(), default=None)), endless


def judged_load(
    target: str, rate: float, disks: Sequence[Disk], removed: Callable[[], tuple[float | None, list[str]]]
) -> Check:
    """The check of what was seen. Pure.

    Args:
        target: the cluster.
        rate: bytes per second.
        disks: its brokers'.
        removed: as `not_removed_within`, of the link's topics; asked where the disks don't last.
    """
    known = [(each.usable, each) for each in disks if each.usable is not None]
    if not known or len(known) < len(disks):
        why = f"brokers of {target} don't tell the room on their disks (Kafka before 3.3, or none that works)"
        return Check(LOAD, CheckOutcome.UNKNOWN, why, "Watch it by the means of its operators")
    room, least = min(known, key=lambda each: each[0])
    now = f"at the {rate / _MIB:,.2f} MiB/s that the link mirrors now"
    if rate <= 0:
        return Check(LOAD, CheckOutcome.OK, f"the link mirrors nothing now, so it doesn't fill the disks of {target}")
    lasts = room / rate
    why = f"broker {least.broker} has room for at least {age_in_words(lasts)} {now}, of this link alone"
    if lasts >= LEAST_SECONDS:
        return Check(LOAD, CheckOutcome.OK, why)
    seconds, endless = removed()
    if seconds is not None and seconds <= lasts:
        return Check(LOAD, CheckOutcome.OK, f"{why}; retention removes it within {age_in_words(seconds)}")
    keeps = (
        f"retention by time removes nothing of {and_more(endless)}"
        if endless
        else f"retention removes it only within {age_in_words(seconds or 0)}"
    )
    remedy = (
        f"Make room on {target}, or shorten retention.ms of its topics on the source, before they are full: a broker "
        "whose disk is full stops, and with it the mirror"
    )
    return Check(LOAD, CheckOutcome.WARN, f"{why}, if nothing else writes there; {keeps}", remedy)
