"""Where a copy ends in a log that ends in markers by which a failover fenced a mirror off it.

Such a marker (`drkit.failover.fencing.late_appends`) takes an offset of the target's log, carries a higher epoch of the
link's producer than any request of a mirror, and is no record of the source. Until a mirror goes on behind it, which
the mapping then says, whoever goes by the log's end goes by the end below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import FENCED_EPOCH
from drkit.kafka.client.record_probe import LogPosition, OffsetRange, ProbedRecord
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store
from drkit.store.producers import retired_producers, used_producer

_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LinkProducers:
    """The producer ids of a link's mirrors on a target. `current`: of the next mirror, None: it takes a new one;
    `retired`: of former ones that were fenced off."""

    current: int | None
    retired: frozenset[int]

    @property
    def ids(self) -> frozenset[int]:
        """All of them; empty: none is known."""
        return self.retired if self.current is None else self.retired | {self.current}

    def fenced(self, record: ProbedRecord) -> bool:
        """Whether a record of the target is a fencing marker."""
        return record.producer_id in self.retired and (record.marker_epoch or 0) >= FENCED_EPOCH

    def copied(self, record: ProbedRecord) -> bool:
        """Whether it is a record, or a marker, that a mirror of the link copied."""
        return record.producer_id in self.ids and not self.fenced(record)


def link_producers(store: Store, link: LinkId, cluster_id: str) -> LinkProducers:
    """The producers of a link on a target cluster, from the store."""
    return LinkProducers(used_producer(store, link, cluster_id), frozenset(retired_producers(store, link, cluster_id)))


@dataclass(frozen=True, slots=True)
class EndsBelow:
    """Log ends below fencing markers, of logs that end in some; why that isn't known of others."""

    ends: dict[TopicPartition, int] = field(default_factory=dict)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)


def ends_below_markers(
    target: ClusterAdmin,
    producers: LinkProducers,
    logs: Mapping[TopicPartition, OffsetRange],
    *,
    seconds: float = _SECONDS,
) -> EndsBelow:
    """Look at the ends of these logs, each down to its `begin`.

    Args:
        target: the target cluster.
        producers: of the link.
        logs: by the target's partitions, from what is accounted for up to the log's end.
        seconds: the limit for each round of reads; there are as many as a log has such markers at its end, and one.

    Raises:
        AuthenticationError, Refused, Unreachable: the target doesn't answer.
    """
    found = EndsBelow()
    left = {tp: log.end for tp, log in logs.items() if log.end > log.begin} if producers.retired else {}
    while left:
        places = {tp: LogPosition(tp, end - 1) for tp, end in left.items()}
        seen = target.probe_records(places.values(), seconds=seconds, control=True)
        further = {}
        for tp, place in places.items():
            record = seen[place]
            if record.offset is None and (record.late or record.reason is not None):
                found.ends.pop(tp, None)
                found.unknown[tp] = record.reason or "not read in time"
            elif record.offset == place.offset and producers.fenced(record):
                found.ends[tp] = place.offset
                if place.offset > logs[tp].begin:
                    further[tp] = place.offset
        left = further
    return found
