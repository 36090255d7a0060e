"""Faults of topics and what is in them: deleted, purged, cut, damaged, written to by others."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.log_surgery import flip, recode
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import (
    AddPartitions,
    CorruptBatch,
    DeleteTopic,
    Flood,
    LoseTail,
    PurgeTopic,
    RecreateTopic,
    WriteForeign,
)
from drkit.model.errors import DrkitError, Refused

_FLUSH_SECONDS = 30.0
UNKNOWN_CODEC: Final = 7
"""The last number that a batch has room for; Kafka's codecs are 0 to 4."""
OVERSIZED_BYTES: Final = 2_000_000
"""Above the brokers' `message.max.bytes` (1,048,588), which holds for the workload's topic."""
_LIMIT: Final = "max.message.bytes"
_OVERSIZED_SECONDS: Final = 30.0
_FLOOD_PARTITIONS = 4
_FLOOD_SECONDS = 300.0


def delete_topic(env: DrillEnvironment, fault: DeleteTopic) -> str:
    """Delete the workload's topic, as ransomware or a mistake does; the group's offsets go with it."""
    topic = env.experiment.workload.topic
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        cluster.delete(topic)
    return f"{topic} is deleted on {fault.cluster}"


def recreate_topic(env: DrillEnvironment, fault: RecreateTopic) -> str:
    """Delete the workload's topic, and make an empty one of its name and with as many partitions.

    Raises:
        Refused: it isn't there.
    """
    topic = env.experiment.workload.topic
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        partitions = cluster.partitions(topic)
        if not partitions:
            raise Refused(f"{topic} is not on {fault.cluster}", remedy="Look at the steps before this one")
        cluster.delete(topic)
        cluster.create(topic, partitions, {})
    return f"{topic} is deleted on {fault.cluster} and recreated, empty, with {partitions} partitions"


def add_partitions(env: DrillEnvironment, fault: AddPartitions) -> str:
    """Give the workload's topic more partitions.

    Raises:
        Refused: the topic isn't there.
    """
    topic = env.experiment.workload.topic
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        before = cluster.partitions(topic)
        if not before:
            raise Refused(f"{topic} is not on {fault.cluster}", remedy="Look at the steps before this one")
        cluster.grow(topic, before + fault.by)
    return f"{topic} has {before + fault.by} partitions on {fault.cluster}, {fault.by} more"


def purge_topic(env: DrillEnvironment, fault: PurgeTopic) -> str:
    """Move the beginning of each log up by a part of what it holds, as retention does (by DeleteRecords: at once).

    Raises:
        Refused: there is nothing to remove.
        DrkitError: the broker doesn't take it.
    """
    topic = env.experiment.workload.topic
    removed = 0
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        for partition in range(cluster.partitions(topic)):
            start, end = cluster.ends(topic, partition, committed=False)
            before = start + int((end - start) * fault.part)
            if before == start:
                continue
            if not cluster.purge(topic, partition, before):
                raise DrkitError(f"{fault.cluster} does not remove records of {topic}:{partition}")
            removed += before - start
    if not removed:
        raise Refused(f"{topic} holds nothing on {fault.cluster} that could be removed")
    return f"{removed} offsets at the beginning of {topic} are removed on {fault.cluster}"


def write_foreign(env: DrillEnvironment, fault: WriteForeign) -> str:
    """Write records to the workload's topic that no client of the drill sends, in turn to each partition.

    Raises:
        Refused: the topic isn't there.
        DrkitError: not all are acknowledged.
    """
    topic = env.experiment.workload.topic
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        partitions = cluster.partitions(topic)
    if not partitions:
        raise Refused(f"{topic} is not on {fault.cluster}", remedy="Look at the steps before this one")
    acknowledged = 0

    def told(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    properties: dict[str, str | int | float | bool] = {**env.properties[fault.cluster], "acks": "all", "log_level": 0}
    producer = Producer(properties)
    for number in range(fault.records):
        value = f"foreign {number}: no client of this drill sent it".encode()
        producer.produce(topic, value, b"foreign", number % partitions, on_delivery=told)
    producer.flush(_FLUSH_SECONDS)
    if acknowledged < fault.records:
        raise DrkitError(f"{fault.cluster} acknowledged {acknowledged} of {fault.records} foreign records")
    return f"{acknowledged} foreign records are in {topic} on {fault.cluster}"


def lose_tail(env: DrillEnvironment, fault: LoseTail) -> str:
    """Cut acknowledged records off the end of each log while the broker is down: what an unclean election leaves.

    The broker answers again when this returns; a newer leader epoch begins where each log was cut.

    Raises:
        Refused: no log holds anything.
    """
    topic = env.experiment.workload.topic
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        partitions = cluster.partitions(topic)
        cut = cluster.cut_many(topic, range(partitions), fault.records, cleanly=True)
        cluster.wait_ready(topic, partitions)
    lost = sum(before - after for before, after in cut.values())
    if not lost:
        raise Refused(f"{topic} holds nothing on {fault.cluster} that could be lost")
    return f"{fault.cluster} lost {lost} acknowledged offsets at the end of {len(cut)} partitions of {topic}"


def corrupt_batch(env: DrillEnvironment, fault: CorruptBatch) -> str:
    """Have the last batch of a partition be one that can't be passed on: spoilt on disk, or larger than the limit.

    A mirror that runs while an oversized batch is written may see the raised limit, raise its target's, and pass the
    batch on: pause it first.

    Raises:
        Refused: the partition holds nothing.
        DrkitError: the broker doesn't take the large batch.
    """
    topic = env.experiment.workload.topic
    place = f"{topic}:{fault.partition}"
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        _, end = cluster.ends(topic, fault.partition, committed=False)
        if not end:
            raise Refused(f"{place} holds nothing on {fault.cluster}")
        if fault.damage == "oversized":
            offset = _write_oversized(env, fault, cluster)
            return (
                f"the record at offset {offset} of {place} is in a batch of more than {OVERSIZED_BYTES} bytes on "
                f"{fault.cluster}: more than the topic's {_LIMIT} allows now"
            )
        folder = cluster.data / f"{topic}-{fault.partition}"
        if fault.damage == "codec":
            batch = recode(folder, end - 1, UNKNOWN_CODEC)
            why = f"it is compressed by codec {UNKNOWN_CODEC}, which nobody knows, and its checksum fits"
        else:
            batch = flip(folder, end - 1, -1)
            why = "its checksum does not fit"
    return (
        f"the batch of offsets {batch.base_offset} to {batch.last_offset} of {place} "
        f"can't be read on {fault.cluster} any more: {why}"
    )


def _write_oversized(env: DrillEnvironment, fault: CorruptBatch, cluster: LabCluster) -> int:
    """Raise the topic's limit, write a record above the limit of before, and lower it again; the record's offset.

    Its bytes are random, so no broker makes them smaller.
    """
    topic = env.experiment.workload.topic
    placed: list[int] = []
    refused: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            placed.append(offset)
        elif error is not None:
            refused.append(error)

    def written() -> bool:
        """Brokers hear of the new limit a moment after the controller has taken it."""
        producer.produce(topic, os.urandom(OVERSIZED_BYTES), partition=fault.partition, on_delivery=told)
        producer.flush(_OVERSIZED_SECONDS)
        return bool(placed)

    properties: dict[str, str | int | float | bool] = {
        **env.properties[fault.cluster],
        "acks": "all",
        "message.max.bytes": 2 * OVERSIZED_BYTES,
        "log_level": 0,
    }
    producer = Producer(properties)
    cluster.set(topic, _LIMIT, str(2 * OVERSIZED_BYTES))
    try:
        wait_for(f"a batch of {OVERSIZED_BYTES} bytes in {topic}:{fault.partition}", _OVERSIZED_SECONDS, written)
    except DrkitError as error:
        said = f" ({refused[-1].str()})" if refused else ""
        raise DrkitError(f"{fault.cluster} does not take a batch of {OVERSIZED_BYTES} bytes{said}") from error
    finally:
        cluster.set(topic, _LIMIT, None)
    return placed[0]


def flood(env: DrillEnvironment, fault: Flood) -> str:
    """Write very many records to a topic beside the workload's, as fast as the cluster takes them.

    Raises:
        DrkitError: not all are acknowledged.
    """
    topic = f"{env.experiment.workload.topic}.flood"
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        if not cluster.partitions(topic):
            cluster.create(topic, _FLOOD_PARTITIONS, {})
    acknowledged = 0

    def told(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    properties: dict[str, str | int | float | bool] = {**env.properties[fault.cluster], "linger.ms": 20, "log_level": 0}
    producer = Producer(properties)
    value = os.urandom(fault.value_bytes)
    for number in range(fault.records):
        while True:
            try:
                producer.produce(topic, value, partition=number % _FLOOD_PARTITIONS, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(_FLOOD_SECONDS)
    if acknowledged < fault.records:
        raise DrkitError(f"{fault.cluster} acknowledged {acknowledged} of {fault.records} records of the flood")
    return f"{acknowledged} records of {fault.value_bytes} bytes are in {topic} on {fault.cluster}"
