"""The environment of a run: its own topic and link on a lab that many runs share, its clusters, store and workers."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from chaos.adversary.load import Load
from chaos.adversary.oracle import Journal
from chaos.adversary.plan import Action, Plan
from chaos.adversary.plants import plant as plant_here
from chaos.adversary.plants import unplant
from chaos.soak.clusters import Content, SoakError, read
from chaos.soak.mirrors import Worker
from drkit.cli.application import application
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.drill.environment.log_surgery import stopped
from drkit.model.errors import ExitCode


class Cluster(LabCluster):
    """A cluster of one broker."""

    def read(self, topic: str, partition: int, *, committed: bool, ignore: str | None = None) -> Content:
        """Everything that a consumer with this isolation sees."""
        return read(self.bootstrap, topic, partition, committed=committed, ignore=ignore)

    def forget_start(self, topic: str, partition: int) -> None:
        """Let the broker forget where the log of a partition begins. It is down meanwhile."""
        with stopped(self._lab, self._node) as disk:
            disk.forget_start(topic, partition)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit a group's offsets, which has no members."""
        with closing(self._member(group)) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, *each) for each in offsets.items()], asynchronous=False)

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        """What it committed of each partition."""
        with closing(self._member(group)) as consumer:
            found = consumer.committed([TopicPartition(topic, each) for each in partitions], timeout=20)
        return {each.partition: each.offset if each.offset >= 0 else None for each in found}

    def _member(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})

    @contextmanager
    def away(self) -> Iterator[None]:
        """The broker is dead during the body."""
        with stopped(self._lab, self._node, cleanly=False):
            yield

    def copy_disks(self, copy: Path) -> None:
        """Copy all data of the broker, including the controller's log. It is down meanwhile."""
        with stopped(self._lab, self._node) as disk:
            disk.copy_to(copy)

    def set_back(self, copy: Path) -> None:
        """Replace all its data with such a copy."""
        with stopped(self._lab, self._node) as disk:
            disk.set_back(copy)


BROKER_CONFIG = {
    "log.retention.check.interval.ms": "1000",
    "producer.id.expiration.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""Brokers do every second here what they usually do every few minutes."""

LINK = "primary->dr"
_STOP_SECONDS = 25.0
_REFUSED, _OLDER = 3, "the store is older than its copy"
_ALTERS = {
    "": "",
    "transform": 'transform = "chaos.adversary.callables:alters"',
    "filter": 'filter = "chaos.adversary.callables:keeps"',
    "provenance": "provenance = true",
}
FOREVER = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
_BATCH_BYTES = 500_000
_SMALL_BUFFER = "buffer_bytes = 1048576"  # a backlog takes many responses, one while another ends the partition


class World:
    """See the module docstring.

    Args:
        source, target: the clusters.
        folder: for the configuration, the store, the logs; only for this run.
        plan: the plan.
        plant: a defect to plant in the workers; "-": none.
    """

    def __init__(self, source: Cluster, target: Cluster, folder: Path, plan: Plan, plant: str) -> None:
        self.source, self.target = source, target
        self.folder = folder
        self.plan = plan
        self.topic = f"a-{folder.name}"
        self.partitions = plan.partitions
        self.journal = Journal()
        self.control = folder / "die-at"
        self.store_file = folder / "drkit.db"
        self.copy_file = folder / "copy.db"
        self.config = folder / "drkit.toml"
        self.worker: Worker | None = None
        self.ended: list[str] = []
        self.over = False
        """Whether the link was failed over: nothing is mirrored any more."""
        self._restored = False
        self._armed = False
        self._meant: set[subprocess.Popen[bytes]] = set()
        self._program = ("-m", "chaos.adversary.worker", str(self.control), plant)
        self._workers: list[Worker] = []
        self._verbs = application(("status", "translate", "link", "audit", "store", "failover"))
        plant_here(plant)  # `status` and `translate` run in this process
        self.config.write_text(
            f"""
[clusters.primary]
bootstrap_servers = "{source.bootstrap}"
[clusters.dr]
bootstrap_servers = "{target.bootstrap}"
[store]
url = "sqlite:///{self.store_file}"
[[links]]
source = "primary"
target = "dr"
topics = ["{self.topic}"]
groups = ["{self.topic}"]
offsets = "{plan.offsets}"
{_ALTERS[plan.alters]}
{"" if plan.committed else 'isolation = "read_uncommitted"'}
{_SMALL_BUFFER if any(action.kind == "refuse" for action in plan.actions) else ""}
{_overridden(plan.overrides)}
"""
        )
        self.create_source()
        size = int(plan.settings.get("max.message.bytes", _BATCH_BYTES)) * 3 // 4
        self.load = Load(
            source.bootstrap,
            self.topic,
            plan.alters,
            size,
            self.journal,
            committed=plan.committed,
            keyed="cleanup.policy" in plan.settings or any(_compacts(action) for action in plan.actions),
        )

    def create_source(self) -> None:
        """Create the topic according to the plan."""
        self.source.create(self.topic, self.partitions, FOREVER | self.plan.settings)

    def side(self, name: str) -> Cluster:
        """`source` or `target`."""
        return self.source if name == "source" else self.target

    # -- workers -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the mirror, if it doesn't run."""
        self.look_after()
        if self.worker is None:
            self.worker = self.another()
        elif self.worker.process.poll() is not None:
            self.worker.again()

    def another(self) -> Worker:
        """Start another worker."""
        worker = Worker(len(self._workers) + 1, self.config, self.folder, self._program)
        self._workers.append(worker)
        return worker

    def kill(self) -> None:
        """SIGKILL of the mirror; it stays down."""
        if self.worker is not None:
            self._note_end(self.worker)
            self._meant.add(self.worker.process)
            self.worker.send(signal.SIGKILL)
            self.worker.process.wait()

    def stop(self, worker: Worker) -> None:
        """SIGTERM; a worker that doesn't end in time, or with another code than 0, is a finding."""
        self._note_end(worker)
        if worker.process in self._meant:
            return  # it has ended
        self._meant.add(worker.process)
        worker.send(signal.SIGCONT)
        worker.send(signal.SIGTERM)
        code = worker.wait(_STOP_SECONDS)
        said = worker.said(0, 6)
        begun = not (said and said[-1].startswith("--- start"))  # else Python hadn't loaded the signal handler yet
        if code not in (0, ExitCode.TERMINATED) and (begun or code != -signal.SIGTERM):  # 143: not a mirror yet
            self.ended.append(f"worker {worker.number} ended with {code} after SIGTERM: {said}")
        worker.end_now()

    def expect_end(self) -> None:
        """From now on any worker may end by itself."""
        self.look_after()
        self._meant.update(worker.process for worker in self._workers)

    def arm(self, point: str, pass_by: int, number: signal.Signals) -> None:
        """The worker sends itself this signal when it has passed a fault point so many times."""
        draft = self.control.with_suffix(".draft")
        draft.write_text(f"{point} {pass_by} {number.name}")
        draft.rename(self.control)
        self._armed = number is signal.SIGKILL

    def disarm(self) -> None:
        """No signal any more; one that is being sent has arrived on return."""
        try:
            self.control.unlink()
        except FileNotFoundError:
            if self._armed and self.worker is not None:
                self.worker.wait(_STOP_SECONDS)
        else:
            self._armed = False

    def look_after(self) -> None:
        """Note each worker that ended by itself as a finding, and start the mirror again if it did. One that refuses a
        restored store does what it should: then the operator follows the remedy."""
        for worker in self._workers:
            if self._note_end(worker) and worker is self.worker:
                worker.again()

    def _note_end(self, worker: Worker) -> bool:
        """Note it if a worker ended by itself; returns whether it did."""
        code = worker.process.poll()
        if code is None or worker.process in self._meant:
            return False
        self._meant.add(worker.process)
        if code == -signal.SIGKILL and self._armed and not self.control.exists():
            self._armed = False  # at its fault point
        elif code == _REFUSED and self._restored and any(_OLDER in line for line in worker.said(0, 12)):
            self.recover_store()
        else:
            self.ended.append(f"worker {worker.number} ended by itself with {code}: {worker.said(0, 12)}")
        return True

    @contextmanager
    def mirror(self, state: str) -> Iterator[None]:
        """Keep the mirror live, frozen, killed or stopped during the body; afterwards it runs."""
        worker = self.worker
        if worker is None or state == "live":
            yield
            return
        if state == "frozen":
            worker.send(signal.SIGSTOP)
            try:
                yield
            finally:
                worker.send(signal.SIGCONT)
            return
        if state == "killed":
            self.kill()
        else:
            self.stop(worker)
        yield
        worker.again()

    def close(self) -> None:
        """End every worker, delete the topics, remove planted defects from this process."""
        unplant()
        self.load.close()
        for worker in self._workers:
            worker.end_now()
        for cluster in (self.source, self.target):
            if cluster.partitions(self.topic):
                cluster.delete(self.topic)

    # -- the store ---------------------------------------------------------------------------------

    def copy_store(self) -> bool:
        """Copy the store; returns whether there is one."""
        if not self.store_file.exists():
            return False
        with sqlite3.connect(self.store_file, timeout=20) as here, sqlite3.connect(self.copy_file) as there:
            here.backup(there)
        here.close()
        there.close()
        return True

    def restore_store(self) -> bool:
        """Replace the store with the copy; returns whether there is one. No worker may run."""
        if not self.copy_file.exists():
            return False
        self._remove_store()
        shutil.copy(self.copy_file, self.store_file)
        self._restored = True
        return True

    def lose_store(self, mirror: str) -> None:
        """Remove the store's files, under a live mirror or none; a live one has to end by itself."""
        worker = self.worker
        if worker is None:
            return
        if mirror == "killed":
            self.kill()
        elif mirror == "stopped":
            self.stop(worker)
        self._meant.add(worker.process)
        self._remove_store()
        if mirror == "live" and worker.wait(_STOP_SECONDS) is None:
            self.ended.append(f"worker {worker.number} runs on without its store: {worker.said(0, 6)}")

    def _remove_store(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.store_file.with_name(self.store_file.name + suffix).unlink(missing_ok=True)

    def recover_store(self) -> None:
        """Fill another store from the copy on the target, in place of one that is older than that, or lost."""
        self._restored = False
        for worker in self._workers:
            if worker.process.poll() is None:
                self._meant.add(worker.process)
                worker.send(signal.SIGKILL)
                worker.process.wait()
        self._remove_store()
        code, said = self.ask("store", "recover", "--from", LINK.split("->")[1])
        if code:
            self.ended.append(f"store recover ends with {code}: {said.get('error')}")
        self.ask("link", "resume", LINK)

    # -- drkit's output ----------------------------------------------------------------------------

    def ask(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run a verb of drkit in this process; returns its exit code and its JSON."""
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            code = self._verbs([*arguments, "--config", str(self.config), "--output", "json"], standalone_mode=False)
        try:
            return int(code or 0), json.loads(out.getvalue())
        except ValueError as error:
            raise SoakError(f"drkit {' '.join(arguments)} printed no JSON: {out.getvalue()[:300]}") from error

    def order(self, *arguments: str) -> None:
        """As `ask`, for a step of the run itself: it must succeed, else the run proves nothing."""
        code, said = self.ask(*arguments)
        if code:
            raise SoakError(f"drkit {' '.join(arguments)} ends with {code}: {said.get('error')}")

    def status(self) -> dict[str, Any] | None:
        """`drkit status` of the link; None if it fails."""
        code, said = self.ask("status")
        return None if code else dict(said["links"][0])

    def translate(self, partition: int, offset: int) -> dict[str, Any]:
        """`drkit translate`."""
        code, said = self.ask(
            "translate", "--topic", self.topic, "--partition", str(partition), "--offset", str(offset)
        )
        if code:
            return {"translation": "unavailable", "target_offset": None, "reason": said["error"]["what"]}
        return dict(said["positions"][0])


def _compacts(action: Action) -> bool:
    """Whether the source's topic is compacted from an action on."""
    return action.options.get("name") == "cleanup.policy" and action.options.get("side") == "source"


def _overridden(settings: dict[str, str]) -> str:
    """The table of a link's overrides."""
    said = [f'"{name}" = "{value}"' for name, value in settings.items()]
    return f"[links.topic_settings]\noverrides = {{ {', '.join(said)} }}" if said else ""
