"""Several processes record one link: what its topic proves is what the store has, whoever wrote before. What the store
has lost stays in the topic."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.clock import now
from drkit.model.link_state import (
    ROWS_UNPROVEN,
    SOURCE_GAP,
    STATE_TOPIC_FAILED,
    Direction,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic import connection, recorder
from drkit.state_topic.copy_topic import is_noted
from drkit.state_topic.guard import BEGUN_ANEW, RECOVERY, check_may_begin
from drkit.state_topic.link_copy import LinkCopy, copy_of
from drkit.state_topic.recorded_store import StateRecording
from drkit.state_topic.records import StateKind, key_bytes, value_bytes
from drkit.store import open_store
from drkit.store.link_notes import SourceHoles, forget_topic_notes, put_source_holes
from tests.support import wait

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
TP = TopicPartition("t", 0)
AT = now()
wait_until = partial(wait.wait_until, timeout=120)
"""A recorder pauses for three times as long as it works, which takes seconds where the disk is busy."""


class Topic:
    """A compacted topic, and the calls with which recorders reach it."""

    def __init__(self) -> None:
        self.records: dict[bytes, SmallTopicRecord] = {}
        self.there = False
        self.read = 0
        self.mirrored: dict[str, TopicInfo] = {}
        self.start = 0

    def cluster_id(self) -> str:
        return "the target's"

    def exists(self, *_: Any) -> bool:
        return self.there

    def create(self, *_: Any) -> None:
        self.there = True

    def topic_id(self, *_: Any) -> str:
        return "id"

    def begins(self, *_: Any) -> int:
        return self.start

    def cut(self, *sections: str) -> None:
        """Delete its first records: those of these kinds, or all."""
        self.start += 1
        kept = {key: each for key, each in self.records.items() if sections and json.loads(key)[0] not in sections}
        self.records = kept

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

    def log_ends(self, tps: Any, **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    def topics(self, *_: Any, **__: Any) -> dict[str, TopicInfo]:
        return self.mirrored


@pytest.fixture
def topic(monkeypatch):
    made = Topic()
    for name in ("exists", "create", "topic_id", "begins", "keep_compacted", "read_all", "writer"):
        monkeypatch.setattr(connection, name, getattr(made, name))
    monkeypatch.setattr(recorder, "ClusterAdmin", lambda *_, **__: made)
    monkeypatch.setattr(recorder, "PAUSE_TIMES", 0)  # on a busy machine an opening takes seconds
    return made


@pytest.fixture
def store(tmp_path):
    made = open_store(f"sqlite:///{tmp_path}/drkit.db")
    yield made
    made.close()


@contextmanager
def worker(store, *, mirror=True):
    """The store as a mirror's process has it, or a command's."""
    config: Any = SimpleNamespace(links=[SimpleNamespace(link=lambda: LINK)], clusters={"dr": None})
    made = StateRecording(config, store, LINK.id if mirror else None)
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


ROWS = [(0, 0), (11, 10), (22, 20)]


def lose(tmp_path, statement: str) -> None:
    """What a replica that was never repaired, or a hand, does."""
    with closing(sqlite3.connect(tmp_path / "drkit.db")) as connection, connection:
        assert connection.execute(statement).rowcount > 0


def halted(store, loss: str) -> bool:
    """Whether the recorder has halted, and said why and what to do."""
    found = [each for each in store.problems(LINK.id) if each.kind == STATE_TOPIC_FAILED]
    assert all(loss in each.reason and "drkit store recover --from dr" in each.remedy for each in found), found
    return bool(found)


@pytest.mark.parametrize("how", ["the topic is read again", "a new claim", "rows are superseded"])
def test_rows_that_the_store_loses_under_a_mirror_stay_in_the_topic(topic, store, tmp_path, monkeypatch, how):
    """All but the first: written over the copy within a second, long before the topic was read again."""
    with worker(store) as mirror:
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        mirror.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record of all rows")
        lose(tmp_path, "DELETE FROM mapping WHERE source_offset = 11")
        if how == "the topic is read again":
            monkeypatch.setattr(recorder, "REOPEN_SECONDS", 0.0)
        elif how == "a new claim":
            claims = taken(store)
        else:
            mirror.append_mappings(LINK.id, [row(31, 30)], claims)
            assert mirror.supersede_mappings(LINK.id, TP, 1, 29, claims) == 1
        mirror.append_mappings(LINK.id, [row(33, 30)], claims)
        mirror.put_watermarks(LINK.id, [mark(40, 37)], claims)
        wait_until(lambda: halted(store, "mapping rows of t:0 from source offset 11 on"), what="the refusal")
    assert proves(topic, 30, *ROWS)


def test_rows_that_the_store_loses_under_another_worker_stay_in_the_topic(topic, store, tmp_path):
    """The worker that takes the partition over has compared the store with the topic, but not since it claims it."""
    with worker(store) as first, worker(store) as second:
        claims = taken(store)
        second.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
        wait_until(lambda: set(copied(topic).topics) == {"t"}, what="the other worker to have opened the topic")
        first.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        first.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record of all rows")
        lose(tmp_path, "DELETE FROM mapping WHERE source_offset = 11")
        claims = taken(store)
        second.append_mappings(LINK.id, [row(33, 30)], claims)
        second.put_watermarks(LINK.id, [mark(40, 37)], claims)
        wait_until(lambda: halted(store, "mapping rows of t:0 from source offset 11 on"), what="the refusal")
    assert proves(topic, 30, *ROWS)


def test_a_partition_that_is_claimed_during_an_opening_is_compared_by_the_next(topic, store, tmp_path, monkeypatch):
    with worker(store) as first:
        claims = taken(store)
        first.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        first.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record of all rows")
    reached, claimed = threading.Event(), threading.Event()

    def compared_already(*_: Any) -> str:
        reached.set()
        assert claimed.wait(60)
        return "id"

    monkeypatch.setattr(connection, "topic_id", compared_already)
    with worker(store) as second:
        second.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
        assert reached.wait(60), "an opening that has compared both"
        lose(tmp_path, "DELETE FROM mapping WHERE source_offset = 11")
        second.put_watermarks(LINK.id, [mark(40, 37)], taken(store))
        claimed.set()
        wait_until(lambda: halted(store, "mapping rows of t:0 from source offset 11 on"), what="the refusal")
    assert proves(topic, 30, *ROWS)


def test_rows_that_a_mended_tail_replaces_are_replaced_in_the_topic(topic, store):
    """By this worker, whose watermark goes back first; and by another one, while this one compares."""
    with worker(store) as first, worker(store) as second:
        claims = taken(store)
        first.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        first.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record of all rows")
        for mirror, at in ((first, 60), (second, 61)):
            back = replace(mark(15, 13), observed_at=AT + timedelta(seconds=at))
            mirror.put_watermarks(LINK.id, [back], claims)
            assert mirror.supersede_mappings(LINK.id, TP, 1, 13, claims) == 1
            wait_until(lambda: proves(topic, 15, *ROWS[:2]), what="the record of what is left")
            claims = taken(store)
            second.append_mappings(LINK.id, [row(17, 14)], claims)
            second.put_watermarks(LINK.id, [mark(40, 37)], claims)
            wait_until(lambda: proves(topic, 40, *ROWS[:2], (17, 14)), what="the record of what came after")
    assert not store.problems(LINK.id)


@pytest.mark.parametrize("lost", ["DELETE FROM topic_state WHERE topic = 'lost'", "DELETE FROM link_control"])
def test_what_else_the_store_loses_under_a_mirror_stays_in_the_topic(topic, store, tmp_path, lost):
    """The recorder removes nothing before it has compared both; and never the decision of a store that has none."""
    states = [TopicState(name, name, "s", f"{name}-id", 1, 1, created_by_drkit=True) for name in ("t", "gone", "lost")]
    topic.mirrored = {name: TopicInfo(name, f"{name}-id", 1, 1, False) for name in ("t", "lost")}
    problem = Problem(SOURCE_GAP, *TP, "r", "m", halted=False, since=AT)
    decision = LinkControl(LINK.id, Direction.SEALED, 3, AT, "failed over", "01RUN", frozenset())
    with worker(store) as mirror:
        mirror.put_topic_states(LINK.id, states)
        mirror.put_problem(LINK.id, problem)
        mirror.set_link_control(decision, expected_version=None)
        wait_until(lambda: set(copied(topic).topics) == {"t", "gone", "lost"}, what="the record of all topics")
        mirror.forget_topic(LINK.id, "gone")  # deleted on the target before
        mirror.clear_problem(LINK.id, problem)
        wait_until(
            lambda: set(copied(topic).topics) == {"t", "lost"} and not copied(topic).problems,
            what="the record of what was removed",
        )
        lose(tmp_path, lost)
        mirror.put_topic_states(LINK.id, [replace(states[0], partitions=2)])
        if "link_control" not in lost:
            wait_until(lambda: halted(store, "topic lost, unknown to the store"), what="the refusal")
    assert (set(copied(topic).topics), copied(topic).control) == ({"t", "lost"}, decision)


def test_the_last_topic_of_a_link_is_removed_with_its_notes(topic, store):
    """The store has no topic then, as one that was lost: this process has forgotten it."""
    topic.mirrored = {}
    holes = {TP: SourceHoles(1, 10)}
    with worker(store) as mirror:
        mirror.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
        put_source_holes(mirror, LINK.id, holes)
        wait_until(lambda: set(copied(topic).topics) == {"t"}, what="the record of the topic")
        forget_topic_notes(mirror, LINK.id, "t")
        mirror.forget_topic(LINK.id, "t")
        wait_until(lambda: not copied(topic).topics, what="the record of its removal")
    assert not store.problems(LINK.id)


@pytest.mark.parametrize("cut", [(), ("rows",), ("rows", "watermark", "topic")], ids=["all", "rows", "a partition"])
def test_a_topic_whose_beginning_was_deleted_is_whole_again_within_seconds(topic, store, monkeypatch, cut):
    """Also of a partition that stands still, whose watermark nobody writes again."""
    monkeypatch.setattr(recorder, "HEARTBEAT_SECONDS", 0.0)
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
    with worker(store) as mirror:
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        mirror.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record")
        topic.cut(*cut)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record, written again")
        assert not halted(store, "")


def test_what_a_worker_writes_late_over_newer_rows_of_a_topic_that_is_written_anew_is_put_right_within_seconds(
    topic, store, monkeypatch
):
    """All workers write what the topic doesn't prove; the block of rows that arrives last may be the older one."""
    monkeypatch.setattr(recorder, "SETTLE_SECONDS", 0.0)
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
    store.append_mappings(LINK.id, [row(*each) for each in ROWS])
    store.put_watermarks(LINK.id, [mark(30, 28)])
    write, late = topic.write, [value_bytes(ROWS[:1])]

    def then_another(records: Any) -> None:
        written = list(records)
        write(written)
        if late and any(json.loads(key)[0] == "watermark" for key, _ in written):
            write([(key_bytes((StateKind.ROWS, *TP, 1, 0)), late.pop())])

    monkeypatch.setattr(topic, "write", then_another)
    with worker(store):
        wait_until(lambda: not late, what="the older rows")
        wait_until(lambda: proves(topic, 30, *ROWS), timeout=60, what="the newer rows again")


def test_rows_that_the_store_loses_after_the_topic_lost_its_beginning_are_told(topic, store, tmp_path):
    """The topic has no row any more, but a watermark that says which there were: it was written with the rest of them,
    and proved the loss."""
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
    with worker(store) as mirror:
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        mirror.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record")
    topic.cut("rows")
    before = dict(topic.records)
    lose(tmp_path, "DELETE FROM mapping WHERE source_offset = 11")
    with worker(store) as mirror:
        mirror.put_watermarks(LINK.id, [mark(40, 38)], taken(store))
        wait_until(lambda: halted(store, "mapping rows of t:0"), what="the problem")
    assert topic.records == before


def garble(topic, *, rows=((0, 1),)) -> None:
    """A late writer replaces the rows in the topic: its watermark counts others."""
    topic.write([(key_bytes((StateKind.ROWS, *TP, 1, 0)), value_bytes(rows))])


@pytest.mark.parametrize("fault", [garble, Topic.cut], ids=["other rows", "cut"])
def test_rows_that_the_topic_lost_before_a_mirror_began_stay_in_doubt_when_it_has_written_them_anew(
    topic, store, tmp_path, fault
):
    """The store has lost one, which nobody can tell any more: the topic proves those that are left."""
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
    with worker(store) as mirror:
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        mirror.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record")
    fault(topic)
    lose(tmp_path, "DELETE FROM mapping WHERE source_offset = 11")
    for _ in range(2):
        with worker(store) as mirror:
            mirror.put_watermarks(LINK.id, [mark(30, 28)], taken(store))
            wait_until(lambda: proves(topic, 30, ROWS[0], ROWS[2]), what="the record, written anew")
            (told,) = (each for each in store.problems(LINK.id) if each.kind == ROWS_UNPROVEN)
            assert told.place == str(TP)
            wait_until(lambda told=told: told in copied(topic).problems, what="the problem, for who recovers from it")


@pytest.mark.parametrize("fault", [garble, Topic.cut], ids=["other rows", "cut"])
def test_rows_that_the_topic_loses_under_the_mirror_that_wrote_them_are_in_no_doubt(topic, store, monkeypatch, fault):
    """It knows itself which they are, and that the store has them."""
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
    with worker(store) as mirror:
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        mirror.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record")
        monkeypatch.setattr(recorder, "REOPEN_SECONDS", 0.0)
        fault(topic)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record, written anew")
    assert not store.problems(LINK.id)


def in_doubt(store) -> list[Problem]:
    return [each for each in store.problems(LINK.id) if each.kind == ROWS_UNPROVEN]


def test_a_command_doubts_only_rows_that_it_writes_anew_itself(topic, store):
    """No mirror runs after a failover: what a command leaves to the copy as it is needs no acknowledgement."""
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 1, created_by_drkit=True)])
    with worker(store) as mirror:
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        mirror.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record")
    topic.cut()
    with worker(store, mirror=False) as command:
        command.put_notes(LINK.id, "any", {"name": "body"})
    assert copied(topic).notes == {"any": {"name": "body"}}
    assert not in_doubt(store)
    with worker(store, mirror=False) as command:
        command.put_watermarks(LINK.id, [mark(31, 29)])
        wait_until(lambda: proves(topic, 31, *ROWS), what="the record, written anew")
    assert in_doubt(store)
    with worker(store, mirror=False) as command:
        for each in in_doubt(store):
            command.clear_problem(LINK.id, each)
    assert not in_doubt(store), "an acknowledgement lasts"


def test_a_partition_that_comes_after_a_cut_is_in_no_doubt(topic, store, monkeypatch):
    """The topic begins beyond 0 for good."""
    monkeypatch.setattr(recorder, "HEARTBEAT_SECONDS", 0.0)
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 2, created_by_drkit=True)])
    new = TopicPartition("t", 1)
    with worker(store) as mirror:
        claims = taken(store)
        mirror.append_mappings(LINK.id, [row(*each) for each in ROWS], claims)
        mirror.put_watermarks(LINK.id, [mark(30, 28)], claims)
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record")
        topic.cut()
        wait_until(lambda: proves(topic, 30, *ROWS), what="the record, written anew")
        generation = store.next_generation(LINK.id)
        store.claim(LINK.id, [(new, 1)], generation)
        read = topic.read
        mirror.append_mappings(LINK.id, [replace(row(*each), partition=1) for each in ROWS], {new: generation})
        mirror.put_watermarks(LINK.id, [replace(mark(30, 28), partition=1)], {new: generation})
        wait_until(lambda: new in copied(topic).partitions, what="the record of the new partition")
        assert topic.read > read, "it was compared before"
        assert not in_doubt(store)


def reopened(topic, monkeypatch) -> None:
    """Wait until each opening that has begun by now, and another one, are over; as after a quarter of an hour."""
    with monkeypatch.context() as patched:
        patched.setattr(recorder, "REOPEN_SECONDS", 0.0)
        patched.setattr(recorder, "SETTLE_SECONDS", 0.0)
        read = topic.read
        wait_until(lambda: topic.read > read + 4, what="openings")


def add(mirror, store, tp, *rows) -> dict[TopicPartition, int]:
    """Mirror these rows of a partition under a new claim."""
    generation = store.next_generation(LINK.id)
    store.claim(LINK.id, [(tp, 1)], generation)
    claims = {tp: generation}
    mirror.append_mappings(LINK.id, [replace(row(*each), partition=tp.partition) for each in rows], claims)
    mirror.put_watermarks(LINK.id, [replace(mark(30, 28), partition=tp.partition)], claims)
    return claims


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("lost", [False, True], ids=["whole store", "store that lost a row"])
def test_rows_of_partitions_that_stand_still_are_known_through_openings(
    topic, store, tmp_path, monkeypatch, workers, lost
):
    """Also those of another worker, which the copy has proven to this one; but not what the store has lost since."""
    monkeypatch.setattr(recorder, "HEARTBEAT_SECONDS", 3600.0)
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "t-id", 1, 2, created_by_drkit=True)])
    both = {TP, TopicPartition("t", 1)}
    with worker(store) as first, worker(store) if workers == 2 else nullcontext(first) as second:
        for mirror, tp in zip((first, second), sorted(both), strict=True):
            add(mirror, store, tp, *ROWS)
        wait_until(lambda: set(copied(topic).partitions) == both, what="the record of both")
        reopened(topic, monkeypatch)
        topic.cut()
        if lost:
            lose(tmp_path, "DELETE FROM mapping WHERE source_offset = 11 AND partition = 1")
        monkeypatch.setattr(recorder, "HEARTBEAT_SECONDS", 0.0)  # only now a worker notices
        wait_until(lambda: set(copied(topic).partitions) == both, what="the record of both, written anew")
    assert {each.place for each in in_doubt(store)} == ({"t:1"} if lost else set())


@pytest.mark.parametrize("first", ["a command", "a mirror's recorder", "the mirror's check"])
def test_a_copy_that_was_there_before_the_store_is_noted_whoever_sees_it_first(topic, store, first):
    """Another store's mirror made it, and may have mirrored before it had a record."""
    topic.there = True
    if first != "the mirror's check":
        with worker(store, mirror=first != "a command") as recording:
            problem = Problem(SOURCE_GAP, "t", 0, "x", "", halted=False, since=now())
            recording.put_problem(LINK.id, problem)
            wait_until(lambda: is_noted(LINK, store), what="the copy's name to be noted")
    check_may_begin(LINK, store, topic, None, lambda: "s")
    assert BEGUN_ANEW in store.notes(LINK.id, RECOVERY)


def test_a_copy_that_the_stores_own_command_makes_is_not_an_earlier_ones(topic, store):
    with worker(store, mirror=False) as recording:
        recording.put_problem(LINK.id, Problem(SOURCE_GAP, "t", 0, "x", "", halted=False, since=now()))
        wait_until(lambda: topic.there, what="the topic to be made")
    check_may_begin(LINK, store, topic, None, lambda: "s")
    assert store.notes(LINK.id, RECOVERY) == {}
