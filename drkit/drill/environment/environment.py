"""The environment of a drill: the lab, the mirror's process, the clients, and the times that are measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drkit.config import load_config
from drkit.drill.environment.child_processes import Child, Finished, run_command
from drkit.drill.environment.clients import Clients
from drkit.drill.experiment.experiment import Experiment, Failover, Load
from drkit.drill.judge.history import ConfirmedPosition
from drkit.drill.workload.reading import ANSWER_SECONDS, NotRead, group_positions
from drkit.lab import Lab
from drkit.model.errors import DrkitError

STATUS_SECONDS = 30.0
"""How long `drkit status` may take."""


@dataclass
class DrillEnvironment:
    """The environment of one drill. Times are seconds of CLOCK_MONOTONIC.

    `disaster_at`: the moment of the first fault on the source, else of the failover.
    `moved`: whether clients were moved to the target after a failover that succeeded.
    `started_from`: where the group stood on the target before it read there; `start_unknown` says why
    that couldn't be read.
    """

    run: str
    experiment: Experiment
    lab: Lab
    folder: Path
    say: Callable[[str], None]
    clients: Clients
    properties: dict[str, dict[str, str]]
    mirror: Child | None = None
    loads: list[Child] = field(default_factory=list)
    disaster_at: float | None = None
    failover: dict[str, Any] | None = None
    failed_over: bool = False
    moved: bool = False
    started_from: tuple[ConfirmedPosition, ...] = ()
    start_unknown: str | None = None

    @classmethod
    def on(
        cls, lab: Lab, run: str, experiment: Experiment, folder: Path, say: Callable[[str], None]
    ) -> DrillEnvironment:
        """An environment on a lab that is up."""
        config = load_config(lab.config_path)
        properties = {
            alias: {"bootstrap.servers": cluster.bootstrap_servers, **cluster.properties()}
            for alias, cluster in config.clusters.items()
        }
        clients = Clients(run, folder, experiment.workload, properties)
        return cls(run, experiment, lab, folder, say, clients, properties)

    def note_disaster(self) -> None:
        """From here on RPO and RTO are counted; the first call wins."""
        if self.disaster_at is None:
            self.disaster_at = time.monotonic()

    def note_positions(self, cluster: str) -> None:
        """Keep where the group stands on a cluster by the coordinator's account, before it reads there."""
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

    # -- processes ---------------------------------------------------------------------------

    def start_mirror(self) -> Child:
        """Start `drkit mirror` on the lab."""
        arguments = ["-m", "drkit", "mirror", "--config", str(self.lab.config_path), "--output", "json"]
        self.mirror = Child("mirror", arguments, self.folder / "mirror.log", self.folder)
        return self.mirror

    def the_mirror(self) -> Child:
        """The mirror's process.

        Raises:
            DrkitError: it was never started.
        """
        if self.mirror is None:
            raise DrkitError("the mirror was not started", remedy="Put a `do: mirror` step before this one")
        return self.mirror

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

    def run_failover(self, step: Failover) -> Finished:
        """Run `drkit failover` to its end."""
        arguments = ["-m", "drkit", "failover", "--config", str(self.lab.config_path), "--output", "json"]
        arguments += ["--to", step.to, f"--{step.mode}", "--yes"]
        if step.at is not None:
            arguments += [f"--at={step.at}"]
        if step.accept_unfenced:
            arguments.append("--accept-unfenced")
        for group in step.groups:
            arguments += ["--group", group]
        return run_command(arguments, self.folder / "failover.log", self.folder, step.timeout_seconds)

    def status(self) -> dict[str, Any] | None:
        """What `drkit status` says now; None where it says nothing (its log is kept)."""
        arguments = ["-m", "drkit", "status", "--config", str(self.lab.config_path), "--output", "json"]
        finished = run_command(arguments, self.folder / "status.log", self.folder, STATUS_SECONDS)
        return document(finished.stdout) if finished.exit_code == 0 else None

    def end_processes(self) -> None:
        """End the clients, the loaders and the mirror, whatever they are doing."""
        self.clients.stop(self.clients.running())
        for child in (*self.loads, *([] if self.mirror is None else [self.mirror])):
            child.stop()


def document(text: str) -> dict[str, Any] | None:
    """The one JSON object of a command's stdout; None where it isn't one."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
