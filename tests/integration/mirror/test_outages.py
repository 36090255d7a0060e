"""Brokers that die and come back: the mirror waits, goes on by itself, and the store keeps what was last seen."""

from __future__ import annotations

import threading

import pytest

from drkit.model.topology import TopicPartition
from tests.support.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


class Writer(threading.Thread):
    """Writes numbered records until told to end; waits for its cluster where that is away."""

    def __init__(self, mirrored: Mirrored, topic: str) -> None:
        super().__init__(name="test-writer")
        self.ending = threading.Event()
        self._topic = topic
        self._producer = mirrored.source.producer(enable_idempotence=True)

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            try:
                self._producer.produce(self._topic, value=b"%d" % number, partition=number % 2)
            except BufferError:
                self._producer.poll(0.1)
                continue
            number += 1
            if number % 500 == 0:
                self._producer.poll(0.01)
        assert self._producer.flush(60) == 0


def test_the_target_dies_in_mid_stream_and_comes_back(mirrored: Mirrored) -> None:
    topic = mirrored.name("target")
    mirrored.source.create(topic, 2)
    writer = Writer(mirrored, topic)
    with mirrored.running() as running:
        writer.start()
        try:
            wait_until(lambda: mirrored.through(topic) > 1_000, 60, "a stream")
            mirrored.lab.kill("dr")
            try:
                through = mirrored.through(topic)
                wait_until(lambda: lag(mirrored, topic) > 5_000, 60, "the source far ahead")
                assert mirrored.through(topic) - through < 250_000, "nothing counts without its acknowledgement"
            finally:
                mirrored.lab.restart("dr")
        finally:
            writer.ending.set()
            writer.join(90)
        mirrored.wait_through(topic, 0)
        mirrored.wait_through(topic, 1)
    assert running.error is None
    mirrored.assert_same(topic, 0)
    mirrored.assert_same(topic, 1)
    assert not mirrored.problems()


def lag(mirrored: Mirrored, topic: str) -> int:
    return mirrored.store.watermarks(mirrored.link.id)[TopicPartition(topic, 0)].lag_records


def test_the_source_dies_and_what_was_last_seen_stays(mirrored: Mirrored) -> None:
    topic, held = mirrored.name("source"), mirrored.name("held")
    for name in (topic, held):
        mirrored.source.create(name)
    producer = mirrored.source.producer()
    place = TopicPartition(held, 0)
    with mirrored.running() as running:
        producer.produce(topic, value=b"before")
        assert producer.flush(20) == 0
        mirrored.wait_through(topic)
        wait_until(lambda: mirrored.through(held) == 0, what="the empty topic")
        assert mirrored.drkit("link", "pause", str(mirrored.link.id), "--topic", held).returncode == 0
        for _ in range(100):
            producer.produce(held, value=b"unseen")
        assert producer.flush(20) == 0
        wait_until(lambda: mirrored.store.watermarks(mirrored.link.id)[place].source_end == 100, what="the end seen")
        mirrored.lab.kill("primary")
        try:
            mark = mirrored.store.watermarks(mirrored.link.id)[place]
            assert (mark.source_end, mark.lag_records > 0) == (100, True)
            assert mark.behind_since is not None
            wait_until(lambda: running.events[-1].document().get("state") == "waiting", 60, "the outage told")
            seen = mirrored.store.watermarks(mirrored.link.id)[place]
            assert seen.source_end == 100, "a dead source leaves what was last seen of it"
        finally:
            mirrored.lab.restart("primary")
        assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", held).returncode == 0
        mirrored.wait_through(held)
    assert running.error is None
    mirrored.assert_same(held)
    mirrored.assert_same(topic)
