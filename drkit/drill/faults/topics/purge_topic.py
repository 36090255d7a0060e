"""Removes records from the beginning of a topic's logs."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.faults import PurgeTopic
from drkit.model.errors import DrkitError, Refused


def purge_topic(env: DrillEnvironment, fault: PurgeTopic) -> str:
    """Raise each log start by a part of the log's records, as retention does (with DeleteRecords: at once).

    Raises:
        Refused: there is nothing to remove.
        DrkitError: the broker doesn't accept it.
    """
    topic = env.topic(fault)
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
