"""What stands on the target beyond the mirror's last save counts as mirrored only where the mirror wrote it, and where
the source still holds it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import FENCED_EPOCH, EpochsNotRaised, ProducerStateAdmin
from drkit.mirror.progress import MirrorProgress
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from drkit.store.producers import retire_producer
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def write(side: Side, topic: str, what: str, first: int, end: int) -> None:
    """Ten records a batch, so that a log can be cut between them."""
    producer = side.producer()
    for number in range(first, end):
        producer.produce(topic, value=f"{what}-{number}".encode(), partition=0)
        if number % 10 == 9:
            assert producer.flush(20) == 0
    assert producer.flush(20) == 0


@contextmanager
def unsaved(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch, topic: str, begin: int) -> Iterator[None]:
    """A mirror that is killed before it saves what it mirrors in the block: made here by a save that doesn't happen."""
    dead = threading.Event()
    save = MirrorProgress.save

    def saved(progress: MirrorProgress, *, everything: bool = False) -> None:
        if not dead.is_set():
            save(progress, everything=everything)

    monkeypatch.setattr(MirrorProgress, "save", saved)
    with mirrored.running():
        mirrored.wait_through(topic, offset=begin)
        dead.set()
        yield
        end = mirrored.source.end(topic)
        wait_until(lambda: mirrored.target.end(topic) == end, what="the records on the target")
    assert mirrored.through(topic) == begin


def said(mirrored: Mirrored, topic: str) -> tuple[int | None, int | None, list[str]]:
    """What status says is mirrored, is missing, and the kinds of problems."""
    (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    (partition,) = (each for each in status.partitions if each.topic == topic)
    return partition.mirrored_through, partition.lag_records, [each.kind for each in status.problems]


def translated(mirrored: Mirrored, topic: str, offset: int) -> tuple[str, int]:
    told = mirrored.drkit("translate", "--topic", f"{topic}:0", "--offset", str(offset), "--output", "json")
    (position,) = json.loads(told.stdout)["positions"]
    return position["translation"], position["target_offset"]


def test_what_another_client_wrote_there_is_not_mirrored(mirrored: Mirrored) -> None:
    topic = mirrored.name("strangers")
    mirrored.source.create(topic)
    write(mirrored.source, topic, "first", 0, 100)
    assert mirrored.catch_up().caught_up
    write(mirrored.target, topic, "stranger", 0, 50)
    write(mirrored.source, topic, "second", 100, 150)
    assert said(mirrored, topic) == (100, 50, ["foreign_writer"])
    assert translated(mirrored, topic, 99) == ("exact", 99)
    for offset in (100, 125, 150):
        assert translated(mirrored, topic, offset) == ("conservative", 100)
    assert mirrored.planned_loss().records == 50
    # the source dies after a mirror saw that it goes on
    (mark,) = mirrored.store.watermarks(mirrored.link.id).values()
    mirrored.store.put_watermarks(mirrored.link.id, [replace(mark, source_end=150)])
    gone = mirrored.planned_loss(mirrored.without_primary())
    assert (gone.records, gone.lower_bound) == (50, True)


def test_what_another_client_wrote_behind_a_killed_mirrors_records_is_not_mirrored(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = mirrored.name("behind")
    mirrored.source.create(topic)
    write(mirrored.source, topic, "first", 0, 100)
    with unsaved(mirrored, monkeypatch, topic, 100):
        write(mirrored.source, topic, "second", 100, 160)
    own = mirrored.target.end(topic)
    assert said(mirrored, topic) == (160, 0, [])
    write(mirrored.target, topic, "stranger", 0, 25)
    write(mirrored.source, topic, "fourth", 160, 185)
    assert said(mirrored, topic) == (160, 25, ["foreign_writer"])
    (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    assert f"did not write, from target offset {own} on" in status.problems[0].reason
    assert translated(mirrored, topic, 159)[0] == "exact"
    assert translated(mirrored, topic, 170) == ("conservative", own)
    assert mirrored.planned_loss().records == 25


def test_what_a_source_has_lost_since_is_not_mirrored_though_the_mirror_wrote_it(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = mirrored.name("lost")
    mirrored.source.create(topic)
    write(mirrored.source, topic, "first", 0, 100)
    with unsaved(mirrored, monkeypatch, topic, 100):
        write(mirrored.source, topic, "second", 100, 160)
    with stopped(mirrored.lab, "primary-1") as disk:
        assert disk.cut(topic, 0, 130) == 130
    write(mirrored.source, topic, "other", 130, 170)
    through, lag, kinds = said(mirrored, topic)
    assert (through, lag) == (130, 40)
    assert kinds in (["foreign_writer"], ["source_truncated"])
    assert translated(mirrored, topic, 129) == ("exact", 129)
    assert translated(mirrored, topic, 150) == ("conservative", 130)
    assert mirrored.planned_loss().records == 40
    assert TopicPartition(topic, 0) in mirrored.store.watermarks(mirrored.link.id)


def test_what_another_client_writes_behind_a_running_mirror_is_told_while_nothing_comes(mirrored: Mirrored) -> None:
    """A marker that fenced an earlier mirror off isn't any: the mirror continues behind it."""
    topic, empty, fenced = (mirrored.name(name) for name in ("full", "empty", "fenced"))
    for each in (topic, empty, fenced):
        mirrored.source.create(each)
    for each in (topic, fenced):
        write(mirrored.source, each, "first", 0, 100)
    with mirrored.running() as running:
        for each in (topic, empty, fenced):
            mirrored.wait_through(each)
        wait_until(lambda: mirrored.target.partitions(empty), what="the topic")
        mark_fenced(mirrored, fenced)
        for each in (topic, empty):
            write(mirrored.target, each, "stranger", 0, 1)

        def told() -> dict[str, int | None]:
            return {each.topic: each.unsure_from for each in mirrored.problems("foreign_writer")}

        wait_until(lambda: told() == {topic: 100, empty: 0}, 30, "the foreign records")
        assert said(mirrored, topic) == (100, 0, ["foreign_writer", "foreign_writer"])
        assert translated(mirrored, topic, 100)[0] == "conservative"
        wait_until(lambda: mirrored.store.watermarks(mirrored.link.id)[TopicPartition(fenced, 0)].target_end == 101)
        write(mirrored.source, fenced, "second", 100, 110)
        mirrored.wait_through(fenced)
    assert running.error is None
    assert {each.topic for each in mirrored.problems()} == {topic, empty}
    mirrored.assert_same(fenced)
    mirrored.assert_translates(fenced)


def mark_fenced(mirrored: Mirrored, topic: str) -> None:
    """As a failover marks a producer id of the link (`drkit.failover.fencing.late_appends`)."""
    config, alias, link = mirrored.config, mirrored.link.id.target, mirrored.link.id
    with (
        ClusterAdmin(alias, config.clusters[alias]) as admin,
        ProducerStateAdmin(alias, config.clusters[alias], timeout_seconds=10) as producers,
    ):
        former, cluster = producers.new_producer_id(), admin.cluster_id()
        retire_producer(mirrored.store, link, cluster, former, refused=True)
        assert producers.raise_epoch([TopicPartition(topic, 0)], former, FENCED_EPOCH) == EpochsNotRaised({}, {})
