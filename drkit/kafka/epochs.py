"""Where the leader epochs of a log end, as its leader knows them (KIP-101): what tells a log that was cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from drkit.kafka.offsets import find_leaders
from drkit.kafka.wire import Again, Wire, describe, error_class
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

_CONSUMER = -1
_PATIENCE_SECONDS = 3.0


class EpochEnd(NamedTuple):
    """The newest epoch that a leader knows at or below the one asked for, and where it ends (exclusive)."""

    epoch: int
    end: int


def epoch_ends(wire: Wire, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
    """Where each partition's epoch ends on its leader.

    Partitions that don't exist, those that no leader answers for soon, and those whose leader keeps no
    history of epochs are left out.
    """
    found: dict[TopicPartition, EpochEnd] = {}
    pending = dict(epochs)

    async def step(wire: Wire) -> None:
        absent: set[TopicPartition] = set()
        leaders = await find_leaders(wire, list(pending), absent)
        for tp in absent:
            pending.pop(tp, None)
        reasons = [await _ask_or_say(wire, leader, tps, pending, found) for leader, tps in leaders.items()]
        if pending:
            why = next(filter(None, reasons), "no leader")
            raise Again(f"{len(pending)} partitions without an answer, e.g. {min(pending)}: {why}")

    if epochs:
        try:
            bound = min(_PATIENCE_SECONDS, wire.timeout_seconds)
            wire.call("find where leader epochs end", step, timeout_seconds=bound)
        except Unreachable:
            if not found:
                raise
    return found


async def _ask_or_say(
    wire: Wire,
    leader: int,
    tps: list[TopicPartition],
    pending: dict[TopicPartition, int],
    found: dict[TopicPartition, EpochEnd],
) -> str:
    """As `_ask`; a leader that can't be reached leaves its partitions pending, so the others go on."""
    try:
        return await _ask(wire, leader, {tp: pending[tp] for tp in tps}, pending, found)
    except kafka_errors.KafkaError as error:
        if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
            raise
        return str(error)


async def _ask(
    wire: Wire,
    leader: int,
    epochs: Mapping[TopicPartition, int],
    pending: dict[TopicPartition, int],
    found: dict[TopicPartition, EpochEnd],
) -> str:
    """Ask one leader; returns why some are still pending, or nothing."""
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_type = topic_type.OffsetForLeaderPartition
    by_topic: dict[str, list[object]] = defaultdict(list)
    for tp, epoch in epochs.items():
        by_topic[tp.topic].append(partition_type(partition=tp.partition, current_leader_epoch=-1, leader_epoch=epoch))
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[topic_type(topic=name, partitions=partitions) for name, partitions in by_topic.items()],
    )
    response = await wire.send(request, leader)
    why = ""
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic, partition.partition)
            error = error_class(partition.error_code)
            if partition.error_code and not error.retriable:
                raise error(str(tp))
            if partition.error_code:
                why = f"{tp}: {describe(error)}"
                continue
            pending.pop(tp, None)
            if partition.end_offset >= 0:
                found[tp] = EpochEnd(partition.leader_epoch, partition.end_offset)
    return why
