"""Reading and writing one state topic: all its records, and a batch of new ones, each within a deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from drkit.config.schema import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.topic_requests import NewTopic
from drkit.kafka.config.client_config import confluent_config
from drkit.kafka.config.librdkafka_log import client_log
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.state_topic.records import TOPIC_CONFIG

READ_SECONDS = 60.0
SEND_SECONDS = 10.0
_POLL_SECONDS = 1.0
_MOST_REPLICAS = 3
_POLICY = "cleanup.policy"
_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own event names begin with an underscore
_DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class Written(NamedTuple):
    """A record of the topic; `value` None: its key was removed. `at_millis`: when it was written."""

    key: bytes
    value: bytes | None
    at_millis: int


def exists(admin: ClusterAdmin, topic: str) -> bool:
    """Whether there is such a topic.

    Raises:
        Unreachable: the cluster doesn't answer.
        Refused: it may not be seen.
    """
    return topic_id(admin, topic) is not None


def topic_id(admin: ClusterAdmin, topic: str) -> str | None:
    """Kafka's id of the topic; None: there is no such topic. Raises as `exists`."""
    found = admin.topics([topic]).get(topic)
    return None if found is None else found.topic_id


def keep_compacted(admin: ClusterAdmin, topic: str) -> None:
    """Set right a topic that a broker has created by itself, as it does at a write after somebody deleted the topic.

    Raises:
        Refused: the cluster denies it.
        Unreachable: the cluster doesn't answer.
    """
    try:
        found = admin.topic_configs([topic], keys=[_POLICY]).get(topic, {}).get(_POLICY)
    except Refused:
        return  # its settings may not be seen; drkit creates it as it has to be
    if found != TOPIC_CONFIG[_POLICY]:
        admin.set_topic_configs(topic, TOPIC_CONFIG)


def create(admin: ClusterAdmin, topic: str) -> None:
    """Create it, with as many replicas as there are brokers, three at most.

    Raises:
        Refused: the cluster denies it.
        Unreachable: the cluster doesn't answer.
    """
    replicas = min(_MOST_REPLICAS, len(admin.brokers()))
    failures = admin.create_topics([NewTopic(topic, 1, replicas, TOPIC_CONFIG)])
    reason = failures.get(topic)
    if reason is not None and reason != "TOPIC_ALREADY_EXISTS":
        raise Refused(
            f"topic {topic} can't be created on cluster {admin.alias}: {reason}",
            remedy=f"Let drkit's principal create topics that begin with __drkit_ on {admin.alias}, or create it by "
            "hand: one partition, cleanup.policy=compact",
        )


def read_all(alias: str, cluster: ClusterConfig, topic: str) -> dict[bytes, Written]:
    """The newest record of each key, removed ones included, up to the topic's present end.

    Raises:
        Unreachable: it isn't read to its end within `READ_SECONDS`.
        Refused: it may not be read.
    """
    consumer = Consumer(
        confluent_config(
            cluster,
            group_id="drkit-state",  # a formality of the client: no subscription, no commit
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            fetch_wait_max_ms=20,  # the end of the partition is told after an empty fetch
        ),
        logger=client_log,
    )
    found: dict[bytes, Written] = {}
    deadline = time.monotonic() + READ_SECONDS
    try:
        consumer.assign([KafkaPartition(topic, 0, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            first = consumer.poll(_POLL_SECONDS)
            for message in [] if first is None else [first, *consumer.consume(5000, 0)]:
                if _ends(alias, topic, message):
                    return found
                key = message.key()
                if isinstance(key, bytes) and message.error() is None:
                    value = message.value()
                    kept = value if isinstance(value, bytes) else None
                    found.pop(key, None)
                    found[key] = Written(key, kept, message.timestamp()[1])
    except KafkaException as error:
        raise _unreadable(alias, topic, str(error)) from error
    finally:
        consumer.close()
    raise _unreadable(alias, topic, f"not read to its end within {READ_SECONDS:g} s")


def _ends(alias: str, topic: str, message: Message) -> bool:
    """Whether this is the end of the topic; a passing trouble is waited for."""
    error = message.error()
    if error is None:
        return False
    if error.code() in _DENIED:
        raise Refused(
            f"topic {topic} on cluster {alias} may not be read: {error.str()}",
            remedy="Grant drkit's principal Read and Describe on it",
        )
    return error.code() == _EOF


def _unreadable(alias: str, topic: str, why: str) -> Unreachable:
    return Unreachable(
        f"topic {topic} on cluster {alias} can't be read: {why}", remedy=f"Check that the brokers of {alias} answer"
    )


class StateWriter:
    """A producer for one state topic. Used by one thread.

    Args:
        alias: the cluster's.
        cluster: its configuration.
        topic: the topic, which exists.
    """

    def __init__(self, alias: str, cluster: ClusterConfig, topic: str) -> None:
        self._alias = alias
        self._topic = topic
        self._producer = Producer(
            confluent_config(
                cluster,
                acks="all",
                enable_idempotence=True,
                linger_ms=5,
                compression_type="lz4",
                message_timeout_ms=int(SEND_SECONDS * 1000),
            ),
            logger=client_log,
        )

    def write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Return once all are acknowledged.

        Raises:
            Unreachable: some weren't, for a reason that may pass; what was written stays, and may be repeated.
            DrkitError: some were refused.
        """
        failures: list[KafkaError] = []
        for key, value in records.items():
            self._produce(key, value, failures)
        if self._producer.flush(SEND_SECONDS + 1) or failures:
            self._producer.purge()
            raise self._failed(failures)

    def _produce(self, key: bytes, value: bytes | None, failures: list[KafkaError]) -> None:
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
        """Give up what isn't acknowledged."""
        self._producer.purge()
        self._producer.flush(0.1)


def _delivered(failures: list[KafkaError], error: KafkaError | None, _: Message) -> None:
    if error is not None:
        failures.append(error)
