"""kafka-python."""

from __future__ import annotations

import itertools
import time

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from bench.clients.apps import PAUSE_SECONDS, Task, say_error, say_read, say_written


def _read(task: Task) -> None:
    consumer = KafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1000,
        **task.settings,
    )
    while True:
        try:
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    say_read(record.value)
        except (KafkaError, OSError) as error:
            say_error(error)
            time.sleep(PAUSE_SECONDS)


def _write(task: Task) -> None:
    producer = KafkaProducer(bootstrap_servers=task.bootstrap, acks="all", **task.settings)
    for number in itertools.count():
        value = f"{task.name}.{number}".encode()
        try:
            sent = producer.send(task.topic, value)
            sent.add_callback(lambda _, value=value: say_written(value))
            sent.add_errback(say_error)
        except (KafkaError, OSError) as error:
            say_error(error)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    task = Task.taken()
    (_read if task.reads else _write)(task)
