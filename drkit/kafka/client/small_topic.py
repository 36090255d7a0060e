"""Small topics that hold facts: read as a whole, and, where they are drkit's own, made and appended to.

drkit's own topics have one partition, keep what they hold (no retention by time or size), and are never mirrored
(their names begin with `__`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from drkit.config.schema import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.config.client_config import confluent_config
from drkit.model.deadline import Deadline
from drkit.model.errors import Refused, Unreachable

APPEND_ONLY = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic from which nothing ever goes."""

_AT_ONCE = 10_000
_POLL_SECONDS = 0.5
_REPLICAS = 3
_EXISTS = "TOPIC_ALREADY_EXISTS"
_LOG = logging.getLogger("drkit.librdkafka.small_topic")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # what matters of it is in the errors
_Kept = TypeVar("_Kept")


def read_topic(
    cluster: ClusterConfig, topic: str, timeout_seconds: float, decode: Callable[[bytes, bytes, datetime], _Kept]
) -> list[_Kept] | None:
    """Every committed record of a topic that isn't a tombstone, decoded; None: there is no such topic.

    Args:
        cluster: where it is.
        topic: its name.
        timeout_seconds: of all of it.
        decode: what becomes of a record's key, value and timestamp.

    Raises:
        Unreachable: it can't be read in that time.
        ValueError: as `decode` raises it.
    """
    consumer = Consumer(
        confluent_config(
            cluster,
            group_id="drkit.reader",  # never joined, never committed
            enable_auto_commit=False,
            enable_partition_eof=True,
            isolation_level="read_committed",
            allow_auto_create_topics=False,
        ),
        logger=_LOG,
    )
    deadline = Deadline.after(timeout_seconds)
    kept: list[_Kept] = []
    try:
        known = consumer.list_topics(timeout=timeout_seconds).topics
        if topic not in known:
            return None
        unread = set(known[topic].partitions)
        consumer.assign([ClientPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            if deadline.passed:
                raise Unreachable(f"{topic} could not be read in {timeout_seconds:g} s", remedy="Trying again may work")
            first = consumer.poll(_POLL_SECONDS)  # consume() alone waits all of that time
            for message in [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]:
                error, key, value = message.error(), message.key(), message.value()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                    unread.discard(message.partition())
                elif error is not None:
                    raise KafkaException(error)  # noqa: TRY301 - as the calls beside it do
                elif isinstance(key, bytes) and isinstance(value, bytes):
                    stamp = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
                    kept.append(decode(key, value, stamp))
    except KafkaException as error:
        raise Unreachable(
            f"{topic} can't be read: {error}", remedy="Check that cluster; trying again may work"
        ) from error
    finally:
        consumer.close()
    return kept


class OwnTopic:
    """A topic of drkit's own on one cluster, appended to. Used by one thread.

    Args:
        name: the topic.
        cluster: where it is.
        admin: that cluster's administration, to create the topic.
        settings: of the topic.
    """

    def __init__(self, name: str, cluster: ClusterConfig, admin: ClusterAdmin, settings: Mapping[str, str]) -> None:
        self._name = name
        self._cluster = cluster
        self._admin = admin
        self._settings = settings
        self._producer: Producer | None = None

    def append(self, records: Sequence[tuple[bytes, bytes]], deadline: Deadline) -> None:
        """Append (key, value) pairs; returns once all in-sync replicas have them. One sent again may stand there twice.

        Raises:
            Unreachable: the cluster doesn't answer by the deadline; they may be there or not.
            Refused: the topic can't be made or written.
        """
        if self._producer is None:
            self._make()
            self._producer = Producer(
                confluent_config(
                    self._cluster,
                    acks="all",
                    linger_ms=0,
                    allow_auto_create_topics=False,
                    message_timeout_ms=max(1, int(deadline.left * 1000)),
                ),
                logger=_LOG,
            )
        errors: list[KafkaError] = []

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        try:
            for key, value in records:
                self._producer.produce(self._name, value, key, partition=0, on_delivery=told)
        except (KafkaException, BufferError) as error:
            self.close()
            raise Unreachable(
                f"{self._name} on {self._admin.alias} can't be written: {error}", remedy="Check that cluster"
            ) from error
        left = self._producer.flush(deadline.left)
        if left or errors:
            reason = errors[0].str() if errors else "no acknowledgement in time"
            self.close()
            denied = bool(errors) and errors[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            remedy = f"Grant drkit's principal CREATE, DESCRIBE, WRITE and READ on topic {self._name}"
            what = f"{self._name} on {self._admin.alias} can't be written: {reason}"
            raise Refused(what, remedy=remedy) if denied else Unreachable(what, remedy="Check that cluster")

    def close(self) -> None:
        """Give up the connection."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)
            self._producer = None

    def _make(self) -> None:
        if self._name in self._admin.topics([self._name]):
            return
        try:
            self._admin.create_topic(
                self._name,
                partitions=1,
                replication_factor=min(_REPLICAS, len(self._admin.brokers())),
                config=self._settings,
            )
        except Refused as error:
            if _EXISTS not in error.what:  # somebody else has just made it
                raise
