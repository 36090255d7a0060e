"""One cluster of the adversary's: what a drill may do to one, and what an independent reader sees of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from chaos.soak.reader import Content, read
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.log_surgery import stopped


class Cluster(LabCluster):
    """A cluster of one broker."""

    def read(self, topic: str, partition: int, *, committed: bool, ignore: str | None = None) -> Content:
        """All that a consumer of this isolation sees."""
        return read(self.bootstrap, topic, partition, committed=committed, ignore=ignore)

    def copy_disks(self, copy: Path) -> None:
        """Keep a copy of all that the broker holds, the controller's log too. It is away meanwhile."""
        with stopped(self._lab, self._node) as disk:
            shutil.copytree(disk.data, copy)

    def set_back(self, copy: Path) -> None:
        """Put such a copy in the place of all that it holds."""
        with stopped(self._lab, self._node) as disk:
            shutil.rmtree(disk.data)
            shutil.copytree(copy, disk.data)
