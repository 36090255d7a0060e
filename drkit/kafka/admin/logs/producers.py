"""A cluster's producers: ids and sequence numbers of idempotent ones, transactions and their logs (KIP-664).

Any process may use a producer id that was allocated without a transactional id: brokers check only that each
append follows the one before it (KIP-98). Stored and used by one mirror after another, it makes every append
conditional on the log's content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, WriteTxnMarkersRequest

from drkit.kafka.admin.admin_connection import ClusterClient, RetryLater, StepConnection, check, describe, error_class
from drkit.kafka.admin.logs.log_offsets import EARLIEST, LATEST, NO_ANSWER, find_leaders, list_offsets, without_answer
from drkit.kafka.admin.topic_requests import metadata
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.kafka.protocol.transaction_log import TRANSACTIONS_TOPIC
from drkit.model.clock import Deadline, from_millis
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import TopicPartition

_NO_TRANSACTION_MS = 60_000
_PARTITIONS_A_REQUEST = 2_000
_EPOCH_SECONDS = 3.0

FENCED_EPOCH = 1
"""The epoch of a marker that fences a mirror off. A mirror's own requests, and the markers that it copies, have epoch
0."""


class EpochsNotRaised(NamedTuple):
    """Partitions that didn't take a producer's new epoch, and why. `refused`: their leader said so; `unanswered`: it
    may have taken it."""

    refused: dict[TopicPartition, str]
    unanswered: dict[TopicPartition, str]


class ProducerStateAdmin(ClusterClient):
    """Producer ids of one cluster. Connects at the first call; may be shared by threads."""

    def new_producer_id(self) -> int:
        """A new producer id, allocated by the cluster.

        Raises:
            Refused: drkit's principal may not write idempotently there.
            Unreachable: the cluster doesn't answer.
        """

        async def step(connection: StepConnection) -> int:
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
        return self._described(tps, producer_id, attrgetter("last_sequence"))

    def epochs(self, tps: Iterable[TopicPartition], producer_id: int) -> dict[TopicPartition, int | None]:
        """The epoch of a producer in each partition; None, and partitions that are left out: as `last_sequences`."""
        return self._described(tps, producer_id, attrgetter("producer_epoch"))

    def raise_epoch(self, tps: Iterable[TopicPartition], producer_id: int, epoch: int) -> EpochsNotRaised:
        """Append a marker of this producer with this epoch to partitions: from then on their leaders refuse whatever
        it sends with a lower one (INVALID_PRODUCER_EPOCH), as transactional producers fence their former selves
        (KIP-98). The marker takes one offset that no consumer sees. Needs ALTER (or CLUSTER_ACTION) on the cluster.

        Returns:
            The partitions that did not take it within some seconds, and why.
        """
        pending = dict.fromkeys(tps, NO_ANSWER)
        refused: dict[TopicPartition, str] = {}
        patience: list[Deadline] = []

        async def step(connection: StepConnection) -> None:
            if not patience:
                patience.append(Deadline.after(_EPOCH_SECONDS))
            denied: set[TopicPartition] = set()
            portions = await _portions(connection, pending, denied)
            refused.update(dict.fromkeys(denied, describe(kafka_errors.TopicAuthorizationFailedError)))
            for leader, portion in portions:
                await _mark(connection, leader, portion, (producer_id, epoch), pending, refused)
            if pending and not patience[0].passed:
                raise without_answer(pending)

        if pending:
            try:
                self._connection.call("raise a producer's epoch", step)
            except Unreachable as error:
                pending.update({tp: error.what for tp, why in pending.items() if why == NO_ANSWER})
            except Refused as error:
                refused.update(dict.fromkeys(pending, error.what))
                pending.clear()
        return EpochsNotRaised(refused, pending)

    def _described(
        self, tps: Iterable[TopicPartition], producer_id: int, value: Callable[[Any], int]
    ) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        pending = dict.fromkeys(tps, NO_ANSWER)

        async def step(connection: StepConnection) -> None:
            for leader, portion in await _portions(connection, pending):
                await _ask(connection, leader, portion, producer_id, value, found, pending)
            if pending:
                raise without_answer(pending)

        if pending:
            try:
                self._connection.call("describe producers", step)
            except Unreachable:
                if not found:
                    raise
        return found


async def _portions(
    connection: StepConnection, pending: dict[TopicPartition, str], denied: set[TopicPartition] | None = None
) -> list[tuple[int, list[TopicPartition]]]:
    """Pending partitions by leader, as many as one request names; those that don't exist or may not be seen (`denied`
    gets them) are pending no more."""
    gone: set[TopicPartition] = set()
    hidden: set[TopicPartition] = set() if denied is None else denied
    leaderless: dict[TopicPartition, str] = {}
    leaders = await find_leaders(connection, list(pending), gone, denied=hidden, leaderless=leaderless)
    pending.update(leaderless)
    for tp in gone | hidden:
        pending.pop(tp, None)
    return [
        (leader, led[start : start + _PARTITIONS_A_REQUEST])
        for leader, led in leaders.items()
        for start in range(0, len(led), _PARTITIONS_A_REQUEST)
    ]


async def _ask(
    connection: StepConnection,
    leader: int,
    tps: list[TopicPartition],
    producer_id: int,
    value: Callable[[Any], int],
    found: dict[TopicPartition, int | None],
    pending: dict[TopicPartition, str],
) -> None:
    """Ask one leader; if it can't be reached, its partitions stay pending."""
    try:
        response = await connection.send(_describe(tps), leader)
    except kafka_errors.KafkaError as error:
        _unanswered(error, tps, pending)
        return
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            failed = error_class(partition.error_code)
            if partition.error_code == 0:
                states = {state.producer_id: value(state) for state in partition.active_producers}
                found[tp] = states.get(producer_id)
                pending.pop(tp, None)
            elif failed is kafka_errors.TopicAuthorizationFailedError:
                pending.pop(tp, None)
            elif failed.retriable:
                pending[tp] = describe(failed)
            else:
                raise failed(str(tp))


async def _mark(
    connection: StepConnection,
    leader: int,
    tps: list[TopicPartition],
    producer: tuple[int, int],
    pending: dict[TopicPartition, str],
    refused: dict[TopicPartition, str],
) -> None:
    """Append a marker of this producer (id, epoch) to partitions of one leader; those that took it are pending no
    more."""
    marker_type = WriteTxnMarkersRequest.WritableTxnMarker
    topic_type = marker_type.WritableTxnMarkerTopic
    marker = marker_type(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=[topic_type(name=name, partition_indexes=numbers) for name, numbers in _by_topic(tps).items()],
        coordinator_epoch=0,
    )
    try:
        response = await connection.send(WriteTxnMarkersRequest(markers=[marker]), leader)
    except kafka_errors.KafkaError as error:
        _unanswered(error, tps, pending)
        return
    for topic in response.markers[0].topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            failed = error_class(partition.error_code)
            if partition.error_code == 0 or failed is kafka_errors.NotEnoughReplicasAfterAppendError:
                pending.pop(tp, None)
            elif failed.retriable:
                pending[tp] = describe(failed)
            else:
                pending.pop(tp, None)
                refused[tp] = describe(failed)


def _describe(tps: Iterable[TopicPartition]) -> DescribeProducersRequest:
    topic_type = DescribeProducersRequest.TopicRequest
    topics = [topic_type(name=name, partition_indexes=numbers) for name, numbers in _by_topic(tps).items()]
    return DescribeProducersRequest(topics=topics)


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for tp in tps:
        found[tp.topic].append(tp.partition)
    return found


def _unanswered(
    error: kafka_errors.KafkaError, tps: Iterable[TopicPartition], pending: dict[TopicPartition, str]
) -> None:
    """A leader gave no answer: its partitions stay pending; other errors are raised."""
    if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
        raise error
    pending.update(dict.fromkeys(tps, str(error)))


class TransactionalId(NamedTuple):
    """A transactional producer as its coordinator lists it.

    `state`: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit …
    """

    name: str
    producer_id: int
    state: str

    @property
    def deciding(self) -> bool:
        """Whether a transaction is being committed or aborted: some of its markers may be missing."""
        return self.state.startswith("Prepare")

    @property
    def ongoing(self) -> bool:
        """Whether a transaction has begun."""
        return self.state == "Ongoing"


class CoordinatedTransaction(NamedTuple):
    """A transaction that its coordinator has not ended yet. `partitions`: in which it is open, or lacks its marker.
    `began`: when its first partition was added, by the coordinator's clock: before its first record; None: it doesn't
    say."""

    producer: TransactionalId
    timeout_seconds: float
    partitions: frozenset[TopicPartition]
    began: datetime | None = None


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition: from which offset on, and whose."""

    first_offset: int
    producer_id: int
    producer_epoch: int


class TransactionAdmin(ClusterClient):
    """Transactional producers of one cluster. Connects at the first call; errors as `ClusterAdmin`'s."""

    def partitions(self) -> dict[str, int]:
        """The number of partitions of the two transactional logs; one that doesn't exist yet is left out."""

        async def step(connection: StepConnection) -> dict[str, int]:
            topic_type = MetadataRequest.MetadataRequestTopic
            names = [topic_type(name=name) for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)]
            response = await connection.send(MetadataRequest(topics=names, allow_auto_topic_creation=False))
            found = {}
            for topic in response.topics:
                if error_class(topic.error_code) is not kafka_errors.UnknownTopicOrPartitionError:
                    check(topic.error_code, topic.name)
                    found[topic.name] = len(topic.partitions)
            return found

        return self._connection.call("look at the transactional logs", step)

    def groups_beside_transactions(self, groups: Collection[str], partitions: int) -> set[str]:
        """Those of these groups in whose partition of the coordinators' log transactions were committed, or whose
        partition gives no answer now: only they can have committed offsets in transactions."""
        homes = {group: TopicPartition(OFFSETS_TOPIC, partition_of(group, partitions)) for group in groups}
        written = self.producers(set(homes.values()))
        return {group for group, home in homes.items() if home not in written or written[home]}

    def producers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, set[int]]:
        """The producer ids that wrote to each of these partitions and that its leader still knows.

        Partitions that give no answer now (no leader, or another one by now) are left out.
        """
        found = self._active(tps)
        return {tp: {state.producer_id for state in states} for tp, states in found.items()}

    def first_open(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """The transaction with the lowest first offset of those that are open in each of these partitions. Partitions
        without one are left out, and those that give no answer now."""
        found: dict[TopicPartition, OpenTransaction] = {}
        for tp, states in self._active(tps).items():
            open_ = [s for s in states if s.current_txn_start_offset >= 0]
            if open_:
                first = min(open_, key=attrgetter("current_txn_start_offset"))
                found[tp] = OpenTransaction(first.current_txn_start_offset, first.producer_id, first.producer_epoch)
        return found

    def _active(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, list[Any]]:
        """What the leader of each partition knows of its producers."""
        wanted = list(tps)

        async def step(connection: StepConnection) -> dict[TopicPartition, list[Any]]:
            found: dict[TopicPartition, list[Any]] = defaultdict(list)
            for leader, led in (await find_leaders(connection, wanted, set())).items():
                response = await connection.send(_describe(led), leader)
                for topic in response.topics:
                    for partition in topic.partitions:
                        if partition.error_code:
                            if not error_class(partition.error_code).retriable:
                                check(partition.error_code, f"{topic.name}:{partition.partition_index}")
                            continue
                        place = TopicPartition(topic.name, partition.partition_index)
                        found[place].extend(partition.active_producers)
            return found

        return self._connection.call("describe producers", step) if wanted else {}

    def transactional_ids(self, producer_ids: Collection[int]) -> list[TransactionalId]:
        """The transactional producers that have these producer ids now.

        Raises:
            Unreachable: also while a transaction coordinator is down or loading: a partial list is never returned.
        """

        async def step(connection: StepConnection) -> list[TransactionalId]:
            brokers = (await metadata([])(connection)).brokers
            return [each for listed in (await _listed(connection, brokers, producer_ids)).values() for each in listed]

        return self._connection.call("list transactions", step) if producer_ids else []

    def coordinated(self, producer_ids: Collection[int]) -> list[CoordinatedTransaction]:
        """The transactions of these producers that their coordinators have not ended yet. Those of transactional ids
        that drkit's principal may not see are left out.

        Raises:
            Unreachable: as `transactional_ids`; also while a part of the coordinators' log has no leader: nobody
                coordinates its transactions then, and they may be committed once it has one.
            Refused: drkit's principal may not see that log.
        """

        async def step(connection: StepConnection) -> list[CoordinatedTransaction]:
            brokers = await _with_coordinators(connection)
            found = []
            for node, listed in (await _listed(connection, brokers, producer_ids)).items():
                names = [each.name for each in listed if each.ongoing or each.deciding]
                if not names:
                    continue
                response = await connection.send(DescribeTransactionsRequest(transactional_ids=names), node)
                for each in response.transaction_states:
                    error = error_class(each.error_code)
                    if error is kafka_errors.TransactionalIdNotFoundError:  # it has expired since
                        continue
                    if each.error_code and error.retriable:
                        raise RetryLater(f"describe transactions of {each.transactional_id}: {describe(error)}")
                    check(each.error_code, f"describe transactions of {each.transactional_id}")
                    tps = {TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions}
                    producer = TransactionalId(each.transactional_id, each.producer_id, each.transaction_state)
                    began = each.transaction_start_time_ms
                    found.append(
                        CoordinatedTransaction(
                            producer,
                            each.transaction_timeout_ms / 1000,
                            frozenset(tps),
                            from_millis(began) if began >= 0 else None,
                        )
                    )
            return found

        return self._connection.call("describe transactions", step) if producer_ids else []

    def begins(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets of these partitions."""
        return list_offsets(self._connection, "look at log starts", dict.fromkeys(tps, EARLIEST))

    def ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks of these partitions."""
        return list_offsets(self._connection, "look at log ends", dict.fromkeys(tps, LATEST))


async def _with_coordinators(connection: StepConnection) -> list[Any]:
    """The brokers that the cluster lists. Raises unless each part of the coordinators' log has a leader, which
    coordinates its transactions."""
    found = await metadata([TRANSACTIONS_TOPIC])(connection)
    (topic,) = found.topics
    check(topic.error_code, f"look at {TRANSACTIONS_TOPIC}")
    for partition in topic.partitions:
        if partition.leader_id < 0:
            raise RetryLater(f"{TRANSACTIONS_TOPIC}:{partition.partition_index} has no leader")
    brokers: list[Any] = found.brokers
    return brokers


async def _listed(
    connection: StepConnection, brokers: Iterable[Any], producer_ids: Collection[int]
) -> dict[int, list[TransactionalId]]:
    """By the broker that coordinates them: the transactional producers that have these producer ids now."""
    found: dict[int, list[TransactionalId]] = {}
    for broker in brokers:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))
        response = await connection.send(request, broker.node_id)
        error = error_class(response.error_code)
        if response.error_code and error.retriable:
            raise RetryLater(f"list transactions of broker {broker.node_id}: {describe(error)}")
        check(response.error_code, f"list transactions of broker {broker.node_id}")
        found[broker.node_id] = [
            TransactionalId(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]
    return found
