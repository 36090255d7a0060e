"""Adds partitions."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.faults import AddPartitions
from drkit.model.errors import Refused


def add_partitions(env: DrillEnvironment, fault: AddPartitions) -> str:
    """Give the workload's topic more partitions.

    Raises:
        Refused: the topic doesn't exist.
    """
    topic = env.topic(fault)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        before = cluster.partitions(topic)
        if not before:
            raise Refused(f"{topic} is not on {fault.cluster}", remedy="Check the steps before this one")
        cluster.grow(topic, before + fault.by)
    return f"{topic} has {before + fault.by} partitions on {fault.cluster}, {fault.by} more"
