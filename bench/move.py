"""Moving many groups, from launch to done: `drkit failover --at`, beside Kafka's own `kafka-consumer-groups`.

Both put the same groups on the same topic of the same target where the log was at one moment. Kafka's tool only
commits. drkit also looks at both clusters, plans, fences and seals, never passes what a group had not read, journals
every step, reads every position back and the record there. Nine groups of ten are caught up; every tenth
lags somewhere.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from bench.cases import Extent
from bench.clusters import Cluster, Clusters
from bench.peers.base import Job
from bench.peers.drkit import STORE, render
from bench.positions import Offsets, check, commit, delete_groups, scattered
from bench.processes import CONFIG, MeasurementFailed, drkit, run
from bench.progress import Screen
from bench.results import MoveRun
from bench.targets import DRKIT, MOVE_OTHER
from drkit.lab.toolchain import Toolchain
from drkit.model.topology import TopicPartition

_TOPIC = "bench-move"
_PREFIX = "bench-move-"
_STEP_MS = 1000
_FLUSH_SECONDS = 60.0
_HEAP = "-Xmx512M"  # what Kafka's own script gives its tools is 256 MiB
_CLASS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@dataclass(frozen=True, slots=True)
class Move:
    """Runs the comparison on a pair of clusters; nothing else may run there."""

    clusters: Clusters
    work: Path
    screen: Screen
    extent: Extent
    toolchain: Toolchain

    def run(self, repeats: int) -> list[MoveRun]:
        """Both tools, by turns, so many times.

        Raises:
            MeasurementFailed: one of them failed, or left a group elsewhere than it should be.
        """
        extent = self.extent
        self.screen.say(f"move: {extent.move_groups:,} groups × {extent.move_partitions} partitions")  # noqa: RUF001
        source, target = self.clusters.source, self.clusters.target
        try:
            at = self._fill(source)
            with TemporaryDirectory(dir=self.work) as name:
                folder = Path(name)
                self._mirror(folder)
                shutil.copy(folder / STORE, folder / "before.db")
                runs = []
                for repeat in range(1, repeats + 1):
                    runs.append(self._kafka(target, at, repeat))
                    delete_groups(target, _PREFIX)
                    runs.append(self._drkit(folder, at, repeat))
                    target.delete_topics(
                        keep=(_TOPIC,)
                    )  # drkit's copy of its state: a store older than it moves nothing
                    for rest in folder.glob(f"{STORE}*"):
                        rest.unlink()
                    shutil.copy(folder / "before.db", folder / STORE)
                return runs
        finally:
            delete_groups(target, _PREFIX)
            delete_groups(source, _PREFIX)
            target.delete_topics()
            source.delete_topics()

    # -- the scene ---------------------------------------------------------------------------------

    def _fill(self, source: Cluster) -> datetime:
        """A topic with a record a second, and where every group stands; returns the moment to go back to."""
        extent = self.extent
        source.create_topic(_TOPIC, extent.move_partitions, {"retention.ms": "-1"})
        first = int(time.time() * 1000) - 2 * _STEP_MS * extent.move_records
        producer = Producer(
            {
                "bootstrap.servers": source.address,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": extent.move_records * extent.move_partitions + 1,
            }
        )
        for number in range(extent.move_records):
            for partition in range(extent.move_partitions):
                value = b"%d-%d-%s" % (partition, number, b"x" * 80)
                producer.produce(_TOPIC, value, partition=partition, timestamp=first + _STEP_MS * number)
        if producer.flush(_FLUSH_SECONDS):
            raise MeasurementFailed("the source could not be filled")
        commit(source, self._stands())
        return datetime.fromtimestamp((first + _STEP_MS * self._back_to) // 1000, UTC)

    @property
    def _back_to(self) -> int:
        """The first record of every partition from the moment on, which is its stamp cut to the second."""
        return self.extent.move_records * 3 // 4

    def _stands(self) -> dict[str, Offsets]:
        """Where groups are on the source."""
        extent = self.extent
        return scattered(_PREFIX, extent.move_groups, _TOPIC, extent.move_partitions, extent.move_records)

    def _mirror(self, folder: Path) -> None:
        job = Job(folder, self.clusters.source, self.clusters.target, _TOPIC, "lz4")
        (folder / CONFIG).write_text(render(job), encoding="utf-8")
        run(drkit(folder, "mirror", "--until-caught-up"), folder)

    # -- the two tools -----------------------------------------------------------------------------

    def _kafka(self, target: Cluster, at: datetime, repeat: int) -> MoveRun:
        """Kafka's tool resets groups that exist on its cluster: first all stand at the end there."""
        ends = {TopicPartition(_TOPIC, p): (self.extent.move_records, "") for p in range(self.extent.move_partitions)}
        commit(target, dict.fromkeys(self._stands(), ends))
        command = [
            *(str(self.toolchain.java), _HEAP, "-cp", self.toolchain.classpath("mirrormaker"), _CLASS),
            *("--bootstrap-server", target.address, "--reset-offsets", "--all-groups", "--all-topics"),
            *("--to-datetime", at.strftime("%Y-%m-%dT%H:%M:%S.000"), "--execute"),
        ]
        return self._measured(MOVE_OTHER, command, self.work, repeat, lambda _: self._back_to)

    def _drkit(self, folder: Path, at: datetime, repeat: int) -> MoveRun:
        words = ("--to", self.clusters.target.alias, "--all-groups", "--execute", "--yes", "--accept-unfenced")
        command = drkit(folder, "failover", *words, "--at", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        return self._measured(DRKIT, command, folder, repeat, lambda offset: min(offset, self._back_to))

    def _measured(
        self, tool: str, command: Sequence[str], folder: Path, repeat: int, expected: Callable[[int], int]
    ) -> MoveRun:
        ended = run(command, folder)
        wanted = {
            (group, tp): expected(offset)
            for group, offsets in self._stands().items()
            for tp, (offset, _) in offsets.items()
        }
        check(self.clusters.target, tool, wanted)
        self.screen.say(f"  {tool}: {ended.seconds:.1f} s, {ended.cpu_seconds:.1f} CPU-s")
        scene = (self.extent.move_groups, self.extent.move_partitions)
        return MoveRun(tool, *scene, repeat, ended.seconds, ended.cpu_seconds)
