"""Shares a link's partitions between its workers by Kafka's own group membership, on the target cluster.

Each worker is a member of the group `drkit.mirror.<source>-<target>`, subscribed to the link's topics on
the target, with the cooperative protocol: partitions that don't move continue. The group is used only for
membership: every assigned partition is paused, nothing is fetched, nothing committed. It is on the target
because that outlives the source.

A revocation completes only when `released` has returned, so the next owner starts from a settled state. The client's
own thread sends heartbeats; a member that is silent for `SESSION_SECONDS` loses its partitions to the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.config.client_config import client_log, confluent_config
from drkit.model.process import keeping_context
from drkit.model.topology import LinkId, TopicPartition, worker_group
from drkit.state_topic.other_store import SESSION_SECONDS

log = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 1.5
_REFRESH_SECONDS = 5.0
_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 5.0
_JOIN_SECONDS = 30.0
"""How long a change of the subscription waits for the first assignment, and for the one after a loss. librdkafka ends
the process (an assertion in rd_kafka_cgrp_modify_subscription, 2.16) where a cooperative consumer without a member id
changes its subscription while it joins; on a busy broker that takes seconds. One that waits for longer may be
subscribed to topics that are gone: it doesn't join for them."""
_AWAITED = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})  # noqa: SLF001 - librdkafka's own event names begin with an underscore


class Membership:
    """This worker's membership. Made and started by one thread; callbacks come on a thread of its own.

    Args:
        cluster: the target.
        link: the link.
        client_id: identifies this worker in the group (`drkit.state_topic.other_store`); known once it subscribes.
        changed: partitions were assigned (see `assigned`).
        released: these partitions go to another worker: returns when this one has released them.
        lost: these were taken while this worker was silent: somebody else may already have them.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        link: LinkId,
        *,
        client_id: Callable[[], str],
        changed: Callable[[], None],
        released: Callable[[], None],
        lost: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self.trouble: str | None = None
        self._link = link
        self._changed = changed
        self._released = released
        self._lost = lost
        self._client_id = client_id
        self._settings = partial(
            confluent_config,
            cluster,
            group_id=worker_group(link),
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=int(SESSION_SECONDS * 1000),
            heartbeat_interval_ms=int(_HEARTBEAT_SECONDS * 1000),
            topic_metadata_refresh_interval_ms=int(_REFRESH_SECONDS * 1000),
            reconnect_backoff_max_ms=1_000,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            queued_min_messages=1,
            queued_max_messages_kbytes=1,
        )
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._assigned: frozenset[TopicPartition] | None = None
        self._doubted_until = 0.0
        self._joins_until = 0.0  # used only by the thread
        self._closing = threading.Event()
        self._thread = threading.Thread(target=keeping_context(self._live), name="drkit-membership", daemon=True)

    def start(self) -> None:
        """Join as soon as there is something to subscribe to."""
        self._thread.start()

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to the link's current topics on the target."""
        self._wanted = frozenset(topics)

    @property
    def joined(self) -> bool:
        """Whether the group has ever assigned partitions to this worker."""
        return self._assigned is not None

    def assigned(self) -> frozenset[TopicPartition]:
        """This worker's partitions of the target; none while that is in doubt."""
        with self._lock:
            if time.monotonic() < self._doubted_until:
                return frozenset()
            return self._assigned or frozenset()

    def doubt(self) -> None:
        """This process was stopped for a while. Its assignment is known again after the next assignment, or after a
        session without a loss (then the heartbeats after the stop were accepted).
        """
        with self._lock:
            self._doubted_until = time.monotonic() + SESSION_SECONDS

    def close(self) -> None:
        """Leave the group, without a long wait for brokers that are down."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    # -- the thread --------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._wanted:
            if self._closing.wait(_POLL_SECONDS / 2):
                return
        consumer = Consumer(self._settings(client_id=self._client_id()), logger=client_log)
        subscribed: frozenset[str] = frozenset()
        doubted = False
        try:
            while not self._closing.is_set():
                if self._wanted != subscribed and self._wanted and time.monotonic() >= self._joins_until:
                    if not subscribed:
                        self._joins_until = time.monotonic() + _JOIN_SECONDS
                    subscribed = self._wanted
                    consumer.subscribe(
                        sorted(subscribed), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                    )
                message = consumer.poll(_POLL_SECONDS)
                if message is not None and (error := message.error()) is not None:
                    self._take_error(error)
                doubts = time.monotonic() < self._doubted_until
                if doubted and not doubts:
                    self._changed()
                doubted = doubts
        except Exception as error:  # the group is not the data path: a lone worker continues
            log.exception("%s: the membership in group %s ended", self._link, worker_group(self._link))
            self.trouble = str(error)
        finally:
            try:
                consumer.close()
            except (KafkaException, RuntimeError) as error:
                log.debug("%s: leaving the group: %s", self._link, error)

    def _take_error(self, error: KafkaError) -> None:
        if error.code() in _AWAITED:
            return  # a topic that was just created
        if self.trouble is None:
            log.warning("%s: group %s: %s", self._link, worker_group(self._link), error.str())
        self.trouble = f"group {worker_group(self._link)}: {error.str()}"

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._joins_until = 0.0
        # an explicit offset avoids a look-up; a paused partition is never read
        given = [KafkaPartition(each.topic, each.partition, 0) for each in partitions]
        consumer.incremental_assign(given)
        if given:
            consumer.pause(given)
        with self._lock:
            self._assigned = (self._assigned or frozenset()) | _places(partitions)
            self._doubted_until = 0.0
        self.trouble = None
        self._changed()

    def _on_revoke(self, _: Consumer, partitions: list[KafkaPartition]) -> None:
        with self._lock:
            self._assigned = (self._assigned or frozenset()) - _places(partitions)
        if not self._closing.is_set():
            self._released()

    def _on_lost(self, _: Consumer, partitions: list[KafkaPartition]) -> None:
        gone = _places(partitions)
        self._joins_until = time.monotonic() + _JOIN_SECONDS
        with self._lock:
            self._assigned = (self._assigned or frozenset()) - gone
            self._doubted_until = 0.0
        if not self._closing.is_set():
            self._lost(gone)


def _places(partitions: list[KafkaPartition]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, each.partition) for each in partitions)
