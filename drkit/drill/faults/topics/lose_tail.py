"""Removes the ends of logs."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.experiment.faults import LoseTail
from drkit.model.errors import Refused


def lose_tail(env: DrillEnvironment, fault: LoseTail) -> str:
    """Remove acknowledged records from the end of each log while the broker is down, as after an unclean election.

    The broker answers again when this returns; a newer leader epoch begins at each cut.

    Raises:
        Refused: all logs are empty.
    """
    topic = env.topic(fault)
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        partitions = cluster.partitions(topic)
        cut = cluster.cut_many(topic, range(partitions), fault.records, cleanly=True)
        cluster.wait_ready(topic, partitions)
    lost = sum(before - after for before, after in cut.values())
    if not lost:
        raise Refused(f"{topic} holds nothing on {fault.cluster} that could be lost")
    return f"{fault.cluster} lost {lost} acknowledged offsets at the end of {len(cut)} partitions of {topic}"
