"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import itertools
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer

from bench.clients.apps import PAUSE_SECONDS, Task, say_error, say_read, say_written


def _read(task: Task) -> None:
    consumer = Consumer(
        {"bootstrap.servers": task.bootstrap, "group.id": task.name, "auto.offset.reset": "earliest", **task.settings}
    )
    consumer.subscribe([task.topic])
    while True:
        try:
            message = consumer.poll(1.0)
        except KafkaException as error:
            say_error(error)
            continue
        if message is None:
            continue
        if message.error() is None:
            say_read(message.value())
        else:
            say_error(message.error())


def _write(task: Task) -> None:
    def delivered(error: object, message: Message) -> None:
        if error is None:
            say_written(message.value() or b"")
        else:
            say_error(error)

    producer = Producer({"bootstrap.servers": task.bootstrap, **task.settings})
    for number in itertools.count():
        try:
            producer.produce(task.topic, f"{task.name}.{number}".encode(), on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            say_error(error)
        producer.poll(0)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    task = Task.taken()
    (_read if task.reads else _write)(task)
