"""A batch that can't be read."""

from __future__ import annotations

from contextlib import closing

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.log_surgery import flip
from drkit.drill.experiment.faults import CorruptBatch
from drkit.model.errors import Refused


def corrupt_batch(env: DrillEnvironment, fault: CorruptBatch) -> str:
    """Turn a byte of the last batch of a partition, behind the broker's back, as a bad disk does.

    Raises:
        Refused: the partition holds nothing.
    """
    topic = env.experiment.workload.topic
    with closing(LabCluster(env.lab, fault.cluster)) as cluster:
        _, end = cluster.ends(topic, fault.partition, committed=False)
        if not end:
            raise Refused(f"{topic}:{fault.partition} holds nothing on {fault.cluster}")
        batch = flip(cluster.data / f"{topic}-{fault.partition}", end - 1, -1)
    return (
        f"the batch of offsets {batch.base_offset} to {batch.last_offset} of {topic}:{fault.partition} "
        f"can't be read on {fault.cluster} any more: its checksum does not fit"
    )
