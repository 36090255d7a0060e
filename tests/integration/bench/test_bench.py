"""The bench's own parts on real brokers: what it loads, sees and reads."""

import json

import pytest

from bench.backlog import watch
from bench.clusters import Cluster
from bench.live import Bare
from bench.mirrors import Drkit, Job
from bench.processes import MeasurementFailed
from bench.wire import Connection, Shape, WireError, load, record_batch
from drkit.lab import Lab
from tests.support.links.log_reader import read_partition, read_topic
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def source(lab: Lab) -> Cluster:
    return Cluster("primary", lab.bootstrap("primary"))


@pytest.fixture
def target(lab: Lab) -> Cluster:
    return Cluster("dr", lab.bootstrap("dr"))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_what_is_loaded_is_on_the_log(source, unique_name, codec):
    source.create_topic(unique_name, 3)
    shape = Shape(1_000, 100, codec, 15, 3)
    load(source.address, unique_name, shape)
    assert shape.loaded_records == 990
    with Connection(source.address) as connection:
        assert sum(connection.ends(unique_name, range(3)).values()) == 990
    read = read_topic(source.address, unique_name)
    assert {len(record.value) for records in read.values() for record in records} == {100}
    assert all(json.loads(record.value) for records in read.values() for record in records)
    assert {partition: len(records) for partition, records in read.items()} == {0: 330, 1: 330, 2: 330}


def test_a_batch_that_is_refused_says_so(source, unique_name):
    source.create_topic(unique_name, 1, {"max.message.bytes": "500"})
    with pytest.raises(WireError, match=f"{unique_name}:0 refused a batch with Kafka's error 10"):
        load(source.address, unique_name, Shape(100, 100, "none", 10, 1))


def test_a_topic_that_is_not_there_has_no_ends(source, unique_name):
    with Connection(source.address) as connection:
        assert connection.ends(unique_name, range(2)) == {}


def test_the_base_offset_of_each_batch_is_told(source, unique_name):
    source.create_topic(unique_name, 1)
    load(source.address, unique_name, Shape(20, 100, "none", 10, 1))
    with Connection(source.address) as connection:
        connection.send_produce(unique_name, {0: record_batch([b"last"], "none")})
        assert connection.receive_produce() == {0: 20}
    assert read_partition(source.address, unique_name)[-1].offset == 20


def test_the_bare_forwarder_carries_what_is_new_on_each_partition(source, target, unique_name, tmp_path):
    source.create_topic(unique_name, 2)
    load(source.address, unique_name, Shape(100, 100, "lz4", 10, 2))
    running = Bare(2).launch(Job(tmp_path, source, target, unique_name, "lz4", live=True))
    sent: list[bytes] = []

    def some_arrived() -> bool:  # what is written before the forwarder knows the ends is not new
        sent.append(b"%d" % len(sent))
        with Connection(source.address) as connection:
            for batch in ({0: [sent[-1]], 1: [sent[-1], b"twin"]}, {1: [b"alone"]}):
                connection.send_produce(unique_name, {each: record_batch(it, "none") for each, it in batch.items()})
                connection.receive_produce()
        return min(len(arrived(number)) for number in range(2)) >= 3

    def arrived(number: int) -> list[bytes]:
        found = read_partition(target.address, unique_name, number)
        return [each.value for each in found if each.value.isdigit()]

    try:
        wait_until(some_arrived, what="three records on each partition")
        wait_until(lambda: all(arrived(number)[-1] == sent[-1] for number in range(2)), what="the last record")
        for number in range(2):
            assert arrived(number) == sent[-len(arrived(number)) :]
    finally:
        running.stop()


def test_a_run_of_drkit_is_seen_from_its_launch_to_its_last_record(source, target, unique_name, tmp_path):
    source.create_topic(unique_name, 2)
    load(source.address, unique_name, Shape(4_000, 100, "lz4", 100, 2))
    running = Drkit().launch(Job(tmp_path, source, target, unique_name, "lz4"))
    try:
        watched = watch(target.address, unique_name, 2, 4_000, running)
    finally:
        running.stop()
    assert watched.observations[-1].records == 4_000
    assert watched.observations[0].cpu_seconds > 0
    assert watched.peak_rss_bytes > 20 << 20
    with Connection(target.address) as connection:
        assert connection.ends(unique_name, range(2)) == {0: 2_000, 1: 2_000}


def test_a_mirror_that_ends_is_a_failure_with_its_last_words(source, target, unique_name, tmp_path):
    running = Drkit().launch(Job(tmp_path, source, target, "(", "lz4"))  # no regular expression: it refuses
    try:
        with pytest.raises(MeasurementFailed, match="exit code 2 after 0 records"):
            watch(target.address, unique_name, 1, 1, running)
        assert "regular expression" in running.output_tail()
    finally:
        running.stop()
