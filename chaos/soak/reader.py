"""The independent reader: reads every record of a partition with a plain consumer, without drkit's code."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from chaos.soak.sides import SoakError

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own name of the event
_CHUNK = 5_000
_SILENT_POLLS = 60


class Record(NamedTuple):
    """A record: its offset, its key, and a digest of everything in it (see `digest`)."""

    offset: int
    key: bytes | None
    digest: bytes


class Content(NamedTuple):
    """A partition as seen by a consumer: its records, and the log's end (of committed data, or of all)."""

    records: list[Record]
    start: int
    end: int


def digest(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]], timestamp: int
) -> bytes:
    """128 bits over every byte of a record, including lengths and absence, so that different records differ."""
    said = hashlib.blake2b(digest_size=16)
    said.update(struct.pack(">q", timestamp))
    for part in (key, value):
        _add(said, part)
    for name, text in headers:
        _add(said, name.encode())
        _add(said, text)
    return said.digest()


def _add(said: hashlib.blake2b, part: bytes | None) -> None:
    said.update(struct.pack(">q", -1 if part is None else len(part)))
    said.update(part or b"")


def read(bootstrap: str, topic: str, partition: int, *, committed: bool, ignore: str | None = None) -> Content:
    """Everything that a consumer with this isolation sees. `ignore`: headers with this prefix don't count."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "soak-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # the end of a partition is reported after an empty fetch
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    records: list[Record] = []
    silent = 0
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            first = consumer.poll(1.0)
            silent = silent + 1 if first is None else 0
            if silent > _SILENT_POLLS:
                raise SoakError(f"{topic}:{partition} can't be read on {bootstrap}")
            for message in [] if first is None else [first, *consumer.consume(_CHUNK, 0)]:
                error = message.error()
                if error is None:
                    stamp = message.timestamp()[1]
                    headers = [each for each in message.headers() or [] if not (ignore and each[0].startswith(ignore))]
                    said = digest(message.key(), message.value(), headers, stamp)  # type: ignore[arg-type]  # as consumed
                    records.append(Record(int(message.offset() or 0), message.key(), said))
                elif error.code() == _END:
                    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
                    return Content(records, start, end)
                elif not error.retriable():
                    raise SoakError(f"{topic}:{partition}: {error}")
    finally:
        consumer.close()
