"""Brokers that die and come back: the mirror waits, continues by itself, and the store keeps what was last seen."""

from __future__ import annotations

import pytest

from drkit.config import ClusterConfig
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition
from drkit.store.workers import lease_name
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


RECORDS = 230_000  # more than the mirror's producer queues: it must wait, not drop


def write(mirrored: Mirrored, topic: str, first: int, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(first, first + count):
        while True:
            try:
                producer.produce(topic, value=b"%d" % number, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def test_the_target_dies_in_mid_stream_and_comes_back(mirrored: Mirrored) -> None:
    topic = mirrored.name("target")
    mirrored.source.create(topic, 2)
    write(mirrored, topic, 0, 50_000)
    with mirrored.running() as running:
        wait_until(lambda: mirrored.target.partitions(topic) and mirrored.target.end(topic) > 0, 60, "a stream")
        mirrored.lab.kill("dr")
        try:
            write(mirrored, topic, 50_000, RECORDS)
            wait_until(lambda: lag(mirrored, topic) > 1_000, 60, "the lag seen")
        finally:
            mirrored.lab.restart("dr")
        mirrored.wait_through(topic, 0)
        mirrored.wait_through(topic, 1)
    assert running.error is None
    for partition in (0, 1):
        assert len(mirrored.assert_same(topic, partition)) == (50_000 + RECORDS) // 2
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
        unseen = 0

        def is_held() -> bool:
            """Whether a record of `held` waits while a later one of `topic` has passed."""
            nonlocal unseen
            before = mirrored.target.end(held)
            for name in (held, topic):
                producer.produce(name, value=b"unseen")
                assert producer.flush(20) == 0
            unseen += 1
            mirrored.wait_through(topic)
            return mirrored.target.end(held) == before

        wait_until(is_held, 60, "the topic held")
        wait_until(lambda: mirrored.store.watermarks(mirrored.link.id)[place].source_end == unseen, what="the end seen")
        mirrored.lab.kill("primary")
        try:
            mark = mirrored.store.watermarks(mirrored.link.id)[place]
            assert (mark.source_end, mark.lag_records > 0) == (unseen, True)
            assert mark.behind_since is not None
            wait_until(lambda: running.events[-1].document().get("state") == "waiting", 60, "the outage told")
            seen = mirrored.store.watermarks(mirrored.link.id)[place]
            assert seen.source_end == unseen, "a dead source leaves what was last seen of it"
        finally:
            mirrored.lab.restart("primary")
        assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", held).returncode == 0
        mirrored.wait_through(held)
    assert running.error is None
    mirrored.assert_same(held)
    mirrored.assert_same(topic)


def test_catching_up_with_a_source_that_is_not_there_ends_with_the_reason(mirrored: Mirrored) -> None:
    gone = ClusterConfig(bootstrap_servers="127.0.0.1:1")
    config = mirrored.config.model_copy(update={"clusters": {**mirrored.config.clusters, "primary": gone}})
    runtime = MirrorRuntime(config, mirrored.link, mirrored.store, patience_seconds=0.5)
    with pytest.raises(Unreachable, match=r"can't catch up.*primary did not answer"):
        runtime.run(until_caught_up=True)
    assert mirrored.store.lease(lease_name(mirrored.link.id)) is None
