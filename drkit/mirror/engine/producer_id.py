"""The producer id of a link, which makes each append of the link's mirrors conditional.

A broker accepts an append of a producer id only if its sequence number follows the last one it has in
that partition. All workers of a link write with the same id and continue with the sequence that the leader
knows. So of two workers that both believe they hold a partition (or of one and its own late request), only
the first appends its batch; the other's is refused, never duplicated.

The id is kept per target cluster in a lease that doesn't end; the first worker's proposal wins. A failover that finds
a lost worker retires it (`drkit.failover.fencing.late_appends`): then the next mirror gets another one.

A broker forgets a producer whose newest record has an old timestamp. Then it accepts any sequence number. The
mirror then begins at one derived from the target offset, so that two workers choose the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import ProducerStateAdmin
from drkit.kafka.client.record_probe import OffsetRange
from drkit.kafka.protocol.record_batch import SEQUENCES, next_sequence
from drkit.lag.fence_markers import EndsBelow, ends_below_markers, link_producers
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store
from drkit.store.producers import drop_producer, retired_producers, use_producer, used_producer
from drkit.store.workers import forget_lost_workers, lost_workers


class LinkProducer:
    """The producer id of a link, and its sequences. Threads may share it.

    Args:
        link: the link.
        target: the target cluster.
        producers: producer states on that cluster.
        store: where the id is kept.
    """

    def __init__(self, link: LinkId, target: ClusterAdmin, producers: ProducerStateAdmin, store: Store) -> None:
        self._link = link
        self._target = target
        self._producers = producers
        self._store = store
        self._lock = threading.Lock()
        self._id: int | None = None

    def id(self) -> int:
        """The producer id.

        Raises:
            Refused: drkit's principal may not write idempotently to the target.
            Unreachable: the target or the store doesn't answer.
        """
        with self._lock:
            if self._id is None:
                self._id = self._of_the_link()
            return self._id

    def last_sequences(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Like `ProducerStateAdmin.last_sequences`, of this link's producer. Call it before reading the log's end."""
        with self._lock:
            self._id = current = self._of_the_link()  # this worker may have slept through a failover and its way back
        return self._producers.last_sequences(targets, current)

    def _of_the_link(self) -> int:
        cluster = self._target.cluster_id()
        used, retired = (
            used_producer(self._store, self._link, cluster),
            retired_producers(self._store, self._link, cluster),
        )
        if used in retired:
            drop_producer(self._store, self._link, cluster)
            if all(retired.values()):  # else the next failover tries again, or says so
                lost = lost_workers(self._store, self._link, self._store.time())
                forget_lost_workers(self._store, self._link, lost)
            used = None
        proposed = self._producers.new_producer_id() if used is None else used
        return use_producer(self._store, self._link, cluster, proposed)

    def owns(self, producer_id: int) -> bool:
        """Whether a mirror of the link uses or used this id on the target.

        Raises:
            Unreachable: the target or the store doesn't answer.
        """
        return producer_id in link_producers(self._store, self._link, self._target.cluster_id()).ids

    def ends_below_markers(self, logs: Mapping[TopicPartition, OffsetRange]) -> EndsBelow:
        """Where the link's copy ends in logs of the target that end in markers of its retired ids
        (`drkit.lag.fence_markers`)."""
        own = link_producers(self._store, self._link, self._target.cluster_id())
        return ends_below_markers(self._target, own, logs)

    @staticmethod
    def next_sequence(last: int | None, target_offset: int) -> int:
        """The sequence number of the next record: after the last known one, else derived from its target offset."""
        return target_offset % SEQUENCES if last is None else next_sequence(last, 1)
