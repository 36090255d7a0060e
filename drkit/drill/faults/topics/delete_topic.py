"""Deletes a topic."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.faults import DeleteTopic


def delete_topic(env: DrillEnvironment, fault: DeleteTopic) -> str:
    """Delete the workload's topic, as ransomware or a mistake does; the group's offsets go with it."""
    topic = env.topic(fault)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        cluster.delete(topic)
    return f"{topic} is deleted on {fault.cluster}"
