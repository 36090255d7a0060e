"""Whether what isn't mirrored yet will reach the target: the source's retention, and room on the target's disks; and
how many brokers the target has to carry the source's clients.

A limit counts as used up by what isn't mirrored: by the age of its oldest records against `retention.ms`, by its bytes
against `retention.bytes`. Half of a limit is a warning: what is behind by half of it may need the other half to come.
A compacted topic drops its tombstones `delete.retention.ms` after they were cleaned: a mirror that is behind for longer
may never see that a key was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.cluster_description import Disk
from drkit.kafka.admin.clusters import Clusters
from drkit.model.clock import to_millis
from drkit.model.errors import NotShown, Refused
from drkit.model.topics.removing import CLEANUP
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.observe.drill_history import age_in_words
from drkit.observe.link_status import LinkStatus, PartitionStatus
from drkit.observe.readiness.check import Check, CheckOutcome, asked_again

DISKS = "disks of the target"
BROKERS = "brokers of the target"
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
    silent = status.silence(link.id.source)
    if silent is None:
        ours = {TopicPartition(each.topic, each.partition) for each in status.partitions}
        sizes = clusters.admin(link.id.source, may_be_gone=True).log_sizes(ours)
        here = {TopicPartition(link.target_topic(tp.topic), tp.partition): size for tp, size in sizes.items()}
    have = target.log_sizes({tp for tp in there if tp.topic in replicas})
    found = judged_disks(link.id.target, target.disks(), None if silent else to_come(here, have, replicas))
    if silent is None or found.outcome is not CheckOutcome.OK:
        return found
    why = f"{found.reason}; how much is still to come isn't known: {silent}"
    return Check(DISKS, CheckOutcome.UNKNOWN, why, asked_again(link.id.source))


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


def judged_disks(target: str, disks: Sequence[Disk], coming: int | None) -> Check:
    """The check of what was seen. Pure. `coming`: bytes that the source still has to send; None: not known."""
    shares = {each: each.usable / each.total for each in disks if each.usable is not None and each.total}
    if not shares or len(shares) < len(disks):
        why = f"brokers of {target} don't tell the room on their disks (Kafka before 3.3, or none that works)"
        return Check(DISKS, CheckOutcome.UNKNOWN, why, "Watch it by the means of its operators")
    usable = sum(each.usable or 0 for each in disks)
    fullest = min(shares, key=lambda each: shares[each])
    left = f"{(fullest.usable or 0) / _MIB:,.0f} MiB free ({shares[fullest]:.0%}) in {fullest.folder}"
    free = f"broker {fullest.broker} has {left}"
    if coming is not None and coming > usable:
        room = f"{usable / _MIB:,.0f} MiB are free on {target}"
        why = f"about {coming / _MIB:,.0f} MiB are still to come and {room}; {free}"
        return Check(DISKS, CheckOutcome.WARN, why, _REMEDY.format(target=target))
    if shares[fullest] < _LEAST_SHARE:
        return Check(DISKS, CheckOutcome.WARN, free, _REMEDY.format(target=target))
    to_send = "" if coming is None else f"; about {coming / _MIB:,.0f} MiB are still to come"
    return Check(DISKS, CheckOutcome.OK, f"the fullest: {free}{to_send}")


def brokers_check(link: LinkId, clusters: Clusters) -> Check:
    """Compare how many brokers of both clusters live.

    Raises:
        Unreachable: a cluster doesn't answer.
    """
    here, there = (len(clusters.admin(alias, may_be_gone=True).brokers()) for alias in (link.source, link.target))
    return judged_brokers(link, here, there)


def judged_brokers(link: LinkId, here: int, there: int) -> Check:
    """The check of what was seen. Pure."""
    why = f"{link.target} has {counted(there, 'broker')}, {link.source} {here}"
    if there >= here:
        return Check(BROKERS, CheckOutcome.OK, why)
    return Check(
        BROKERS,
        CheckOutcome.WARN,
        f"{why}: after a failover each carries {here / max(1, there):.1f} times as much",
        f"Bring up, or add, brokers of {link.target}; else know which clients have to wait after a failover",
    )


RETENTION = "retention on the source"
_TIME, _BYTES, _TOMBSTONES = "retention.ms", "retention.bytes", "delete.retention.ms"
_HALF = 0.5
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What a topic's retention keeps, and for how long a compacted topic keeps tombstones; None: no limit."""

    milliseconds: int | None = None
    bytes: int | None = None
    tombstones: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Limits:
        """Those of a topic's effective settings."""
        policy = settings.get(CLEANUP, "delete")
        found = (
            (int(settings.get(name, -1)) if does in policy else -1)
            for name, does in ((_TIME, "delete"), (_BYTES, "delete"), (_TOMBSTONES, "compact"))
        )
        return cls(*(limit if limit >= 0 else None for limit in found))


@dataclass(frozen=True, slots=True)
class Unmirrored:
    """What of a source partition isn't mirrored yet.

    Args:
        tp: the partition.
        limits: its topic's.
        seconds: for how long it has been behind, as far as is known.
        older_than_half, older_than_limit: whether some of it, and all that is before it, is stamped longer ago than
            half of the time limit, or than all of it. A later stamp before it keeps their segment.
        bytes: about how large it is; None: not known.
    """

    tp: TopicPartition
    limits: Limits
    seconds: float | None = None
    older_than_half: bool = False
    older_than_limit: bool = False
    bytes: float | None = None

    def used(self) -> tuple[float, str]:
        """The share of a limit that it has used up, at least, and that limit; the greater share of both."""
        shares = [(0.0, "")]
        if (limit := self.limits.milliseconds) is not None:
            stamped = 1.0 if self.older_than_limit else _HALF if self.older_than_half else 0.0
            behind = (self.seconds or 0.0) * 1000 / max(1, limit)
            shares.append((max(stamped, behind), f"{_TIME} is {age_in_words(limit / 1000)}"))
        if (limit := self.limits.tombstones) is not None:
            behind = (self.seconds or 0.0) * 1000 / max(1, limit)
            shares.append((behind, f"tombstones: {_TOMBSTONES} is {age_in_words(limit / 1000)}"))
        if (size := self.limits.bytes) is not None and self.bytes is not None:
            shares.append((self.bytes / max(1, size), f"{_BYTES} is {size:,}"))
        return max(shares)


def retention_check(status: LinkStatus, clusters: Clusters, at: datetime) -> Check:
    """Look at the partitions that are behind: their topics' settings, two lookups of offsets by time, and, where a
    topic's size is limited, sizes of logs; each for all of them together.

    `at`: now. Retention goes by the brokers' clocks, which may differ a little.

    Raises:
        Unreachable: the source doesn't answer.
    """
    seen = [each for each in status.partitions if (each.source_end or 0) > (each.source_start or 0)]
    unknown = {_tp(each): "how far it is mirrored isn't known" for each in seen if each.mirrored_through is None}
    behind = {_tp(each): each for each in seen if _reached(each) < (each.source_end or 0) and _tp(each) not in unknown}
    source = clusters.admin(status.link.id.source, may_be_gone=True)
    hidden: set[str] = set()
    keys = (CLEANUP, _TIME, _BYTES, _TOMBSTONES)
    settings = source.topic_configs({tp.topic for tp in behind}, keys=keys, denied=hidden)
    unknown |= {tp: "drkit may not see its settings" for tp in behind if tp.topic not in settings}
    limits = {tp: Limits.of(settings[tp.topic]) for tp in behind if tp.topic in settings}
    half, whole = (_first_since(source, limits, to_millis(at), share) for share in (_HALF, 1.0))
    sized = [tp for tp, each in limits.items() if each.bytes is not None]
    try:
        sizes = source.log_sizes(sized) if sized else {}
    except (Refused, NotShown):
        sizes = {}
        unknown |= dict.fromkeys(sized, "drkit may not see its size")
    found = [
        Unmirrored(
            tp,
            each,
            behind[tp].lag_seconds,
            older_than_half=_older(behind[tp], half, tp),
            older_than_limit=_older(behind[tp], whole, tp),
            bytes=_bytes(behind[tp], sizes.get(tp)),
        )
        for tp, each in limits.items()
    ]
    forecasted = forecast(status.link.id.source, found, unknown)
    silent = status.source_unread  # these partitions are as last seen
    if silent is None or forecasted.outcome is not CheckOutcome.OK:
        return forecasted
    return Check(RETENTION, CheckOutcome.UNKNOWN, silent, asked_again(status.link.id.source))


def forecast(source: str, behind: Sequence[Unmirrored], unknown: Mapping[TopicPartition, str]) -> Check:
    """The check of what was seen. Pure.

    Args:
        source: the source cluster.
        behind: its partitions that aren't mirrored to their end.
        unknown: those of which that can't be told, each with the reason.
    """
    used = sorted(((*each.used(), each.tp) for each in behind), key=lambda one: (-one[0], one[2]))
    parts = [
        f"{what}: {and_more([f'{tp} ({limit})' for _, limit, tp in these], shown=_SHOWN)}"
        for what, these in (
            ("it may remove at any time what isn't mirrored yet", [one for one in used if one[0] >= 1]),
            ("what isn't mirrored yet has used up half of its time or size", [o for o in used if _HALF <= o[0] < 1]),
        )
        if these
    ]
    named = [f"{tp} ({why})" for tp, why in sorted(unknown.items())]
    untold = f"not known of {and_more(named, shown=_SHOWN)}" if unknown else ""
    if parts:
        remedy = (
            f"Until the mirror has caught up, raise what is named of these topics on {source}: kafka-configs.sh "
            "--alter --entity-type topics --entity-name TOPIC --add-config …; `drkit status` shows how far it is"
        )
        return Check(RETENTION, CheckOutcome.WARN, "; ".join(filter(None, (*parts, untold))), remedy)
    if untold:
        return Check(
            RETENTION, CheckOutcome.UNKNOWN, untold, "Start drkit mirror; drkit acls --command doctor prints the ACLs"
        )
    if not behind:
        return Check(RETENTION, CheckOutcome.OK, f"{source} holds nothing that isn't mirrored")
    why = f"{counted(len(behind), 'partition')} not mirrored to the end, with less than half of their limits used up"
    return Check(RETENTION, CheckOutcome.OK, why)


def _first_since(
    source: ClusterAdmin, limits: Mapping[TopicPartition, Limits], at: int, share: float
) -> dict[TopicPartition, int | None]:
    """The first offset stamped within that share of `retention.ms` (None: there is none), where there is a limit."""
    limited = {tp: each.milliseconds for tp, each in limits.items() if each.milliseconds is not None}
    return source.offsets_for_times({tp: max(0, at - int(limit * share)) for tp, limit in limited.items()})


def _reached(each: PartitionStatus) -> int:
    return each.mirrored_through or 0


def _older(each: PartitionStatus, first: Mapping[TopicPartition, int | None], tp: TopicPartition) -> bool:
    """Whether some of what isn't mirrored is before the first offset stamped within a time."""
    if tp not in first:
        return False
    since = first[tp]
    return since is None or _reached(each) < since


def _bytes(each: PartitionStatus, size: int | None) -> float | None:
    """About how many bytes of a log aren't mirrored, by its offsets."""
    start, end, through = each.source_start, each.source_end, each.mirrored_through
    if size is None or start is None or end is None or through is None or end <= start:
        return None
    return size * min(1.0, (end - through) / (end - start))


def _tp(each: PartitionStatus) -> TopicPartition:
    return TopicPartition(each.topic, each.partition)
