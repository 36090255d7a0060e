"""Writes records of a foreign writer."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import KafkaError, Message, Producer

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.faults import WriteForeign
from drkit.model.errors import DrkitError, Refused

_FLUSH_SECONDS = 30.0


def write_foreign(env: DrillEnvironment, fault: WriteForeign) -> str:
    """Write records to the workload's topic that no client of the drill sends, in turn to each partition.

    Raises:
        Refused: the topic doesn't exist.
        DrkitError: not all are acknowledged.
    """
    topic = env.topic(fault)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        partitions = cluster.partitions(topic)
    if not partitions:
        raise Refused(f"{topic} is not on {fault.cluster}", remedy="Check the steps before this one")
    acknowledged = 0

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    properties: dict[str, str | int | float | bool] = {**env.properties[fault.cluster], "acks": "all", "log_level": 0}
    producer = Producer(properties)
    for number in range(fault.records):
        value = f"foreign {number}: no client of this drill sent it".encode()
        producer.produce(topic, value, b"foreign", number % partitions, on_delivery=on_delivery)
    producer.flush(_FLUSH_SECONDS)
    if acknowledged < fault.records:
        raise DrkitError(f"{fault.cluster} acknowledged {acknowledged} of {fault.records} foreign records")
    return f"{acknowledged} foreign records are in {topic} on {fault.cluster}"
