"""Idempotent producers of a cluster: new producer ids, and a producer's last sequence number per partition.

Any process may use a producer id that was allocated without a transactional id: brokers check only that each
append follows the one before it (KIP-98). Stored and used by one mirror after another, it makes every append
conditional on the log's content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import InitProducerIdRequest

from drkit.kafka.admin.admin_connection import AdminConnection, ClusterClient, check, describe, error_class
from drkit.kafka.admin.logs.log_offsets import NO_ANSWER, find_leaders, without_answer
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import TopicPartition

_NO_TRANSACTION_MS = 60_000
_PARTITIONS_A_REQUEST = 2_000


class ProducerStateAdmin(ClusterClient):
    """Producer ids of one cluster. Connects at the first call; may be shared by threads."""

    def new_producer_id(self) -> int:
        """A new producer id, allocated by the cluster.

        Raises:
            Refused: drkit's principal may not write idempotently there.
            Unreachable: the cluster doesn't answer.
        """

        async def step(connection: AdminConnection) -> int:
            response = await connection.send(
                InitProducerIdRequest(
                    transactional_id=None,
                    transaction_timeout_ms=_NO_TRANSACTION_MS,
                    producer_id=-1,
                    producer_epoch=-1,
                    max_version=4,
                )
            )
            check(response.error_code, "a producer id")
            given: int = response.producer_id
            return given

        try:
            return self._connection.call("get a producer id", step)
        except Refused as error:
            raise Refused(
                error.what,
                remedy=f"Grant drkit's principal IDEMPOTENT_WRITE on {self.alias}, or WRITE on its topics (since Kafka "
                "2.8 that is enough)",
            ) from error

    def last_sequences(self, tps: Iterable[TopicPartition], producer_id: int) -> dict[TopicPartition, int | None]:
        """The last sequence number of a producer in each partition, according to the leader.

        None if the leader doesn't know the producer (it never wrote there, or its state expired, which depends on
        the records' timestamps); -1 if it wrote markers only. Partitions that don't exist, for which no leader
        answers, or that drkit's principal may not read are left out.
        """
        found: dict[TopicPartition, int | None] = {}
        pending = dict.fromkeys(tps, NO_ANSWER)

        async def step(connection: AdminConnection) -> None:
            gone: set[TopicPartition] = set()
            leaderless: dict[TopicPartition, str] = {}
            leaders = await find_leaders(connection, list(pending), gone, denied=gone, leaderless=leaderless)
            pending.update(leaderless)
            for tp in gone:
                pending.pop(tp, None)
            for leader, led in leaders.items():
                for start in range(0, len(led), _PARTITIONS_A_REQUEST):
                    await _ask(
                        connection, leader, led[start : start + _PARTITIONS_A_REQUEST], producer_id, found, pending
                    )
            if pending:
                raise without_answer(pending)

        if pending:
            try:
                self._connection.call("describe producers", step)
            except Unreachable:
                if not found:
                    raise
        return found


async def _ask(
    connection: AdminConnection,
    leader: int,
    tps: list[TopicPartition],
    producer_id: int,
    found: dict[TopicPartition, int | None],
    pending: dict[TopicPartition, str],
) -> None:
    """Ask one leader; if it can't be reached, its partitions stay pending."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic].append(tp.partition)
    topic_type = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(
        topics=[topic_type(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
    )
    try:
        response = await connection.send(request, leader)
    except kafka_errors.KafkaError as error:
        if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
            raise
        pending.update(dict.fromkeys(tps, str(error)))
        return
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            failed = error_class(partition.error_code)
            if partition.error_code == 0:
                states = {state.producer_id: state.last_sequence for state in partition.active_producers}
                found[tp] = states.get(producer_id)
                pending.pop(tp, None)
            elif failed is kafka_errors.TopicAuthorizationFailedError:
                pending.pop(tp, None)
            elif failed.retriable:
                pending[tp] = describe(failed)
            else:
                raise failed(str(tp))
