"""The environment of a drill: the lab, the mirror's process, the clients, and the measured times."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drkit.config import Config, load_config
from drkit.drill.environment.child_processes import Child, Finished, run_command
from drkit.drill.environment.clients import Clients
from drkit.drill.environment.secured import LISTENER, grant_access, has_listener, uses_tls
from drkit.drill.environment.wan import Wan
from drkit.drill.experiment.base import SOURCE, TARGET
from drkit.drill.experiment.experiment import Experiment, Failback, Load, Move, Reprotect, Workload
from drkit.drill.experiment.faults import Fault
from drkit.drill.judge.history import ConfirmedPosition, StatedPosition
from drkit.drill.results.recording import MIRROR_LOG
from drkit.drill.workload.reading import ANSWER_SECONDS, NotRead, group_positions
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab import Lab
from drkit.lab.secure import SecureDir
from drkit.lab.toolchain.cache import write_atomically
from drkit.model.errors import DrkitError, ExitCode, Refused

STATUS_SECONDS = 30.0
"""Timeout of `drkit status`."""
_RESUMABLE = frozenset({int(ExitCode.PARTLY_DONE), int(ExitCode.UNKNOWN), -signal.SIGKILL})
"""Exit codes of a run that `drkit resume` may complete."""


@dataclass
class DrillEnvironment:
    """The environment of one drill. Times are seconds of CLOCK_MONOTONIC.

    `disasters`: the moments of the faults on the source, and of the failover.
    `moved`: whether clients were moved to the target after a failover that succeeded.
    `started_from`: the group's position on the target before it read there; `start_unknown` says why that couldn't be
    read.
    `stated`: where the last failover stated that the group continues; empty if it did not succeed.
    `run_process`: the run that is stopped at a stage now.
    `may_not_strike`: why a fault may not be injected now, by a safety rule; None: it may.
    `applications`: the client properties of the applications, by cluster; not `properties` if they have their own user.
    `took_data_from`: clusters from which a fault removed data, or may have.
    """

    run: str
    experiment: Experiment
    lab: Lab
    folder: Path
    say: Callable[[str], None]
    clients: Clients
    properties: dict[str, dict[str, str]]
    applications: dict[str, dict[str, str]]
    wan: Wan | None = None
    may_not_strike: Callable[[Fault], str | None] = lambda _: None
    took_data_from: set[str] = field(default_factory=set)
    mirror: Child | None = None
    run_process: subprocess.Popen[str] | None = None
    loads: list[Child] = field(default_factory=list)
    disasters: list[float] = field(default_factory=list)
    failover: dict[str, Any] | None = None
    failback: dict[str, Any] | None = None
    reprotect: dict[str, Any] | None = None
    failed_over: bool = False
    moved: bool = False
    started_from: tuple[ConfirmedPosition, ...] = ()
    start_unknown: str | None = None
    stated: tuple[StatedPosition, ...] = ()

    @classmethod
    def on(
        cls, lab: Lab, run: str, experiment: Experiment, folder: Path, say: Callable[[str], None]
    ) -> DrillEnvironment:
        """An environment on a running lab."""
        config = own_configuration(lab, experiment)
        properties = {
            alias: {"bootstrap.servers": cluster.bootstrap_servers, **cluster.properties()}
            for alias, cluster in config.clusters.items()
        }
        applications = grant_access(lab) if experiment.lab.secured else properties
        clients = Clients(run, folder, experiment.workload, applications)
        wan = Wan.of(lab, folder) if experiment.lab.wan else None
        return cls(run, experiment, lab, folder, say, clients, properties, applications, wan)

    @property
    def disaster_at(self) -> float | None:
        """From when RPO and RTO are measured; None: nothing struck the source, and no failover began."""
        return min(self.disasters, default=None)

    def note_disaster(self) -> None:
        """Note the moment of a fault on the source, or of a failover."""
        self.disasters.append(time.monotonic())

    def note_positions(self, cluster: str) -> None:
        """Store the group's position on a cluster, by its coordinator, before it reads there."""
        workload = self.experiment.workload
        try:
            found = group_positions(
                self.properties[cluster], workload.group, workload.topic, workload.partitions, ANSWER_SECONDS
            )
        except NotRead as error:
            self.start_unknown = str(error)
            return
        at = time.monotonic()
        self.started_from = tuple(
            ConfirmedPosition(cluster, partition, offset, at) for partition, offset in found.items()
        )

    def credentials_of(self, cluster: str) -> dict[str, str]:
        """The applications' credentials on a cluster.

        Raises:
            Refused: they need none.
        """
        found = self.applications[cluster]
        if "sasl.username" not in found:
            raise Refused(f"the applications need no credentials on {cluster}", remedy="Set lab.secured to true")
        return found

    def certificates(self) -> SecureDir:
        """The certificates of the applications' listeners.

        Raises:
            Refused: the applications don't use TLS.
        """
        if not uses_tls(self.lab):
            raise Refused("the applications of this lab don't use TLS", remedy="Set lab.tls to true")
        return self.lab.secure_dir

    # -- processes ---------------------------------------------------------------------------

    def start_mirror(self) -> Child:
        """Start `drkit mirror` on the lab."""
        arguments = ["-m", "drkit", "mirror", "--config", str(self.lab.config_path), "--output", "json"]
        self.mirror = Child("mirror", arguments, self.folder / MIRROR_LOG, self.folder)
        return self.mirror

    def the_mirror(self) -> Child:
        """The mirror's process.

        Raises:
            DrkitError: it was never started.
        """
        if self.mirror is None:
            raise DrkitError("the mirror was not started", remedy="Put a `do: mirror` step before this one")
        return self.mirror

    def the_wan(self) -> Wan:
        """The network between drkit and primary.

        Raises:
            Refused: there is none.
        """
        if self.wan is None:
            raise Refused("the lab has no network to primary that could be disturbed", remedy="Set lab.wan to true")
        return self.wan

    def the_run(self) -> subprocess.Popen[str]:
        """The process of the run that is stopped at a stage.

        Raises:
            Refused: there is none.
        """
        if self.run_process is None:
            raise Refused(
                "no run is stopped at a stage", remedy="Put the fault into the strikes of a failover or failback"
            )
        return self.run_process

    def start_load(self, load: Load) -> Child:
        """Start `drkit lab load` on the lab."""
        arguments = ["-m", "drkit", "lab", "load", load.dataset, "--dir", str(self.lab.dir)]
        if load.rate is not None:
            arguments += ["--rate", f"{load.rate:g}"]
        if load.limit is not None:
            arguments += ["--limit", str(load.limit)]
        child = Child(f"load {load.dataset}", arguments, self.folder / f"load-{load.dataset}.log", self.folder)
        self.loads.append(child)
        return child

    def run_move(self, step: Move, strike: Callable[[str], None]) -> Finished:
        """Run `drkit failover` or `drkit failback` to its end, and `drkit resume` as often as the step allows.

        `strike` is called with the name of each stage of `step.strikes`, while the run is stopped there.
        """
        pending: list[str] = [each.at for each in step.strikes]
        arguments = self._arguments(step)
        for resumes_left in range(step.resumes, -1, -1):
            finished = self._run(step, arguments, pending, strike)
            if finished.exit_code not in _RESUMABLE or not resumes_left:
                break
            self.say(f"the run ended with exit code {finished.exit_code}: drkit resume")
            arguments = ["resume", *self._common(step)]
        return finished

    def _arguments(self, step: Move) -> list[str]:
        arguments = [step.do, "--to", step.to, *self._common(step)]
        if isinstance(step, Failback):
            return [*arguments, "--cluster-id", self.lab.cluster_id(step.to)]
        arguments.append(f"--{step.mode}")
        if step.at is not None:
            arguments += [f"--at={step.at}"]
        for group in step.groups:
            arguments += ["--group", group]
        return arguments

    def _common(self, step: Move) -> list[str]:
        arguments = ["--config", str(self.lab.config_path), "--output", "json", "--yes"]
        if isinstance(step, Failback):
            arguments += ["--salvage-dir", str(self.folder / "salvage")]
        return [*arguments, "--accept-unfenced"] if step.accept_unfenced else arguments

    def _run(self, step: Move, arguments: list[str], pending: list[str], strike: Callable[[str], None]) -> Finished:
        log = self.folder / f"{step.do}.log"
        if not pending:
            return run_command(["-m", "drkit", *arguments], log, self.folder, step.timeout_seconds)
        note = self.folder / "stage"

        def at_stop(process: subprocess.Popen[str]) -> None:
            stage = note.read_text(encoding="utf-8")
            pending.remove(stage)
            self.run_process = process
            strike(stage)
            self.run_process = None

        stopping = ["-m", "drkit.drill.environment.stage_stop", str(note), ",".join(pending), *arguments]
        return run_command(stopping, log, self.folder, step.timeout_seconds, at_stop)

    def run_reprotect(self, step: Reprotect) -> Finished:
        """Run `drkit reprotect` to its end."""
        arguments = ["--config", str(self.lab.config_path), "--output", "json", "--yes"]
        arguments += ["--cluster-id", self.lab.cluster_id(SOURCE), "--salvage-dir", str(self.folder / "salvage")]
        log = self.folder / "reprotect.log"
        return run_command(["-m", "drkit", "reprotect", *arguments], log, self.folder, step.timeout_seconds)

    def turn_link_round(self) -> None:
        """Reverse the configuration's link, as the operator does after a reprotect.

        Raises:
            DrkitError: the configuration has no link from primary to dr.
        """
        before = self.lab.config_path.read_text(encoding="utf-8")
        link = rf'source = "{SOURCE}"\ntarget = "{TARGET}"'
        after, found = re.subn(link, f'source = "{TARGET}"\ntarget = "{SOURCE}"', before)
        if not found:
            raise DrkitError(f"{self.lab.config_path} has no link from {SOURCE} to {TARGET}")
        write_atomically(self.lab.config_path, after)

    def mirror_problems(self) -> set[tuple[str, int | None]]:
        """Kind and partition of the problems of the workload's topic in the mirror's output so far."""
        try:
            lines = (self.folder / MIRROR_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return set()
        documents = (document(line) for line in lines if line.startswith("{"))
        topic = self.experiment.workload.topic
        return {
            (one["kind"], one.get("partition"))
            for one in documents
            if one is not None and (one.get("type"), one.get("topic")) == ("problem", topic)
        }

    def members(self, cluster: str) -> int | None:
        """How many members the workload's group has on a cluster; None if unknown."""
        group = self.experiment.workload.group
        try:
            with GroupAdmin(cluster, load_config(self.lab.config_path).clusters[cluster]) as groups:
                return groups.members([group])[group]
        except DrkitError:
            return None

    def status(self) -> dict[str, Any] | None:
        """The current document of `drkit status`; None if it returns none (its log is kept)."""
        arguments = ["-m", "drkit", "status", "--config", str(self.lab.config_path), "--output", "json"]
        finished = run_command(arguments, self.folder / "status.log", self.folder, STATUS_SECONDS)
        return document(finished.stdout) if finished.exit_code == 0 else None

    def end_processes(self) -> None:
        """End the clients, the loaders and the mirror in any state."""
        self.clients.stop(self.clients.running())
        for child in (*self.loads, *([] if self.mirror is None else [self.mirror])):
            child.stop()
        if self.wan is not None:
            self.wan.close()


def own_configuration(lab: Lab, experiment: Experiment) -> Config:
    """The lab's configuration, which every command of a drill uses.

    Raises:
        Refused: it was changed and names other clusters than the lab's, or another store; or the experiment has
            faults, and a cluster there isn't marked `drill = true`.
    """
    config = load_config(lab.config_path)
    own = {alias: lab.bootstrap(alias) for alias in lab.clusters}
    named = {alias: cluster.bootstrap_servers for alias, cluster in config.clusters.items()}
    writers = {alias: config.clusters[alias].fence.bootstrap_servers for alias in own.keys() & named.keys()}
    known = {alias: {None, lab.bootstrap(alias)} for alias in writers}
    if has_listener(lab):
        known = {alias: places | {lab.bootstrap(alias, listener=LISTENER)} for alias, places in known.items()}
    clusters = named == own and all(place in known[alias] for alias, place in writers.items())
    if not clusters or config.store.plain_url != lab.store_url():
        what = "a store" if clusters else "clusters"
        raise Refused(
            f"{lab.config_path} names {what} other than those of its lab",
            meaning="A drill uses that file, and would inject faults outside of a lab; nothing was changed",
            remedy="Leave --dir out: the drill creates its own lab",
        )
    unmarked = [alias for alias, cluster in config.clusters.items() if not cluster.drill]
    if experiment.has_faults and unmarked:
        raise Refused(
            f"{lab.config_path} does not allow faults on {' and '.join(unmarked)}",
            meaning="The experiment injects faults, which only clusters with drill = true allow; nothing was changed",
            remedy=f"If nobody else needs them: set drill = true under [clusters.{unmarked[0]}]"
            + (" and the other" if len(unmarked) > 1 else "")
            + "; or leave --dir out: the drill creates its own lab",
        )
    return config


def stated_positions(told: dict[str, Any] | None, workload: Workload, at: float) -> tuple[StatedPosition, ...]:
    """Where a document of `drkit failover` says that the workload's group continues; `at`: when the failover ended."""
    rows = [] if told is None else told.get("groups", [])
    return tuple(
        StatedPosition(row["partition"], row["target_offset"], row["reread_at_most"], at)
        for row in rows
        if (row["group"], row["topic"]) == (workload.group, workload.topic) and row["target_offset"] is not None
    )


def document(text: str) -> dict[str, Any] | None:
    """The one JSON object of a command's stdout; None if it isn't one."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
