"""What is mirrored is what was written: key, value, headers, timestamp, partition, order."""

from __future__ import annotations

import pytest

from drkit.kafka.protocol.record_batch import HEADER_BYTES
from drkit.observe.status import link_statuses
from tests.support.clusters import raw
from tests.support.collection.sampling import sampled
from tests.support.links.batches import batch_bytes
from tests.support.links.mirroring import Mirrored

pytestmark = pytest.mark.lab

YEAR_2013 = 1_357_000_000_000
IN_2050 = 2_524_608_000_000


def test_every_part_of_a_record_survives(mirrored: Mirrored) -> None:
    topic = mirrored.name("parts")
    mirrored.source.create(topic, 2)
    producer = mirrored.source.producer()
    producer.produce(topic, value=b"plain", key=b"k", partition=0, timestamp=YEAR_2013)
    producer.produce(topic, value=b"null key", key=None, partition=0, timestamp=1)
    producer.produce(topic, value=b"empty key", key=b"", partition=0, timestamp=YEAR_2013 + 5)
    producer.produce(topic, value=None, key=b"tombstone", partition=0, timestamp=YEAR_2013)
    producer.produce(topic, value=b"", key=b"empty value", partition=0, timestamp=YEAR_2013)
    producer.produce(topic, value=None, key=None, partition=1, timestamp=YEAR_2013)
    producer.produce(topic, value=b"other partition", partition=1, timestamp=YEAR_2013)
    headers = [("a", b"1"), ("b", None), ("a", b"2"), ("a", b""), ("ü", "ß".encode())]
    producer.produce(topic, value=b"headers", partition=0, headers=headers, timestamp=YEAR_2013)
    producer.produce(topic, value=bytes(range(256)), key=bytes(range(256)), partition=0, timestamp=YEAR_2013)
    assert producer.flush(20) == 0
    report = mirrored.catch_up()
    assert report.caught_up
    assert report.records == 9
    first = mirrored.assert_same(topic, 0)
    second = mirrored.assert_same(topic, 1)
    assert [record.key for record in first[1:3]] == [None, b""]
    assert [record.value for record in first[3:5]] == [None, b""]
    assert first[5].headers == tuple(headers)
    assert [record.key for record in second] == [None, None]


def test_timestamps_that_librdkafka_or_the_broker_would_change(mirrored: Mirrored) -> None:
    """Stamp 0 is "now" to librdkafka, -1 is none at all, and the future is refused by default."""
    topic = mirrored.name("stamps")
    mirrored.source.create(topic, message_timestamp_after_max_ms=str(2**62))
    for stamp in (5, 0, -1, 0, YEAR_2013, IN_2050, 0):
        batch = batch_bytes([(stamp, b"k%d" % stamp, b"v", [("h", b"x"), ("h", None)])])
        raw.produce(mirrored.source.bootstrap, topic, 0, (batch[:HEADER_BYTES], batch[HEADER_BYTES:]))
    assert mirrored.catch_up().caught_up
    records = mirrored.assert_same(topic)
    assert [record.timestamp for record in records] == [5, 0, -1, 0, YEAR_2013, IN_2050, 0]
    mirrored.assert_translates(topic)


@pytest.mark.parametrize("codec", sampled("records by codec", ["none", "gzip", "snappy", "lz4", "zstd"], 2))
def test_every_codec(mirrored: Mirrored, codec: str) -> None:
    topic = mirrored.name(codec)
    mirrored.source.create(topic)
    producer = mirrored.source.producer(compression_type=codec, linger_ms=50)
    for number in range(2_000):
        producer.produce(topic, value=b"%06d" % number * 20, key=b"%d" % (number % 7), timestamp=YEAR_2013 + number)
    assert producer.flush(20) == 0
    assert mirrored.catch_up().caught_up
    assert len(mirrored.assert_same(topic)) == 2_000


def test_large_records(mirrored: Mirrored) -> None:
    topic = mirrored.name("large")
    mirrored.source.create(topic, max_message_bytes="12000000")
    producer = mirrored.source.producer(message_max_bytes=12_000_000)
    for number, size in enumerate([10, 3_000_000, 11, 10_000_000, 12]):
        producer.produce(topic, value=bytes([number]) * size, timestamp=YEAR_2013)
    assert producer.flush(30) == 0
    assert mirrored.catch_up().caught_up
    assert [len(record.value or b"") for record in mirrored.assert_same(topic)] == [10, 3_000_000, 11, 10_000_000, 12]


def test_a_topic_that_takes_only_small_batches(mirrored: Mirrored) -> None:
    topic = mirrored.name("small")
    mirrored.source.create(topic, max_message_bytes="5000")
    producer = mirrored.source.producer(batch_size=4_000, compression_type="none")
    for number in range(3_000):
        producer.produce(topic, value=bytes([number % 251]) * 300, timestamp=YEAR_2013 + number)
    assert producer.flush(30) == 0
    report = mirrored.catch_up()
    assert report.caught_up
    assert not report.halted
    assert len(mirrored.assert_same(topic)) == 3_000


def test_append_time_becomes_the_records_own_time(mirrored: Mirrored) -> None:
    topic = mirrored.name("append")
    mirrored.source.create(topic, message_timestamp_type="LogAppendTime")
    producer = mirrored.source.producer()
    for number in range(20):
        producer.produce(topic, value=b"%d" % number, timestamp=YEAR_2013)
    assert producer.flush(20) == 0
    assert mirrored.catch_up().caught_up
    assert all(record.timestamp > YEAR_2013 for record in mirrored.assert_same(topic))
    (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    assert not status.problems, "the records are the same on both sides"
    assert [each.lag_records for each in status.partitions] == [0]
