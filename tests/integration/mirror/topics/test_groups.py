"""Positions of consumer groups: captured, kept fresh, forgotten only when the group is really gone."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, ShareConsumer

from drkit.config import ClusterConfig
from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.snapshot.past_positions import PastPosition, committed_at
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.clock import now
from drkit.model.offsets import Certainty, GroupPosition
from drkit.model.topology import TopicPartition
from drkit.store.link_notes import unmovable_groups
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored
from tests.support.links.topic_looks import TakenMeanwhile
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("captured groups", 3)]


@pytest.fixture
def groups(mirrored: Mirrored) -> Iterator[GroupAdmin]:
    with GroupAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        yield admin


def captured(mirrored: Mirrored, group: str) -> dict[TopicPartition, GroupPosition]:
    return {p.tp: p for p in mirrored.store.group_positions(mirrored.link.id) if p.group == group}


def fill(mirrored: Mirrored, topic: str, partitions: int = 1) -> None:
    mirrored.source.create(topic, partitions)
    producer = mirrored.source.producer()
    for number in range(100):
        producer.produce(topic, value=b"%d" % number, partition=number % partitions)
    assert producer.flush(20) == 0


def test_positions_are_captured_and_stay_fresh(mirrored: Mirrored, groups: GroupAdmin) -> None:
    topic, group = mirrored.name("t"), mirrored.name("g")
    fill(mirrored, topic, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert groups.commit_many({group: {first: (7, "a note")}}) == {}
    with mirrored.running():
        position = wait_until(lambda: captured(mirrored, group).get(first), what="the first position")
        assert (position.offset, position.metadata) == (7, "a note")
        assert groups.commit_many({group: {first: (9, ""), second: (3, "")}}) == {}
        wait_until(lambda: offsets(mirrored, group) == {first: 9, second: 3}, what="the new positions")
        then = captured(mirrored, group)[first].captured_at
        wait_until(lambda: captured(mirrored, group)[first].captured_at > then, what="a fresher capture of the same")


def offsets(mirrored: Mirrored, group: str) -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in captured(mirrored, group).items()}


def test_only_groups_and_topics_of_the_link(mirrored: Mirrored, groups: GroupAdmin, unique_name: str) -> None:
    topic, outside = mirrored.name("t"), f"x{unique_name}"
    fill(mirrored, topic)
    mirrored.source.create(outside)
    assert (
        groups.commit_many(
            {mirrored.name("g"): {TopicPartition(topic, 0): (5, ""), TopicPartition(outside, 0): (0, "")}}
        )
        == {}
    )
    assert groups.commit_many({f"x{unique_name}-g": {TopicPartition(topic, 0): (6, "")}}) == {}
    assert mirrored.catch_up().caught_up
    positions = mirrored.store.group_positions(mirrored.link.id)
    assert [(p.group, p.topic, p.offset) for p in positions] == [(mirrored.name("g"), topic, 5)]


def test_positions_in_a_topic_whose_deletion_was_mirrored_are_not_put_back(
    mirrored: Mirrored, groups: GroupAdmin, taken_meanwhile: TakenMeanwhile
) -> None:
    topic, stays, group = mirrored.name("gone"), mirrored.name("stays"), mirrored.name("g")
    for name in (topic, stays):
        fill(mirrored, name)
    here, there = TopicPartition(topic, 0), TopicPartition(stays, 0)
    assert groups.commit_many({group: {here: (60, ""), there: (7, "")}}) == {}
    mirrored.configure('deletions = "mirror"')
    with mirrored.running():
        wait_until(lambda: offsets(mirrored, group) == {here: 60, there: 7}, what="the positions")
        mirrored.wait_through(topic)
        taken_meanwhile(stays)
        mirrored.source.delete(topic)
        wait_until(lambda: topic not in mirrored.store.topic_states(mirrored.link.id), 60, "the deletion on dr")
        forgotten = now()
        wait_until(lambda: captured(mirrored, group)[there].captured_at > forgotten, what="a later look")
        assert offsets(mirrored, group) == {there: 7}
        fill(mirrored, topic)
        mirrored.wait_through(topic, offset=100)
        begun = now()
        wait_until(lambda: captured(mirrored, group)[there].captured_at > begun, what="a look at the new topic")
        assert offsets(mirrored, group) == {there: 7}
        assert groups.commit_many({group: {here: (20, "")}}) == {}
        wait_until(lambda: offsets(mirrored, group) == {here: 20, there: 7}, what="the position in the new one")
    past = position_at(mirrored, group, here, forgotten)
    assert past is None or past.offset is None


def test_a_deleted_group_is_forgotten(mirrored: Mirrored, groups: GroupAdmin) -> None:
    topic, gone, stays = mirrored.name("t"), mirrored.name("gone"), mirrored.name("stays")
    fill(mirrored, topic)
    for group in (gone, stays):
        assert groups.commit_many({group: {TopicPartition(topic, 0): (5, "")}}) == {}
    with mirrored.running():
        wait_until(lambda: captured(mirrored, gone) and captured(mirrored, stays), what="both groups")
        groups.delete_groups([gone])
        wait_until(lambda: not captured(mirrored, gone), what="the group forgotten")
        assert captured(mirrored, stays)


def test_a_group_that_is_deleted_while_no_mirror_runs_is_forgotten(mirrored: Mirrored, groups: GroupAdmin) -> None:
    topic, gone, stays = mirrored.name("t"), mirrored.name("gone"), mirrored.name("stays")
    fill(mirrored, topic)
    for group in (gone, stays):
        assert groups.commit_many({group: {TopicPartition(topic, 0): (5, "")}}) == {}
    assert mirrored.catch_up().caught_up
    groups.delete_groups([gone])
    with mirrored.running():
        wait_until(lambda: not captured(mirrored, gone), what="the group forgotten")
        assert captured(mirrored, stays)


def test_a_group_that_ends_on_a_source_that_was_set_back_stays_as_captured_by_a_mirror_that_starts(
    mirrored: Mirrored, groups: GroupAdmin, tmp_path: Path
) -> None:
    """There it expires by a commit as old as the disks; its topic is the same as before."""
    topic, ended, later = mirrored.name("t"), mirrored.name("ended"), mirrored.name("later")
    fill(mirrored, topic)
    place = TopicPartition(topic, 0)
    assert groups.commit_many({ended: {place: (5, "")}}) == {}
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(tmp_path / "copy")
    assert groups.commit_many({ended: {place: (60, "")}}) == {}
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(tmp_path / "copy")
    groups.delete_groups([ended])  # with the same record as of one that expires
    with mirrored.running():
        for _ in range(2):
            assert groups.commit_many({later: {place: (5, "")}}) == {}
            wait_until(lambda: captured(mirrored, later), 60, "a look that lists all groups")
            groups.delete_groups([later])
            wait_until(lambda: not captured(mirrored, later), 60, "the group forgotten that was deleted")
        assert offsets(mirrored, ended) == {place: 60}


def test_groups_that_the_source_lost_stay_as_captured(mirrored: Mirrored, groups: GroupAdmin) -> None:
    """Its coordinators' log had one replica, whose disk is gone."""
    topic, lost, later = mirrored.name("t"), mirrored.name("lost"), mirrored.name("later")
    fill(mirrored, topic)
    place = TopicPartition(topic, 0)
    assert groups.commit_many({lost: {place: (60, "")}}) == {}
    with mirrored.running():
        wait_until(lambda: captured(mirrored, lost), what="the position")
        with stopped(mirrored.lab, "primary-1") as disk:
            for part in disk.data.glob("__consumer_offsets-*"):
                shutil.rmtree(part)
        wait_until(lambda: lost not in groups.list_groups(), 60, "the group gone")
        for _ in range(2):
            assert groups.commit_many({later: {place: (5, "")}}) == {}
            wait_until(lambda: captured(mirrored, later), 60, "a look that lists all groups")
            groups.delete_groups([later])
            wait_until(lambda: not captured(mirrored, later), 60, "the group forgotten that was deleted")
            assert offsets(mirrored, lost) == {place: 60}
        assert groups.commit_many({lost: {place: (70, "")}}) == {}
        wait_until(lambda: offsets(mirrored, lost) == {place: 70}, 60, "its next commit")


def test_a_group_that_went_with_its_topic_stays_as_captured_where_the_topic_does(
    mirrored: Mirrored, groups: GroupAdmin
) -> None:
    """Its coordinator removes a group that has no offset left, with the same record as somebody who deletes it."""
    topic, stays, group, deleted = mirrored.name("t"), mirrored.name("stays"), mirrored.name("g"), mirrored.name("gone")
    for name in (topic, stays):
        fill(mirrored, name)
    there = {TopicPartition(name, 0): (60, "") for name in (topic, stays)}
    place = TopicPartition(topic, 0)
    assert groups.commit_many({group: {place: (60, "")}, deleted: there}) == {}
    with mirrored.running():
        wait_until(lambda: captured(mirrored, group) and captured(mirrored, deleted), what="the positions")
        mirrored.wait_through(topic)
        mirrored.source.delete(topic)
        wait_until(lambda: not groups.committed([group]), 60, "the offset gone with its topic")
        groups.delete_groups([each for each in (group, deleted) if each in groups.list_groups()])
        wait_until(lambda: offsets(mirrored, deleted) == {place: 60}, 60, "the deletion seen")
        for _ in range(2):
            assert groups.commit_many({deleted: {TopicPartition(stays, 0): (5, "")}}) == {}
            wait_until(lambda: len(captured(mirrored, deleted)) > 1, 60, "a look that lists all groups")
            groups.delete_groups([deleted])
            wait_until(lambda: offsets(mirrored, deleted) == {place: 60}, 60, "what was deleted by itself forgotten")
        assert offsets(mirrored, group) == {place: 60}
    with ClusterContext(mirrored.config, mirrored.store) as estate:
        plan = make_plan(estate, PlanRequest("dr"))
    (planned,) = (each for each in plan.positions if each.group == group)
    assert (planned.topic, planned.target_offset, planned.translation) == (topic, 60, Certainty.CONSERVATIVE)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_live_groups_of_both_protocols(mirrored: Mirrored, protocol: str) -> None:
    topic, group = mirrored.name("t"), mirrored.name(protocol)
    fill(mirrored, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": mirrored.source.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        message = wait_until(lambda: read_to(consumer, 40), 60, "record 40")
        consumer.commit(message=message, asynchronous=False)
        assert mirrored.catch_up().caught_up
    finally:
        consumer.close()
    assert captured(mirrored, group)[TopicPartition(topic, 0)].offset == 41


def read_to(consumer: Consumer, offset: int) -> object:
    message = consumer.poll(0.2)
    return message if message is not None and message.error() is None and message.offset() == offset else None


def test_a_dead_source_leaves_the_positions_as_captured(mirrored: Mirrored, groups: GroupAdmin) -> None:
    topic, group = mirrored.name("t"), mirrored.name("g")
    fill(mirrored, topic)
    assert groups.commit_many({group: {TopicPartition(topic, 0): (5, "")}}) == {}
    with mirrored.running() as running:
        wait_until(lambda: captured(mirrored, group), what="the position")
        mirrored.lab.kill("primary")
        try:
            wait_until(lambda: running.events[-1].document().get("state") == "waiting", 60, "the outage told")
            assert offsets(mirrored, group) == {TopicPartition(topic, 0): 5}
        finally:
            mirrored.lab.restart("primary")
        assert groups.commit_many({group: {TopicPartition(topic, 0): (8, "")}}) == {}
        wait_until(lambda: offsets(mirrored, group) == {TopicPartition(topic, 0): 8}, 60, "captured again")
    assert running.error is None


def test_a_share_group_is_named_as_unavailable(
    mirrored: Mirrored, groups: GroupAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = mirrored.name("t"), mirrored.name("share")
    fill(mirrored, topic)
    consumer = ShareConsumer({"bootstrap.servers": mirrored.source.bootstrap, "group.id": group, "log_level": 0})
    producer = mirrored.source.producer()

    def received() -> list[Message]:  # a new share group begins at the topic's end
        producer.produce(topic, value=b"shared")
        assert producer.flush(20) == 0
        return list(consumer.poll(0.3))

    try:
        consumer.subscribe([topic])
        wait_until(received, 60, "records of the share group")
        assert listed_type(groups, group) == "share"
        with caplog.at_level(logging.WARNING, logger="drkit.mirror.groups.group_capture"):
            assert mirrored.catch_up().caught_up
    finally:
        consumer.close()
    assert captured(mirrored, group) == {}
    assert any("share group" in record.message and group in record.message for record in caplog.records)
    (kept,) = unmovable_groups(mirrored.store, mirrored.link.id)
    assert (kept.group, kept.type, list(kept.starts)) == (group, "share", [TopicPartition(topic, 0)])
    groups.delete_groups([group])
    assert mirrored.catch_up().caught_up
    assert unmovable_groups(mirrored.store, mirrored.link.id) == []


def shares(consumer: ShareConsumer) -> bool:
    """Whether it gets records: then the group is there."""
    return consumer.poll(0.2) is not None


def listed_type(groups: GroupAdmin, group: str) -> str | None:
    found = groups.list_groups().get(group)
    return None if found is None else found.type


def test_the_past_of_a_group_is_kept_and_never_ahead_of_it(mirrored: Mirrored, groups: GroupAdmin) -> None:
    topic, group = mirrored.name("t"), mirrored.name("g")
    fill(mirrored, topic)
    place = TopicPartition(topic, 0)
    committed: list[tuple[datetime, datetime, int]] = []
    with mirrored.running():
        for offset in (5, 9, 14):
            begun = now()
            assert groups.commit_many({group: {place: (offset, f"at {offset}")}}) == {}
            committed.append((begun, now(), offset))
            wait_until(lambda: offsets(mirrored, group).get(place) == committed[-1][2], what=f"offset {offset}")

        captured_by = now()

        def seen_still() -> bool:
            return captured(mirrored, group)[place].captured_at > captured_by

        wait_until(seen_still, what="a look after the one that captured the last commit")
        groups.delete_groups([group])
        wait_until(lambda: not captured(mirrored, group), what="the group forgotten")
        wait_until(lambda: position_at(mirrored, group, place, now()) is None, what="its end in the timeline")
    for (_, after, offset), (before_next, _, _) in pairwise([*committed, (committed[-1][1], now(), 0)]):
        past = position_at(mirrored, group, place, max(after, before_next))
        assert past is not None
        assert past.offset is None or past.offset <= offset
        if past.certainty is Certainty.EXACT:
            assert (past.offset, past.metadata) == (offset, f"at {offset}")
    newest = [
        state.positions[0].offset
        for around in mirrored.store.group_states_around(mirrored.link.id, committed[-1][1] + timedelta(seconds=30))
        for state in (around.then,)
        if around.group == group and state is not None and state.positions
    ]
    assert newest == []  # it is gone
    last = position_at(mirrored, group, place, captured_last(mirrored, group))
    assert last is not None
    assert last.offset == 14


def captured_last(mirrored: Mirrored, group: str) -> datetime:
    """The moment up to which the group was last seen to stand somewhere."""
    for around in mirrored.store.group_states_around(mirrored.link.id, now()):
        if around.group == group and around.then is not None and around.then.held_until is not None:
            return around.then.held_until
    raise AssertionError("the group's end is not in the timeline")


def position_at(mirrored: Mirrored, group: str, place: TopicPartition, moment: datetime) -> PastPosition | None:
    states = mirrored.store.group_states_around(mirrored.link.id, moment)
    return committed_at(moment, states, mirrored.store.group_positions(mirrored.link.id)).get((group, place))
