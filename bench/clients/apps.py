"""The measured applications, one for each client library of Python.

    python -m bench.clients.apps LIBRARY read|write SPEC

The spec is JSON: `bootstrap`, `topic`, `name` and `settings`. Like robust applications, they write errors to stderr and
continue with the same client. Each prints one JSON object per line: `{"at": MS, "read": VALUE}` or
`{"at": MS, "written": VALUE}`. A process loads only its own library.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PAUSE_SECONDS = 0.1
"""Seconds between two records that a client writes."""


@dataclass(frozen=True, slots=True)
class Task:
    """The spec of an application. It reads as a group with this name, or writes values with this prefix."""

    bootstrap: str
    topic: str
    name: str
    settings: dict[str, Any]

    def value(self, number: int) -> bytes:
        """The values that it writes."""
        return f"{self.name}.{number}".encode()


# --- confluent-kafka, which is librdkafka -------------------------------------------------------


def _read_librdkafka(task: Task) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {"bootstrap.servers": task.bootstrap, "group.id": task.name, "auto.offset.reset": "earliest", **task.settings}
    )
    consumer.subscribe([task.topic])
    while True:
        try:
            message = consumer.poll(1.0)
        except KafkaException as error:
            _say_error(error)
            continue
        if message is None:
            continue
        if message.error() is None:
            _say("read", message.value())
        else:
            _say_error(message.error())


def _write_librdkafka(task: Task) -> None:
    from confluent_kafka import KafkaException, Message, Producer

    def delivered(error: object, message: Message) -> None:
        if error is None:
            _say("written", message.value())
        else:
            _say_error(error)

    producer = Producer({"bootstrap.servers": task.bootstrap, **task.settings})
    for number in itertools.count():
        try:
            producer.produce(task.topic, task.value(number), on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            _say_error(error)
        producer.poll(0)
        time.sleep(_PAUSE_SECONDS)


# --- kafka-python -------------------------------------------------------------------------------


def _read_kafka_python(task: Task) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(task.topic, **_reading(task))
    while True:
        try:
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    _say("read", record.value)
        except (KafkaError, OSError) as error:
            _say_error(error)
            time.sleep(_PAUSE_SECONDS)


def _write_kafka_python(task: Task) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(bootstrap_servers=task.bootstrap, acks="all", **task.settings)
    for number in itertools.count():
        value = task.value(number)
        try:
            sent = producer.send(task.topic, value)
            sent.add_callback(lambda _, value=value: _say("written", value))
            sent.add_errback(_say_error)
        except (KafkaError, OSError) as error:
            _say_error(error)
        time.sleep(_PAUSE_SECONDS)


def _reading(task: Task) -> dict[str, Any]:
    """The common settings of the readers of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": task.bootstrap,
        "group_id": task.name,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 1000,
        **task.settings,
    }


# --- aiokafka -----------------------------------------------------------------------------------


async def _read_aiokafka(task: Task) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(task.topic, **_reading(task))
    await consumer.start()
    while True:
        try:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    _say("read", record.value)
        except (KafkaError, OSError) as error:
            _say_error(error)
            await asyncio.sleep(_PAUSE_SECONDS)


async def _write_aiokafka(task: Task) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    producer = AIOKafkaProducer(bootstrap_servers=task.bootstrap, acks="all", **task.settings)
    await producer.start()

    async def send(value: bytes) -> None:
        try:
            await producer.send_and_wait(task.topic, value)
            _say("written", value)
        except (KafkaError, OSError) as error:
            _say_error(error)

    in_flight: set[asyncio.Task[None]] = set()
    for number in itertools.count():
        sending = asyncio.create_task(send(task.value(number)))
        in_flight.add(sending)
        sending.add_done_callback(in_flight.discard)
        await asyncio.sleep(_PAUSE_SECONDS)


# --- output -------------------------------------------------------------------------------------


def _say_error(error: object) -> None:
    print(f"{_now()} {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _say(event: str, value: bytes | None) -> None:
    print(json.dumps({"at": _now(), event: (value or b"").decode()}), flush=True)


def _now() -> int:
    return int(time.time() * 1000)


_APPLICATIONS: dict[tuple[str, str], Callable[[Task], Any]] = {
    ("librdkafka", "read"): _read_librdkafka,
    ("librdkafka", "write"): _write_librdkafka,
    ("kafka-python", "read"): _read_kafka_python,
    ("kafka-python", "write"): _write_kafka_python,
    ("aiokafka", "read"): lambda task: asyncio.run(_read_aiokafka(task)),
    ("aiokafka", "write"): lambda task: asyncio.run(_write_aiokafka(task)),
}

if __name__ == "__main__":
    library, role, spec = sys.argv[1:]
    _APPLICATIONS[library, role](Task(**json.loads(spec)))
