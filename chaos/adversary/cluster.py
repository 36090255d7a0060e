"""One cluster of the adversary: a drill's actions on a cluster, and an independent reader."""

from __future__ import annotations

from pathlib import Path

from chaos.soak.reader import Content, read
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.log_surgery import stopped


class Cluster(LabCluster):
    """A cluster of one broker."""

    def read(self, topic: str, partition: int, *, committed: bool, ignore: str | None = None) -> Content:
        """Everything that a consumer with this isolation sees."""
        return read(self.bootstrap, topic, partition, committed=committed, ignore=ignore)

    def forget_start(self, topic: str, partition: int) -> None:
        """Let the broker forget where the log of a partition begins. It is down meanwhile."""
        with stopped(self._lab, self._node) as disk:
            disk.forget_start(topic, partition)

    def copy_disks(self, copy: Path) -> None:
        """Copy all data of the broker, including the controller's log. It is down meanwhile."""
        with stopped(self._lab, self._node) as disk:
            disk.copy_to(copy)

    def set_back(self, copy: Path) -> None:
        """Replace all its data with such a copy."""
        with stopped(self._lab, self._node) as disk:
            disk.set_back(copy)
