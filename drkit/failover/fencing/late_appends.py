"""Makes the target refuse what a mirror that didn't leave in order may still send to it.

A mirror that was killed, stopped (SIGSTOP, a frozen virtual machine) or cut off by the network may have Produce
requests in its own memory, in a socket or in a broker's queue; whenever they arrive, they would land behind the records
of the target's clients. A worker that leaves in order takes its announcement back, once all it sent was answered. Where
one is left on record (`drkit.store.workers.lost_workers`), a marker with a higher epoch of the link's producer id is
appended to each of its partitions. From then on their leaders refuse that producer's former epoch, as Kafka fences
transactional producers (KIP-98). The id is retired first: the next mirror of the link takes another one. An id that a
partition still takes is tried again by each failover.

The marker holds no record and isn't part of the copy, which ends below it (`copy_ends`), whoever looks
(`drkit.lag.fence_markers`): so a way back that begins there keeps offsets equal. A mirror that goes on after all, as
the failover was cancelled, puts a mapping row behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drkit.failover.context.cluster_context import ClusterContext
from drkit.kafka.admin.logs.producers import FENCED_EPOCH, EpochsNotRaised, ProducerStateAdmin
from drkit.kafka.client.record_probe import OffsetRange
from drkit.lag.beyond_watermarks import beyond_watermarks
from drkit.lag.fence_markers import ends_below_markers, link_producers
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.store.producers import employ_producer, retire_producer, retired_producers, used_producer
from drkit.store.workers import BEFORE, lost_workers

_TRIES = 3
"""How often the end of a copy is read where it isn't read in time."""


@dataclass(frozen=True, slots=True)
class LateAppends:
    """`lost`: the workers that are fenced off. `own_ends`: where the copy ends, by the target's partitions that refuse
    late appends. `open`: those that may still take them, and why."""

    lost: tuple[str, ...] = ()
    own_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    open: Mapping[TopicPartition, str] = field(default_factory=dict)

    def said(self, target: str) -> str:
        """The result in words; "" where every mirror left in order."""
        done = ""
        if self.own_ends:
            which = counted(len(self.own_ends), "partition")
            ended = (
                "how the last mirror ended isn't known" if BEFORE in self.lost else "a mirror did not leave in order"
            )
            done = f"; {ended}: {which} of {target} refuse what it still sends"
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
    lost = tuple(lost_workers(store, link.id, store.time()))
    there = _partitions(estate, link)
    used, retired = used_producer(store, link.id, cluster), retired_producers(store, link.id, cluster)
    due = [producer for producer, refused in retired.items() if not refused or producer == used]
    if lost and used is not None and used not in retired:
        due.append(used)
    if not there or not (due or lost):
        return LateAppends()
    if not due:
        return LateAppends(lost, open=dict.fromkeys(there, "the store doesn't have the mirror's producer id"))
    still_open: dict[TopicPartition, str] = {}
    for producer in due:
        retire_producer(store, link.id, cluster, producer)
        missed = _raise_epochs(estate, link.id.target, there, producer)
        still_open |= missed.refused | missed.unanswered
        if not (missed.refused or missed.unanswered):
            retire_producer(store, link.id, cluster, producer, refused=True)
        elif producer == used and missed.refused.keys() >= there.keys():
            # so the next mirror's appends follow what it still sends
            employ_producer(store, link.id, cluster, producer)
    ends = _copy_ends(estate, link, there)
    return LateAppends(lost, {tp: ends[tp] for tp in ends.keys() - still_open.keys()}, still_open)


def copy_ends(estate: ClusterContext, link: Link) -> dict[TopicPartition, int]:
    """Where the link's copy ends, by the target's partitions; empty if no mirror was ever fenced off there.

    Raises:
        Unreachable: the store or the target doesn't answer.
    """
    cluster = estate.admin(link.id.target).cluster_id()
    if not retired_producers(estate.store, link.id, cluster):
        return {}
    return _copy_ends(estate, link, _partitions(estate, link))


def _partitions(estate: ClusterContext, link: Link) -> dict[TopicPartition, TopicPartition]:
    """The link's partitions: those of the source by those of the target."""
    marks, states = estate.store.watermarks(link.id), estate.store.topic_states(link.id)
    return {
        TopicPartition(link.target_topic(tp.topic), tp.partition): tp
        for tp in {*marks, *(tp for state in states.values() for tp in state.tps())}
    }


def _raise_epochs(estate: ClusterContext, target: str, tps: Iterable[TopicPartition], producer: int) -> EpochsNotRaised:
    """Raise the producer's epoch where it isn't raised yet."""
    config = estate.config.clusters[target]
    with ProducerStateAdmin(target, config, timeout_seconds=estate.timeout_seconds) as producers:
        try:
            known = producers.epochs(tps, producer)
        except (Unreachable, Refused):
            known = {}  # one marker more takes one offset more
        due = [tp for tp in tps if (known.get(tp) or 0) < FENCED_EPOCH]
        try:
            return producers.raise_epoch(due, producer, FENCED_EPOCH)
        except AuthenticationError as error:
            return EpochsNotRaised({}, dict.fromkeys(due, error.what))


def _copy_ends(
    estate: ClusterContext, link: Link, there: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the copy ends: below fencing markers, and below what others wrote. Where that can't be read, at what the
    mirror recorded. Empty if others write to the target anyway."""
    if link.shares_target:
        return {}
    store, target = estate.store, estate.admin(link.id.target)
    marks = store.watermarks(link.id)
    own = link_producers(store, link.id, target.cluster_id())
    ends = target.log_ends(there, partial=True)
    new = {tp: OffsetRange(0, ends[tp]) for tp, source in there.items() if source not in marks and tp in ends}
    below = ends_below_markers(target, own, new)
    found = {tp: log.end for tp, log in new.items() if tp not in below.unknown} | below.ends
    left = {source: tp for tp, source in there.items() if source in marks and tp in ends}
    for _ in range(_TRIES):
        seen = beyond_watermarks(target, store, link.id, [marks[tp] for tp in left], left, ends)
        found |= {left[tp]: seen.own_ends.get(tp, ends[left[tp]]) for tp in left.keys() - seen.unknown.keys()}
        left = {tp: left[tp] for tp in seen.unknown}
        if not left:
            break
    kept = {tp: marks[source].target_end if source in marks else 0 for tp, source in there.items()}
    return kept | found
