"""What a status says would be lost is what an independent reader counts, and what a failover finds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from drkit.config import Config
from drkit.mirror.progress import MirrorProgress
from drkit.model.topology import TopicPartition as Place
from drkit.observe.link_status import LinkStatus
from drkit.observe.status import link_statuses
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

_LOOKS = 6
_PAUSE_SECONDS = 0.01
_A_LOT = 40


def status(mirrored: Mirrored, config: Config | None = None) -> LinkStatus:
    return link_statuses(config or mirrored.config, mirrored.store, [mirrored.link])[0]


def write(mirrored: Mirrored, topic: str, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(20) == 0


def test_what_landed_after_the_last_watermark_is_not_said_to_be_lost(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror's host dies between an acknowledgement and its next save: made here by a save that doesn't happen."""
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    dead = threading.Event()
    save = MirrorProgress.save

    def saved(progress: MirrorProgress, *, everything: bool = False) -> None:
        if not dead.is_set():
            save(progress, everything=everything)

    monkeypatch.setattr(MirrorProgress, "save", saved)
    with mirrored.running():
        mirrored.wait_through(topic)
        dead.set()
        write(mirrored, topic, 500)
        wait_until(lambda: mirrored.target.end(topic) == 510, what="the records on the target")
    assert mirrored.through(topic) < 510, "the store doesn't know of all that landed"
    write(mirrored, topic, 200)
    seen = status(mirrored)
    assert (seen.recovery_point.records, seen.recovery_point.lower_bound) == (200, False)
    assert [(each.mirrored_through, each.lag_records) for each in seen.partitions] == [(510, 200)]
    assert mirrored.planned_loss().records == 200
    gone = mirrored.without_primary()
    point, loss = status(mirrored, gone).recovery_point, mirrored.planned_loss(gone)
    assert (point.records, point.lower_bound) == (loss.records, True)
    assert loss.lower_bound


class Ends:
    """Where a partition ends on one side, by a plain client that is connected all the time."""

    def __init__(self, side: Side, topic: str) -> None:
        self._place = TopicPartition(topic, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": side.bootstrap,
                "group.id": "independent-reader",
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )

    def now(self) -> int:
        return self._consumer.get_watermark_offsets(self._place, timeout=20)[1]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def independent(mirrored: Mirrored, topic: str) -> Iterator[tuple[Ends, Ends]]:
    both = Ends(mirrored.source, topic), Ends(mirrored.target, topic)
    try:
        yield both
    finally:
        for each in both:
            each.close()


@contextmanager
def traffic(mirrored: Mirrored, topic: str) -> Iterator[None]:
    """Some thousand records a second, as fast as the machine lets them."""
    stop = threading.Event()
    failed: list[object] = []

    def work() -> None:
        producer = mirrored.source.producer()
        while not stop.wait(_PAUSE_SECONDS):
            for number in range(_A_LOT):
                producer.produce(topic, value=b"%d" % number, partition=0)
            producer.poll(0)
        if producer.flush(30):
            failed.append("not all was written")

    thread = threading.Thread(target=work, name="test-traffic")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        assert not failed


def test_under_load_it_lies_between_what_is_missing_before_and_after_the_look(mirrored: Mirrored) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    with mirrored.running(), independent(mirrored, topic) as (source, target):
        mirrored.wait_through(topic)
        with traffic(mirrored, topic):
            wait_until(lambda: mirrored.through(topic) > 500, what="the traffic on the target")
            for _ in range(_LOOKS):
                written, landed = source.now(), target.now()
                saved = mirrored.store.watermarks(mirrored.link.id)[Place(topic, 0)]
                point = status(mirrored).recovery_point
                landed_since, written_since = target.now(), source.now()
                assert point.records is not None
                assert written - landed_since <= point.records <= written_since - landed, (saved, landed, written)
        wait_until(lambda: status(mirrored).recovery_point.records == 0, what="the end of the traffic")
        assert source.now() == target.now()
