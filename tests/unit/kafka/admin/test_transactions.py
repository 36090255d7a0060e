"""Who may have committed in transactions: a part of the coordinators' log that gives no answer rules nobody out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from drkit.config import ClusterConfig
from drkit.kafka.admin.admin_connection import RetryLater
from drkit.kafka.admin.logs.producers import TransactionAdmin
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of

PARTITIONS = 4


class Broker:
    """Leads parts 0 to 2 of the coordinators' log: a transaction wrote to 0, none to 1; it no longer leads 2 when it is
    asked. Nobody leads 3."""

    alias = "primary"

    async def send(self, request: Any, *_: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return self._metadata(request.topics[0].name if request.topics else OFFSETS_TOPIC)
        assert isinstance(request, DescribeProducersRequest)
        topic = DescribeProducersResponse.TopicResponse
        partition = topic.PartitionResponse
        producer = partition.ProducerState(
            producer_id=7,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=0,
            coordinator_epoch=0,
            current_txn_start_offset=-1,
        )
        moved = kafka_errors.NotLeaderForPartitionError.errno
        answers = {0: (0, [producer]), 1: (0, []), 2: (moved, [])}
        return DescribeProducersResponse(
            topics=[
                topic(
                    name=OFFSETS_TOPIC,
                    partitions=[
                        partition(partition_index=n, error_code=code, error_message=None, active_producers=active)
                        for n, (code, active) in answers.items()
                    ],
                )
            ]
        )

    @staticmethod
    def _metadata(name: str) -> Any:
        topic = MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition
        partitions = [
            partition(
                error_code=0,
                partition_index=n,
                leader_id=1 if n < 3 else -1,
                leader_epoch=1,
                replica_nodes=[1],
                isr_nodes=[1],
            )
            for n in range(PARTITIONS)
        ]
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)],
            topics=[topic(error_code=0, name=name, partitions=partitions)],
        )

    def call(self, _: str, step: Any) -> Any:
        return asyncio.run(step(self))


def test_only_a_part_that_answers_without_producers_rules_its_groups_out() -> None:
    by_part = {partition_of(f"g{n}", PARTITIONS): f"g{n}" for n in range(40)}
    assert sorted(by_part) == [0, 1, 2, 3]
    admin = TransactionAdmin("primary", ClusterConfig(bootstrap_servers="127.0.0.1:1"))
    admin._connection = Broker()
    assert admin.groups_beside_transactions(by_part.values(), PARTITIONS) == {by_part[0], by_part[2], by_part[3]}


def test_nobody_says_that_a_transaction_has_no_coordinator_while_a_part_of_their_log_has_no_leader() -> None:
    """It may be committed once that part has a leader: brokers list the transactions of the parts that they lead."""
    admin = TransactionAdmin("primary", ClusterConfig(bootstrap_servers="127.0.0.1:1"))
    admin._connection = Broker()
    with pytest.raises(RetryLater, match="__transaction_state:3 has no leader"):
        admin.coordinated({7})
