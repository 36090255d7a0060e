"""Floods another topic with records."""

from __future__ import annotations

import os
from contextlib import closing

from confluent_kafka import KafkaError, Message, Producer

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.faults import Flood
from drkit.model.errors import DrkitError

_PARTITIONS = 4
_FLUSH_SECONDS = 300.0


def flood(env: DrillEnvironment, fault: Flood) -> str:
    """Write very many records to a topic beside the workload's, as fast as the cluster accepts them.

    Raises:
        DrkitError: not all are acknowledged.
    """
    topic = f"{env.topic(fault)}.flood"
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        if not cluster.partitions(topic):
            cluster.create(topic, _PARTITIONS, {})
    acknowledged = 0

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    properties: dict[str, str | int | float | bool] = {**env.properties[fault.cluster], "linger.ms": 20, "log_level": 0}
    producer = Producer(properties)
    value = os.urandom(fault.value_bytes)
    for number in range(fault.records):
        while True:
            try:
                producer.produce(topic, value, partition=number % _PARTITIONS, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(_FLUSH_SECONDS)
    if acknowledged < fault.records:
        raise DrkitError(f"{fault.cluster} acknowledged {acknowledged} of {fault.records} records of the flood")
    return f"{acknowledged} records of {fault.value_bytes} bytes are in {topic} on {fault.cluster}"
