"""A deletion of topics that a broker which stood still may carry out yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors as kafka_errors

from drkit.kafka.admin.topic_requests import TooLate, delete_exact
from drkit.model.errors import Unreachable

SILENT, REFUSED, BUSY = None, kafka_errors.TopicDeletionDisabledError, kafka_errors.NotControllerError
UNSENT = kafka_errors.NodeNotReadyError
TOPICS = {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}


def deletion(*answers: Any, late: bool = False) -> dict[str, str]:
    """What a deletion says that is answered so, attempt by attempt. `late`: the last one comes too late."""
    left = list(answers)

    async def send(request: Any, *, sent: Callable[[], None]) -> Any:
        answer = left.pop(0)
        if answer is UNSENT:
            raise UNSENT
        sent()
        if answer is SILENT:
            raise kafka_errors.KafkaTimeoutError
        (topic,) = request.topics
        result = SimpleNamespace(topic_id=topic.topic_id, name="t", error_code=answer.errno, error_message=None)
        return SimpleNamespace(responses=[result])

    def call(_what: str, step: Any) -> None:
        while True:
            try:
                return asyncio.run(step(connection))
            except kafka_errors.KafkaError:
                if late and not left:
                    deadline.passed = True

    deadline: Any = SimpleNamespace(passed=False)
    connection: Any = SimpleNamespace(alias="primary", timeout_seconds=1.0, supports=lambda _: 6, send=send, call=call)
    return delete_exact(connection, TOPICS, deadline)


def test_a_refusal_says_why() -> None:
    assert list(deletion(BUSY, REFUSED)) == ["t"]
    assert list(deletion(UNSENT, REFUSED)) == ["t"], "the first attempt reached no broker"


def test_a_refusal_behind_an_attempt_without_an_answer_does_not_count_as_one() -> None:
    with pytest.raises(Unreachable, match="can't be deleted on primary") as told:
        deletion(SILENT, REFUSED)
    assert "may be carried out yet" in (told.value.meaning or "")


@pytest.mark.parametrize(
    ("answers", "sent_before"),
    [((BUSY,), False), ((UNSENT,), False), ((SILENT,), True), ((SILENT, BUSY), True)],
    ids=str,
)
def test_what_is_too_late_says_whether_an_attempt_before_got_no_answer(answers: Any, sent_before: bool) -> None:
    with pytest.raises(TooLate) as told:
        deletion(*answers, late=True)
    assert told.value.sent_before is sent_before
