"""Partitions without a leader: left out with the reason, or an error that has it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from drkit.kafka.admin.admin_connection import RetryLater
from drkit.kafka.admin.logs import log_offsets
from drkit.kafka.admin.logs.log_offsets import LATEST, list_offsets
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

LED, GONE, WIDE = (TopicPartition("t", number) for number in range(3))


class Cluster:
    """A cluster of three brokers of which 2 and 3 are down: t:0 is led by 1, t:1 was by 2, t:2 by 2 and 3."""

    alias = "primary"
    epoch: int | None = None
    """With which a partition's offset was asked for."""

    async def send(self, request: Any, node: int | None = None, **_: Any) -> Any:
        if isinstance(request, MetadataRequest):
            assert node is None
            return metadata()
        assert isinstance(request, ListOffsetsRequest)
        assert node == 1
        ((_, ((_, self.epoch, _),)),) = request.topics
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        partition = topic.ListOffsetsPartitionResponse
        return ListOffsetsResponse(
            topics=[topic(name="t", partitions=[partition(partition_index=0, error_code=0, offset=7)])]
        )

    async def gather(self, work: Any) -> None:
        await asyncio.gather(*work)

    def call(self, what: str, step: Any) -> Any:
        """Try twice, then give up."""
        for _ in range(2):
            try:
                return asyncio.run(step(self))
            except RetryLater as error:
                last = str(error)
        raise Unreachable(what, meaning=last)


def metadata() -> Any:
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    broker = MetadataResponse.MetadataResponseBroker
    led = {0: (1, [1, 2]), 1: (-1, [2]), 2: (-1, [2, 3])}
    partitions = [
        partition(
            error_code=0, partition_index=number, leader_id=leader, leader_epoch=1, replica_nodes=isr, isr_nodes=isr
        )
        for number, (leader, isr) in led.items()
    ]
    return MetadataResponse(
        brokers=[broker(node_id=1, host="h", port=1)], topics=[topic(error_code=0, name="t", partitions=partitions)]
    )


@pytest.fixture
def cluster() -> Any:
    return Cluster()


def test_an_error_names_the_partitions_and_the_brokers_that_are_down(cluster: Any) -> None:
    with pytest.raises(Unreachable) as silent:
        list_offsets(cluster, "list end offsets", dict.fromkeys((LED, GONE, WIDE), LATEST))
    assert silent.value.meaning == (
        "2 partitions without an answer (t:1: it has no leader: broker 2 is down; "
        "t:2: it has no leader: brokers 2, 3 are down)"
    )
    with pytest.raises(Unreachable) as one:
        list_offsets(cluster, "list end offsets", {LED: LATEST, GONE: LATEST})
    assert one.value.meaning.startswith("1 partition without an answer (t:1")


@pytest.mark.parametrize("asked", [(LED, GONE), (GONE,)])
def test_they_can_be_left_out_with_the_reason(cluster: Any, asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no partition has a leader: it is the cluster that says so, so it answers."""
    monkeypatch.setattr(log_offsets, "_ELECTION_SECONDS", 0.0)
    silent: dict[TopicPartition, str] = {}
    found = list_offsets(cluster, "list end offsets", dict.fromkeys(asked, LATEST), silent=silent)
    assert found == ({LED: 7} if LED in asked else {})
    assert silent == {GONE: "it has no leader: broker 2 is down"}


def test_a_logs_end_is_asked_for_with_the_epoch_of_its_leader_as_followers_answer_of_their_own_logs(
    cluster: Any,
) -> None:
    assert list_offsets(cluster, "list log ends", {LED: LATEST}, true_end=True) == {LED: 7}
    assert cluster.epoch == 1
    assert list_offsets(cluster, "list end offsets", {LED: LATEST}) == {LED: 7}
    assert cluster.epoch == -1
