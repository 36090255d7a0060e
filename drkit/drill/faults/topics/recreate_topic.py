"""Deletes a topic and creates another one with its name."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.faults import RecreateTopic
from drkit.model.errors import Refused


def recreate_topic(env: DrillEnvironment, fault: RecreateTopic) -> str:
    """Delete the workload's topic, and create an empty one with its name and number of partitions.

    Raises:
        Refused: it doesn't exist.
    """
    topic = env.topic(fault)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        partitions = cluster.partitions(topic)
        if not partitions:
            raise Refused(f"{topic} is not on {fault.cluster}", remedy="Check the steps before this one")
        cluster.delete(topic)
        cluster.create(topic, partitions, {})
    return f"{topic} is deleted on {fault.cluster} and recreated, empty, with {partitions} partitions"
