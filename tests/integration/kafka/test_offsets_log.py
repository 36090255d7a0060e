"""The coordinators' own log on a real broker: every change of a group moves the end of its partition, and only that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from drkit.config import ClusterConfig
from drkit.kafka.admin.admin_connection import StepConnection
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.kafka.groups.offsets_topic import partition_of
from drkit.lab import Lab
from drkit.model.topology import TopicPartition
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def groups(lab: Lab) -> Iterator[GroupAdmin]:
    with GroupAdmin("primary", ClusterConfig(bootstrap_servers=lab.bootstrap("primary"))) as admin:
        yield admin


@pytest.fixture
def topic(lab: Lab, unique_name: str) -> str:
    admin = AdminClient({"bootstrap.servers": lab.bootstrap("primary"), "log_level": 0})
    admin.create_topics([NewTopic(unique_name, 2, 1)])[unique_name].result(20)
    return unique_name


def moved(groups: GroupAdmin, before: dict[int, int]) -> set[int]:
    log = groups.offsets_log()
    return {partition for partition, end in log.ends.items() if end != before.get(partition)}


@pytest.mark.parametrize("suffix", ["", "-ü", "-✈𝄞", "-" + "x" * 200])
def test_a_commit_moves_the_partition_that_its_name_says_and_no_other(
    groups: GroupAdmin, topic: str, suffix: str
) -> None:
    group = topic + suffix
    assert groups.commit_many({group: {TopicPartition(topic, 0): (1, "")}}) == {}
    log = groups.offsets_log()
    assert log.partitions == len(log.ends) > 1
    assert moved(groups, log.ends) == set()
    assert groups.commit_many({group: {TopicPartition(topic, 0): (2, ""), TopicPartition(topic, 1): (3, "")}}) == {}
    assert moved(groups, log.ends) == {partition_of(group, log.partitions)}


def test_deletions_move_it_too(groups: GroupAdmin, topic: str) -> None:
    group = f"{topic}-g"
    assert groups.commit_many({group: {TopicPartition(topic, 0): (1, ""), TopicPartition(topic, 1): (3, "")}}) == {}
    log = groups.offsets_log()
    groups.delete_offsets(group, [TopicPartition(topic, 1)])
    assert moved(groups, log.ends) == {partition_of(group, log.partitions)}
    log = groups.offsets_log()
    groups.delete_groups([group])
    assert moved(groups, log.ends) == {partition_of(group, log.partitions)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commits_of_consumers_of_both_protocols_move_it(
    lab: Lab, groups: GroupAdmin, topic: str, protocol: str
) -> None:
    group = f"{topic}-{protocol}"
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap("primary"),
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.2) is not None or len(consumer.assignment()) == 2, 60, "the assignment")
        log = groups.offsets_log()
        place = consumer.assignment()[0]
        place.offset = 0
        consumer.commit(offsets=[place], asynchronous=False)
        assert partition_of(group, log.partitions) in moved(groups, log.ends)
    finally:
        consumer.close()


def test_coordinators_are_looked_up_once(groups: GroupAdmin, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{topic}-{number}" for number in range(20)]
    for name in names:
        assert groups.commit_many({name: {TopicPartition(topic, 0): (1, "")}}) == {}
    sent: list[str] = []
    send = StepConnection.send

    async def counting(step, request, *args, **kwargs):
        sent.append(type(request).__name__)
        return await send(step, request, *args, **kwargs)

    monkeypatch.setattr(StepConnection, "send", counting)
    assert len(groups.fetch(names).offsets) == 20
    assert len(groups.fetch(names).offsets) == 20
    assert [name for name in sent if name.startswith("FindCoordinator")] == ["FindCoordinatorRequest"]
    assert [name for name in sent if name.startswith("OffsetFetch")] == ["OffsetFetchRequest"] * 2
