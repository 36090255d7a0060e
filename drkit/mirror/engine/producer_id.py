"""The producer id of a link, one for ever: it makes each append of the link's mirrors conditional.

A broker takes an append of a producer id only if its sequence number follows the last one it has in
that partition. Every worker of a link writes with the same id and continues with the sequence that the
leader knows, so of two workers that believe they are the one (or of one and its own late request)
only the first gets its batch in; the other's is refused, never doubled.

The id is kept per target cluster (brokers of another cluster never handed it out) in a lease that
doesn't end: the first worker's proposal stands.

A broker forgets a producer whose newest record is stamped long ago. Then any sequence number is taken;
the mirror begins at one that follows from the target offset, so that two workers choose the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.producer_state import ProducerStateAdmin
from drkit.kafka.protocol.record_batch import SEQUENCES, next_sequence
from drkit.model.clock import now
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LeaseStore

_FOR_EVER_SECONDS = 100 * 365 * 86_400.0


class LinkProducer:
    """The producer id of a link, and where its sequences stand. May be shared by threads.

    Args:
        link: the link.
        target: the cluster that is written.
        producers: what that cluster knows of producers.
        store: where the id is kept.
    """

    def __init__(self, link: LinkId, target: ClusterAdmin, producers: ProducerStateAdmin, store: LeaseStore) -> None:
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
                name = f"producer:{self._link}:{self._target.cluster_id()}"
                kept = self._store.lease(name)
                if kept is None:
                    proposed = str(self._producers.new_producer_id())
                    kept = self._store.acquire_lease(name, proposed, _FOR_EVER_SECONDS, now())
                self._id = int(kept.owner)
            return self._id

    def last_sequences(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """As `ProducerStateAdmin.last_sequences`, of this link's producer. To be asked for before the log's end is."""
        return self._producers.last_sequences(targets, self.id())

    @staticmethod
    def next_sequence(last: int | None, target_offset: int) -> int:
        """The sequence number of the next record: after the last one known, else by its target offset."""
        return target_offset % SEQUENCES if last is None else next_sequence(last, 1)
