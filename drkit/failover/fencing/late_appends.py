"""Makes the target refuse what a mirror that didn't leave in order may still send to it.

A mirror that was killed, stopped (SIGSTOP, a frozen virtual machine) or cut off by the network may have Produce
requests in its own memory, in a socket or in a broker's queue; whenever they arrive, they would land behind the records
of the target's clients. A worker that leaves in order takes its announcement back, once all it sent was answered. Where
one is left on record (`drkit.store.workers.lost_workers`), a marker with a higher epoch of the link's producer id is
appended to each of its partitions. From then on their leaders refuse that producer's former epoch, as Kafka fences
transactional producers (KIP-98). The id is retired first: the next mirror of the link takes another one.

The marker holds no record and isn't part of the copy, which ends below it: `LateAppends.own_ends` says where, in each
of these partitions, as often as it is asked, until a mirror of the link takes another id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drkit.failover.run.cluster_context import ClusterContext
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import ProducerStateAdmin
from drkit.kafka.client.record_probe import LogPosition
from drkit.lag.beyond_watermarks import beyond_watermarks
from drkit.model.clock import now
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.link_notes import producer_lease, retire_producer, retired_producer
from drkit.store.workers import lost_workers

_EPOCH = 1
"""A mirror's own requests have epoch 0."""
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LateAppends:
    """`lost`: the workers that are fenced off. `own_ends`: where the copy ends, by the target's partitions that
    refuse late appends. `open`: those that may still take them, and why."""

    lost: tuple[str, ...] = ()
    own_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    open: Mapping[TopicPartition, str] = field(default_factory=dict)

    def said(self, target: str) -> str:
        """The result in words; "" where every mirror left in order."""
        done = ""
        if self.own_ends:
            which = counted(len(self.own_ends), "partition")
            done = f"; a mirror did not leave in order: {which} of {target} refuse what it still sends"
        if not self.open:
            return done
        why = and_more([f"{tp} ({reason})" for tp, reason in sorted(self.open.items())], separator="; ")
        return (
            f"{done}; UNFENCED: a mirror that did not leave in order may still write to "
            f"{counted(len(self.open), 'partition')} of {target}: {why}. Make sure that its process has ended "
            f"({and_more(list(self.lost))})"
        )


def refuse_late_appends(estate: ClusterContext, link: Link) -> LateAppends:
    """Fence the link's lost workers off its target. The link is sealed, and no mirror is alive.

    Raises:
        Unreachable: the store or the target doesn't answer.
    """
    store = estate.store
    target = estate.admin(link.id.target)
    cluster = target.cluster_id()
    kept = store.lease(producer_lease(link.id, cluster))
    fenced_before = kept is not None and kept.owner == str(retired_producer(store, link.id, cluster))
    lost = tuple(lost_workers(store, link.id, now()))
    marks, states = store.watermarks(link.id), store.topic_states(link.id)
    there = {
        TopicPartition(link.target_topic(tp.topic), tp.partition): tp
        for tp in {*marks, *(tp for state in states.values() for tp in state.tps())}
    }
    if not ((lost or fenced_before) and there):
        return LateAppends()
    if kept is None:
        return LateAppends(lost, open=dict.fromkeys(there, "the store doesn't have the mirror's producer id"))
    producer = int(kept.owner)
    retire_producer(store, link.id, cluster, producer)
    still_open = _raise_epochs(estate, link.id.target, there, producer)
    fenced = {tp: source for tp, source in there.items() if tp not in still_open}
    own_ends = {} if link.shares_target else _below_markers(estate, target, link, fenced, producer)
    return LateAppends(lost, own_ends, still_open)


def _raise_epochs(
    estate: ClusterContext, target: str, tps: Iterable[TopicPartition], producer: int
) -> dict[TopicPartition, str]:
    """Raise the producer's epoch where it isn't raised yet; returns the partitions that didn't take it, and why."""
    config = estate.config.clusters[target]
    with ProducerStateAdmin(target, config, timeout_seconds=estate.timeout_seconds) as producers:
        try:
            known = producers.epochs(tps, producer)
        except (Unreachable, Refused):
            known = {}  # one marker more does no harm
        due = [tp for tp in tps if (known.get(tp) or 0) < _EPOCH]
        try:
            return producers.raise_epoch(due, producer, _EPOCH)
        except AuthenticationError as error:
            return dict.fromkeys(due, error.what)


def _below_markers(
    estate: ClusterContext,
    target: ClusterAdmin,
    link: Link,
    there: Mapping[TopicPartition, TopicPartition],
    producer: int,
) -> dict[TopicPartition, int]:
    """Where the copy ends: at the last marker of this producer. Where that can't be read, at what the mirror
    recorded, or at the end of an empty log."""
    store = estate.store
    marks = store.watermarks(link.id)
    ends = {tp: end for tp, end in target.log_ends(there, partial=True).items() if end > 0}
    found = _markers(target, {tp: end - 1 for tp, end in ends.items()}, producer)
    left = {there[tp]: tp for tp in ends if tp not in found and there[tp] in marks}
    if left:  # somebody wrote behind them already
        others = beyond_watermarks(target, store, link.id, [marks[tp] for tp in left], left, ends).written_from
        found |= _markers(target, {left[tp]: first - 1 for tp, first in others.items()}, producer)
    return {tp: marks[source].target_end for tp, source in there.items() if source in marks} | found


def _markers(target: ClusterAdmin, places: Mapping[TopicPartition, int], producer: int) -> dict[TopicPartition, int]:
    """Those of these offsets at which a marker of the producer is."""
    wanted = {tp: LogPosition(tp, offset) for tp, offset in places.items() if offset >= 0}
    seen = target.probe_records(wanted.values(), seconds=_SECONDS, control=True)
    return {
        tp: place.offset
        for tp, place in wanted.items()
        if (record := seen[place]).offset == place.offset
        and record.producer_id == producer
        and record.timestamp is None  # control batches have none there
    }
