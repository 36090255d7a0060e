"""Small topics that hold facts: read as a whole, and, if they are drkit's own, created and appended to.

drkit's own topics have one partition, and are never mirrored (their names begin with `__`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import TOPIC_EXISTS, ClusterAdmin
from drkit.kafka.admin.topic_requests import NewTopic
from drkit.kafka.config.client_config import confluent_config
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more

if TYPE_CHECKING:  # it loads asyncio, and most commands read and write no such topic
    from confluent_kafka import KafkaError, Message

APPEND_ONLY = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic that keeps all records."""

_AT_ONCE = 10_000
_POLL_SECONDS = 0.5
_MOST_REPLICAS = 3
_LOG = logging.getLogger("drkit.librdkafka.small_topic")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # the errors have the relevant part
_EOF = -191  # librdkafka's RD_KAFKA_RESP_ERR__PARTITION_EOF
_DENIED = frozenset({29, 31})  # Kafka's TOPIC_AUTHORIZATION_FAILED and CLUSTER_AUTHORIZATION_FAILED


class SmallTopicRecord(NamedTuple):
    """A record of a small topic; `value` None: its key was removed. `at_millis`: when it was written."""

    key: bytes
    value: bytes | None
    at_millis: int


def read_topic(
    alias: str, cluster: ClusterConfig, topic: str, timeout_seconds: float, take: Callable[[SmallTopicRecord], None]
) -> bool:
    """As `read_topics` of one topic; false: there is no such topic."""
    return bool(read_topics(alias, cluster, [topic], timeout_seconds, lambda _, record: take(record)))


def read_topics(
    alias: str,
    cluster: ClusterConfig,
    topics: Collection[str],
    timeout_seconds: float,
    take: Callable[[str, SmallTopicRecord], None],
) -> set[str]:
    """Read every committed record that has a key, up to the topics' present ends; returns those topics that exist.

    The ends are those of ListOffsets: Fetch shows a new leader's high watermark, which is too low until its followers
    have fetched (KIP-207).

    Args:
        alias: the cluster's, for messages.
        cluster: where the topics are.
        topics: their names.
        timeout_seconds: for all of it, but that each request waits so long at most; transient errors are retried.
        take: given the topic of each record, and the record, in the order of its partition.

    Raises:
        Unreachable: an end isn't reached in that time.
        Refused: one may not be seen or read.
        AuthenticationError: the cluster and drkit don't accept each other.
    """
    from confluent_kafka import (  # noqa: PLC0415 - see above
        OFFSET_BEGINNING,
        Consumer,
        KafkaException,
    )
    from confluent_kafka import TopicPartition as ClientPartition  # noqa: PLC0415 - see above

    deadline = Deadline.after(timeout_seconds)
    with ClusterAdmin(alias, cluster, timeout_seconds=timeout_seconds) as admin:
        there = admin.topics(topics)  # by name: brokers leave hidden ones out of a list of all
        parts = {TopicPartition(name, number) for name, topic in there.items() for number in range(topic.partitions)}
        ends = admin.end_offsets(parts, committed=True)
    if gone := parts - ends.keys():
        raise _unreadable(alias, {tp.topic for tp in gone}, "the brokers no longer show it")
    consumer = Consumer(
        confluent_config(
            cluster,
            group_id="drkit.reader",  # the client requires it: no subscription, no commit
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            fetch_wait_max_ms=20,  # the client reports a partition's end after an empty fetch
        ),
        logger=_LOG,
    )
    why = f"not read to its end within {timeout_seconds:g} s"
    unread = set(ends)
    try:
        consumer.assign([ClientPartition(*tp, OFFSET_BEGINNING) for tp in ends])
        while unread and not deadline.passed:
            first = consumer.poll(min(_POLL_SECONDS, deadline.left))  # consume() alone waits all of that time
            for message in [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]:
                error, key, value = message.error(), message.key(), message.value()
                if error is not None:
                    if error.code() in _DENIED:
                        raise Refused(
                            f"topic {message.topic()} on cluster {alias} may not be read: {error.str()}",
                            remedy="Grant drkit's principal Read and Describe on it",
                        )
                    if error.code() == _EOF:
                        tp = TopicPartition(str(message.topic()), message.partition() or 0)
                        unread -= {tp} if (message.offset() or 0) >= ends[tp] else set()  # below: it comes again
                    else:
                        why = error.str()
                elif isinstance(key, bytes):
                    found = SmallTopicRecord(key, value if isinstance(value, bytes) else None, message.timestamp()[1])
                    take(str(message.topic()), found)
    except KafkaException as error:
        raise _unreadable(alias, topics, str(error)) from error
    finally:
        consumer.close()
    if unread:
        raise _unreadable(alias, {tp.topic for tp in unread}, why)
    return set(there)


def _unreadable(alias: str, topics: Iterable[str], why: str) -> Unreachable:
    return Unreachable(
        f"topic {and_more(sorted(topics))} on cluster {alias} can't be read: {why}",
        remedy=f"Check that the brokers of {alias} answer",
    )


def make_topic(admin: ClusterAdmin, topic: str, settings: Mapping[str, str]) -> None:
    """Create a topic of drkit's own unless it exists: one partition, with a replica on each of up to three brokers.

    Raises:
        Refused: the cluster denies it.
        Unreachable: the cluster doesn't answer.
    """
    replicas = min(_MOST_REPLICAS, len(admin.brokers()))
    reason = admin.create_topics([NewTopic(topic, 1, replicas, settings)]).get(topic)
    if reason is not None and reason != TOPIC_EXISTS:
        by_hand = ", ".join(f"{key}={value}" for key, value in settings.items())
        raise Refused(
            f"topic {topic} can't be created on cluster {admin.alias}: {reason}",
            remedy=f"Let drkit's principal create topics that begin with __drkit_ on {admin.alias}, or create it by "
            f"hand: one partition, {by_hand}",
        )


class SmallTopicWriter:
    """A producer for one topic of drkit's own. Used by one thread.

    Args:
        alias: the cluster's.
        cluster: its configuration.
        topic: the topic, which exists.
        timeout_seconds: how long to wait for an acknowledgement.
    """

    def __init__(self, alias: str, cluster: ClusterConfig, topic: str, timeout_seconds: float) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - see above

        self._alias = alias
        self._topic = topic
        self._timeout_seconds = timeout_seconds
        self._producer = Producer(
            confluent_config(
                cluster,
                acks="all",
                enable_idempotence=True,
                linger_ms=5,
                compression_type="lz4",
                message_timeout_ms=int(timeout_seconds * 1000),
            ),
            logger=_LOG,
        )

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Return once all in-sync replicas have all of these. A retried one may be there twice.

        Raises:
            Unreachable: some weren't acknowledged, for a transient reason; written ones stay.
            DrkitError: some were refused.
        """
        failures: list[KafkaError] = []
        for key, value in records:
            self._produce(key, value, failures)
        if self._producer.flush(self._timeout_seconds + 1) or failures:
            self._producer.purge()
            raise self._failed(failures)

    def _produce(self, key: bytes, value: bytes | None, failures: list[KafkaError]) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - see above

        while True:
            try:
                self._producer.produce(
                    self._topic, key=key, value=value, partition=0, on_delivery=partial(_delivered, failures)
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:  # e.g. a message that is too large
                failures.append(error.args[0])
                return
            else:
                return

    def _failed(self, failures: Iterable[KafkaError]) -> DrkitError:
        first = next(iter(failures), None)
        what = f"topic {self._topic} on cluster {self._alias} can't be written"
        if first is not None and first.code() in _DENIED:
            return Refused(f"{what}: {first.str()}", remedy="Grant drkit's principal Write on it")
        why = "no answer in time" if first is None else first.str()
        return Unreachable(f"{what}: {why}", remedy=f"Check that the brokers of {self._alias} answer and have room")

    def close(self) -> None:
        """Drop unacknowledged messages."""
        self._producer.purge()
        self._producer.flush(0.1)


def _delivered(failures: list[KafkaError], error: KafkaError | None, _: Message) -> None:
    if error is not None:
        failures.append(error)
