"""Which topics' leaders may be others: a metadata answer of ten thousand partitions mostly says what was known."""

from __future__ import annotations

from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataResponse_v5

from drkit.config import ClusterConfig
from drkit.kafka.client.data_client import DataClient


def answer(**leaders: list[int]) -> MetadataResponse_v5:
    """Metadata of these topics: the leader of each partition."""
    topics = [
        (0, topic, False, [(0, number, leader, [1, 2], [1, 2], []) for number, leader in enumerate(led)])
        for topic, led in leaders.items()
    ]
    brokers = [(1, "a", 9092, None), (2, "b", 9092, None)]
    return MetadataResponse_v5(throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=1, topics=topics)


def test_only_topics_of_which_something_else_was_heard_are_told_each_once() -> None:
    client = DataClient("primary", ClusterConfig(bootstrap_servers="127.0.0.1:1"), timeout_seconds=1)
    cluster = ClusterMetadata()
    cluster.add_listener(client._heard)
    cluster.update_metadata(answer(orders=[1, 2], flights=[1]))
    assert client.take_changed() == {"orders", "flights"}
    cluster.update_metadata(answer(orders=[1, 2], flights=[1]))
    assert client.take_changed() == set()
    cluster.update_metadata(answer(orders=[1, 1], flights=[1], new=[-1]))
    cluster.update_metadata(answer(orders=[1, 1], flights=[1], new=[2]))
    assert client.take_changed() == {"orders", "new"}
    cluster.update_metadata(answer(flights=[1], new=[2]))
    assert client.take_changed() == {"orders"}  # it is gone
    cluster.update_metadata(answer(orders=[1, 1], flights=[1], new=[2]))
    assert client.take_changed() == {"orders"}
