import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors as kafka_errors

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.topic_requests import TOPICS_A_REQUEST, NewTopic, first_to_create


def topics(count: int, partitions: int) -> list[NewTopic]:
    return [NewTopic(f"t-{number}", partitions, 1) for number in range(count)]


def test_a_request_creates_a_bounded_number_of_topics():
    assert first_to_create(topics(500, 1)) == topics(500, 1)[:TOPICS_A_REQUEST]


def test_a_request_creates_a_bounded_number_of_partitions():
    assert [topic.name for topic in first_to_create(topics(20, 500))] == ["t-0", "t-1", "t-2", "t-3"]


def test_a_topic_too_large_for_the_bound_is_asked_for_alone():
    assert [topic.name for topic in first_to_create(topics(2, 9_000))] == ["t-0"]


def test_nothing_to_create_is_no_request():
    assert first_to_create([]) == []


@pytest.mark.parametrize(("reached", "failures"), [(True, {}), (False, {"t": "TOPIC_ALREADY_EXISTS"})])
def test_a_topic_that_appears_is_drkits_own_only_if_an_attempt_before_may_have_reached_a_broker(
    monkeypatch, reached, failures
):
    attempts = []

    async def send(request: Any, *, sent: Any) -> Any:
        attempts.append(request)
        if len(attempts) > 1 or reached:
            sent()
        if len(attempts) == 1:
            raise kafka_errors.NodeNotReadyError
        exists = kafka_errors.TopicAlreadyExistsError.errno
        return SimpleNamespace(topics=[SimpleNamespace(name="t", error_code=exists, error_message=None)])

    def call(_what: str, step: Any) -> None:
        while True:
            try:
                return asyncio.run(step(SimpleNamespace(timeout_seconds=1.0, send=send)))
            except kafka_errors.KafkaError:
                continue

    admin = ClusterAdmin("dr", ClusterConfig(bootstrap_servers="127.0.0.1:1"))
    monkeypatch.setattr(admin, "_connection", SimpleNamespace(call=call))
    monkeypatch.setattr(admin, "topics", lambda *_, **__: {})
    monkeypatch.setattr(admin, "_wait_for_topics", lambda *_: None)
    assert admin.create_topics([NewTopic("t", 1, 1)]) == failures
