"""Creates topics and deletes records with Kafka's plain admin client, even on a cluster that is slow to answer."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.wait import wait_until

_ANSWER_SECONDS = 15.0
_NO_ANSWER = {KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}


def create_topic(client: Mapping[str, object], new: NewTopic, seconds: float = 90.0) -> None:
    """Create a topic; without a response, another client tries again, and finds or creates it.

    Raises:
        KafkaException: the cluster refuses.
        AssertionError: it doesn't answer for so many seconds.
    """
    asked: list[AdminClient] = []

    def created() -> bool:
        asked.append(AdminClient(dict(client)))
        told = asked[-1].create_topics([new], request_timeout=_ANSWER_SECONDS)[new.topic]
        try:
            told.result(_ANSWER_SECONDS + 5)
        except TimeoutError as error:
            raise AssertionError("no answer") from error
        except KafkaException as error:
            code = error.args[0].code()
            if code in _NO_ANSWER:
                raise AssertionError(str(error)) from error
            if code != KafkaError.TOPIC_ALREADY_EXISTS or len(asked) == 1:
                raise
        return True

    wait_until(created, seconds, f"topic {new.topic}")


_NO_LEADER = {KafkaError._NOENT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION}
"""`_NOENT` is librdkafka's "No leaders found": just after a broker's start partitions have none."""


def has_no_leader_yet(error: KafkaException) -> bool:
    """Whether a request for a partition failed only because its leader isn't known, or moves."""
    return error.args[0].code() in _NO_LEADER or error.args[0].retriable()


def delete_records(admin: AdminClient, topic: str, before: int, partition: int = 0, seconds: float = 60.0) -> None:
    """Remove the records below an offset (DeleteRecords), as soon as the partition has a leader.

    Raises:
        KafkaException: the cluster refuses.
        AssertionError: there is no leader for so many seconds.
    """
    place = TopicPartition(topic, partition, before)

    def deleted() -> bool:
        try:
            admin.delete_records([place])[place].result(20)
        except KafkaException as error:
            if has_no_leader_yet(error):
                raise AssertionError(str(error)) from error
            raise
        return True

    wait_until(deleted, seconds, f"the deletion of records of {topic}:{partition}")
