"""The environment of a soak: three brokers on each side, its own link, its store, its workers, its load."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from chaos.soak.clusters import Side
from chaos.soak.load import KINDS
from chaos.soak.mirrors import Mirrors
from drkit.lab import Lab

BROKER_CONFIG = {
    # brokers check every few seconds for expired producers, so that it happens within a soak
    "producer.id.expiration.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
}


class World:
    """See the module docstring.

    Args:
        lab: clusters `primary` and `dr` of three brokers each.
        folder: for the configuration, the store, the logs.
        name: the prefix of the soak's topics and groups.
        workers: the number of workers of the link.
        cassandra: whether the store is the lab's Cassandra node, not SQLite.
        offsets: the link's mode.
    """

    def __init__(
        self, lab: Lab, folder: Path, name: str, *, workers: int, cassandra: bool, offsets: str = "preserve"
    ) -> None:
        self.lab = lab
        self.folder = folder
        self.cassandra = cassandra
        self.offsets = offsets
        self.source = Side("primary", lab.bootstrap("primary"))
        self.target = Side("dr", lab.bootstrap("dr"))
        self.topic = {kind.name: f"{name}-{kind.name}" for kind in KINDS}
        self.topics = list(self.topic.values())
        self.store_file = folder / "drkit.db"
        self.store_url = lab.store_url(name.replace("-", "_")) if cassandra else f"sqlite:///{self.store_file}"
        self.config = folder / "drkit.toml"
        self.config.write_text(
            f"""
[clusters.primary]
bootstrap_servers = "{self.source.bootstrap}"
[clusters.dr]
bootstrap_servers = "{self.target.bootstrap}"
[store]
url = "{self.store_url}"
[[links]]
source = "primary"
target = "dr"
topics = ["{name}-.*"]
groups = ["{name}-.*"]
offsets = "{offsets}"
"""
        )
        for kind in KINDS:
            self.source.create(self.topic[kind.name], kind.partitions, kind.settings)
        self.mirrors = Mirrors(workers, self.config, folder)
        self._starter = ThreadPoolExecutor(1)
        self._starting: Future[object] | None = None

    def restart(self, *nodes: str) -> None:
        """Start dead nodes again; returns at once."""
        self._starting = self._starter.submit(self.lab.restart, *nodes)

    def wait_started(self) -> None:
        """Wait until the nodes that `restart` started answer; raises its error."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.result()

    def close(self) -> None:
        """End the workers, and start no node any more."""
        self.mirrors.close()
        self._starter.shutdown()

    def status(self) -> dict[str, Any] | None:
        """The document of `drkit status` about the link; None if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "drkit", "status", "--config", str(self.config), "--output", "json"],
            capture_output=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            return None
        return dict(json.loads(done.stdout)["links"][0])

    def translate(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        """The answer of `drkit translate`."""
        place = ["--topic", topic, "--partition", str(partition), "--offset", str(offset)]
        done = subprocess.run(
            [sys.executable, "-m", "drkit", "translate", "--config", str(self.config), "--output", "json", *place],
            capture_output=True,
            check=True,
            timeout=120,
        )
        return dict(json.loads(done.stdout)["positions"][0])
