"""Creates a batch that can't be forwarded."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.log_surgery import flip, recode
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import CorruptBatch
from drkit.model.errors import DrkitError, Refused

UNKNOWN_CODEC: Final = 7
"""The highest codec number in a batch's attributes; Kafka's codecs are 0 to 4."""
OVERSIZED_BYTES: Final = 2_000_000
"""Above the brokers' `message.max.bytes` (1,048,588), which holds for the workload's topic."""
_LIMIT: Final = "max.message.bytes"
_SECONDS: Final = 30.0


def corrupt_batch(env: DrillEnvironment, fault: CorruptBatch) -> str:
    """Make the last batch of a partition impossible to forward: corrupt on disk, or larger than the limit.

    A mirror that runs while an oversized batch is written may see the raised limit, raise its target's, and forward
    the batch: pause it first.

    Raises:
        Refused: the partition is empty.
        DrkitError: the broker doesn't accept the large batch.
    """
    topic = env.topic(fault)
    partition = f"{topic}:{fault.partition}"
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        _, end = cluster.ends(topic, fault.partition, committed=False)
        if not end:
            raise Refused(f"{partition} holds nothing on {fault.cluster}")
        if fault.damage == "oversized":
            offset = _write_oversized(env, fault, cluster)
            return (
                f"the record at offset {offset} of {partition} is in a batch of more than {OVERSIZED_BYTES} bytes on "
                f"{fault.cluster}: more than the topic's {_LIMIT} allows now"
            )
        folder = cluster.data / f"{topic}-{fault.partition}"
        if fault.damage == "codec":
            batch = recode(folder, end - 1, UNKNOWN_CODEC)
            why = f"it has the unknown compression codec {UNKNOWN_CODEC}, and its checksum fits"
        else:
            batch = flip(folder, end - 1, -1)
            why = "its checksum does not fit"
    return (
        f"the batch of offsets {batch.base_offset} to {batch.last_offset} of {partition} "
        f"can't be read on {fault.cluster} any more: {why}"
    )


def _write_oversized(env: DrillEnvironment, fault: CorruptBatch, cluster: LabCluster) -> int:
    """Raise the topic's limit, write a record above the former limit, and lower it again; returns the record's offset.

    Its bytes are random, so that no broker can compress them.
    """
    topic = env.topic(fault)
    placed: list[int] = []
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            placed.append(offset)
        elif error is not None:
            refused.append(error)

    def written() -> bool:
        """Try to write: brokers learn the new limit a moment after the controller."""
        producer.produce(topic, os.urandom(OVERSIZED_BYTES), partition=fault.partition, on_delivery=on_delivery)
        producer.flush(_SECONDS)
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
        wait_for(f"a batch of {OVERSIZED_BYTES} bytes in {topic}:{fault.partition}", _SECONDS, written)
    except DrkitError as error:
        said = f" ({refused[-1].str()})" if refused else ""
        raise DrkitError(f"{fault.cluster} does not accept a batch of {OVERSIZED_BYTES} bytes{said}") from error
    finally:
        cluster.set(topic, _LIMIT, None)
    return placed[0]
