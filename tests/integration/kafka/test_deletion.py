"""Deleting exactly the topic that was meant, and asking every broker; where a log's epochs end."""

from __future__ import annotations

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin import write_block
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition
from tests.support.links.mirroring import Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def test_a_topic_of_the_same_name_and_another_id_stays(lab: Lab, unique_name: str) -> None:
    with ClusterAdmin("dr", ClusterConfig(bootstrap_servers=lab.bootstrap("dr"))) as admin:
        names = [f"{unique_name}-{part}" for part in ("old", "new", "other")]
        for name in names:
            admin.create_topic(name, partitions=1, replication_factor=1)
        ids = {name: info.topic_id for name, info in admin.topics(names).items()}
        admin.delete_topics([names[1]])
        admin.create_topic(names[1], partitions=1, replication_factor=1)
        assert admin.delete_exact({name: ids[name] for name in names[:2]}) == {}
        wait_until(lambda: set(admin.topics(names)) == set(names[1:]), what="the end of the one that is meant")
        assert admin.delete_exact({names[0]: ids[names[0]]}) == {}, "gone already is fine"
        assert admin.delete_exact({}) == {}
        assert admin.absent_everywhere(names) == {names[0]}
        admin.delete_topics(names[1:])


def test_a_silent_broker_is_no_witness(unique_name: str) -> None:
    cluster = ClusterConfig(bootstrap_servers="127.0.0.1:1")
    with ClusterAdmin("gone", cluster, timeout_seconds=0.5) as admin, pytest.raises(Unreachable):
        admin.absent_everywhere([unique_name])


def test_a_topic_that_one_broker_does_not_list_does_not_count_as_blocked(
    lab: Lab, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just started, or is cut off from its controllers, knows no newer topics: made here by its
    answer about leaders."""
    real = write_block.find_leaders
    answers = 0

    async def unlisted(connection, tps, absent, **options):
        nonlocal answers
        answers += 1
        if answers > 2:
            return await real(connection, tps, absent, **options)
        absent.update(tps)
        return {}

    monkeypatch.setattr(write_block, "find_leaders", unlisted)
    cluster = ClusterConfig(bootstrap_servers=lab.bootstrap("dr"))
    with ClusterAdmin("dr", cluster, timeout_seconds=2) as admin:
        admin.create_topic(unique_name, partitions=1, replication_factor=1)
        tps = [TopicPartition(unique_name, 0)]
        with pytest.raises(Unreachable, match="still takes writes"):
            write_block.wait_until_blocked(admin._connection, tps)
        assert answers > 2
        answers = 0
        admin.block_writes({unique_name: 1})
        assert answers > 2, "asked again until a broker lists it"
        admin.delete_topics([unique_name])
        answers = 0
        write_block.wait_until_blocked(admin._connection, tps)
        assert answers == 1, "no broker has it"


def test_where_an_epoch_ends_is_the_logs_end_while_it_lasts(lab: Lab, unique_name: str) -> None:
    side = Side(lab.bootstrap("dr"))
    side.create(unique_name, 2)
    producer = side.producer()
    for _ in range(7):
        producer.produce(unique_name, value=b"x", partition=1)
    assert producer.flush(20) == 0
    with ClusterAdmin("dr", ClusterConfig(bootstrap_servers=lab.bootstrap("dr"))) as admin:
        here, absent = TopicPartition(unique_name, 1), TopicPartition(f"{unique_name}-none", 0)
        ends = admin.epoch_ends({here: 0, TopicPartition(unique_name, 0): 0, absent: 0})
        assert ends == {here: (0, 7), TopicPartition(unique_name, 0): (0, 0)}
        assert admin.epoch_ends({here: 99}) == {here: (0, 7)}, "no broker had that epoch: this log was another one"
        assert admin.epoch_ends({}) == {}
