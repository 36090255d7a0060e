"""aiokafka."""

from __future__ import annotations

import asyncio
import itertools

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from bench.clients.apps import PAUSE_SECONDS, Task, say_error, say_read, say_written


async def _read(task: Task) -> None:
    consumer = AIOKafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1000,
        **task.settings,
    )
    await consumer.start()
    while True:
        try:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    say_read(record.value)
        except (KafkaError, OSError) as error:
            say_error(error)
            await asyncio.sleep(PAUSE_SECONDS)


async def _write(task: Task) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=task.bootstrap, acks="all", **task.settings)
    await producer.start()

    async def send(value: bytes) -> None:
        try:
            await producer.send_and_wait(task.topic, value)
            say_written(value)
        except (KafkaError, OSError) as error:
            say_error(error)

    under_way: set[asyncio.Task[None]] = set()
    for number in itertools.count():
        sending = asyncio.create_task(send(f"{task.name}.{number}".encode()))
        under_way.add(sending)
        sending.add_done_callback(under_way.discard)
        await asyncio.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    task = Task.taken()
    asyncio.run((_read if task.reads else _write)(task))
