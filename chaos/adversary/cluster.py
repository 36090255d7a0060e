"""One cluster of the adversary's: what a drill may do to one, and what an independent reader sees of it."""

from __future__ import annotations

from chaos.soak.reader import Content, read
from drkit.drill.environment.lab_cluster import LabCluster


class Cluster(LabCluster):
    """A cluster of one broker."""

    def read(self, topic: str, partition: int, *, committed: bool, ignore: str | None = None) -> Content:
        """All that a consumer of this isolation sees."""
        return read(self.bootstrap, topic, partition, committed=committed, ignore=ignore)
