"""What tests ask of a broker that has just started is asked again until its partitions have leaders."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.clusters.topics import delete_records


class Admin:
    """An admin client whose requests fail with these errors, then succeed."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked: list[tuple[str, int, int]] = []

    def delete_records(self, places: list[TopicPartition]) -> dict[TopicPartition, Future[Any]]:
        (place,) = places
        self.asked.append((place.topic, place.partition, place.offset))
        answer: Future[Any] = Future()
        if self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            answer.set_result(None)
        return {place: answer}


def test_a_deletion_waits_for_the_partitions_leader() -> None:
    admin = Admin(KafkaError._NOENT, KafkaError.NOT_LEADER_FOR_PARTITION)
    delete_records(admin, "flights", 5, 1)
    assert admin.asked == [("flights", 1, 5)] * 3


def test_what_the_cluster_refuses_is_asked_once() -> None:
    admin = Admin(KafkaError.POLICY_VIOLATION)
    with pytest.raises(KafkaException):
        delete_records(admin, "flights", 5)
    assert len(admin.asked) == 1
