"""Several processes record one link: what its topic proves is what the store has, whoever wrote before."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.clock import now
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic import connection, recorder
from drkit.state_topic.link_copy import LinkCopy, copy_of
from drkit.state_topic.recorded_store import StateRecording
from drkit.store import open_store
from tests.support.wait import wait_until

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
TP = TopicPartition("t", 0)
AT = now()


class Topic:
    """A compacted topic, and the calls with which recorders reach it."""

    def __init__(self) -> None:
        self.records: dict[bytes, SmallTopicRecord] = {}
        self.there = False
        self.read = 0

    def cluster_id(self) -> str:
        return "the target's"

    def exists(self, *_: Any) -> bool:
        return self.there

    def create(self, *_: Any) -> None:
        self.there = True

    def topic_id(self, *_: Any) -> str:
        return "id"

    def keep_compacted(self, *_: Any) -> None:
        pass

    def read_all(self, *_: Any) -> dict[bytes, SmallTopicRecord]:
        self.read += 1
        return dict(self.records)

    def writer(self, *_: Any) -> Topic:
        return self

    def write(self, records: Any) -> None:
        self.records.update({key: SmallTopicRecord(key, value, 0) for key, value in list(records)})

    def close(self) -> None:
        pass

    def topics(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}


@pytest.fixture
def topic(monkeypatch):
    made = Topic()
    for name in ("exists", "create", "topic_id", "keep_compacted", "read_all", "writer"):
        monkeypatch.setattr(connection, name, getattr(made, name))
    monkeypatch.setattr(recorder, "ClusterAdmin", lambda *_, **__: made)
    return made


@pytest.fixture
def store(tmp_path):
    made = open_store(f"sqlite:///{tmp_path}/drkit.db")
    yield made
    made.close()


@contextmanager
def worker(store):
    """The store as a mirror's process has it."""
    config: Any = SimpleNamespace(links=[SimpleNamespace(link=lambda: LINK)], clusters={"dr": None})
    made = StateRecording(config, store, LINK.id)
    try:
        yield made.store
    finally:
        made.close()


def taken(store) -> dict[TopicPartition, int]:
    """Claim the partition anew."""
    generation = store.next_generation(LINK.id)
    store.claim(LINK.id, [(TP, 1)], generation)
    return {TP: generation}


def row(source, target) -> OffsetMapping:
    return OffsetMapping(*TP, 1, source, target)


def mark(source, target) -> Watermark:
    return Watermark(*TP, 1, source, target, 0, source, 0, AT + timedelta(seconds=source))


def copied(topic) -> LinkCopy:
    return copy_of(LINK, "copy", topic.records)


def proves(topic, through, *rows) -> bool:
    """Whether the copy's watermark is there, with exactly these rows."""
    found = copied(topic).partitions.get(TP)
    if found is None or found.watermark.source_through != through:
        return False
    assert [(each.source_offset, each.target_offset) for each in found.rows] == list(rows)
    return True


def test_a_partition_that_returns_to_a_worker_is_proven_with_the_rows_of_the_one_between(topic, store):
    with worker(store) as first, worker(store) as second:
        claims = taken(store)
        first.append_mappings(LINK.id, [row(0, 0)], claims)
        first.put_watermarks(LINK.id, [mark(10, 10)], claims)
        wait_until(lambda: proves(topic, 10, (0, 0)), what="the first worker's record")
        claims = taken(store)
        second.append_mappings(LINK.id, [row(11, 10), row(22, 20)], claims)
        second.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, (0, 0), (11, 10), (22, 20)), what="the second worker's record")
        claims = taken(store)
        first.put_watermarks(LINK.id, [mark(31, 29)], claims)
        wait_until(lambda: proves(topic, 31, (0, 0), (11, 10), (22, 20)), what="the first worker's, without a row")
        first.append_mappings(LINK.id, [row(33, 30)], claims)
        first.put_watermarks(LINK.id, [mark(40, 37)], claims)
        wait_until(lambda: proves(topic, 40, (0, 0), (11, 10), (22, 20), (33, 30)), what="the first worker's last")


def test_rows_of_one_that_writes_without_a_claim_are_proven_with_those_of_the_mirror_between(topic, store):
    with worker(store) as command, worker(store) as mirror:
        command.append_mappings(LINK.id, [row(0, 0)])
        command.put_watermarks(LINK.id, [mark(10, 10)])
        wait_until(lambda: proves(topic, 10, (0, 0)), what="the command's record")
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(11, 10)], claims)
        mirror.put_watermarks(LINK.id, [mark(20, 19)], claims)
        wait_until(lambda: proves(topic, 20, (0, 0), (11, 10)), what="the mirror's record")
        command.append_mappings(LINK.id, [row(22, 20)])
        command.put_watermarks(LINK.id, [mark(30, 28)])
        wait_until(lambda: proves(topic, 30, (0, 0), (11, 10), (22, 20)), what="the command's second record")


def test_positions_that_another_worker_has_captured_since_stay_in_the_topic(topic, store, monkeypatch):
    """The first worker led before; the one that leads since saw a group reset to before, and one deleted."""
    positions = [GroupPosition(group, *TP, 1000, "", AT) for group in ("reset", "deleted")]
    with worker(store) as first:
        first.put_group_positions(LINK.id, positions)
        wait_until(lambda: sorted(copied(topic).positions) == sorted(positions), what="the first worker's record")
        back = positions[0]._replace(offset=200, captured_at=AT + timedelta(seconds=1))
        with worker(store) as second:
            second.put_group_positions(LINK.id, [back])
            second.forget_group_positions(LINK.id, ["deleted"])
            wait_until(lambda: copied(topic).positions == [back], what="the second worker's record")
        monkeypatch.setattr(recorder, "REOPEN_SECONDS", 0.0)
        read = topic.read
        wait_until(lambda: topic.read > read + 1, what="the first worker to have compared the topic once more")
        assert copied(topic).positions == [back]
