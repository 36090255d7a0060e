"""The environment of a drill: the lab, the mirror's process, the clients, and the measured times."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drkit.config import Config, LinkConfig, load_config
from drkit.drill.environment.child_processes import Child, Finished, environment, run_command
from drkit.drill.environment.clients import Client, Clients, Kind, LinkProgress
from drkit.drill.environment.secured import LISTENER, grant_access, has_listener, uses_tls
from drkit.drill.environment.wan import Wan
from drkit.drill.experiment.base import LinkSpec
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.faults import Fault, TopicFault, is_disaster
from drkit.drill.experiment.reader import runbook_file
from drkit.drill.experiment.steps import (
    Failback,
    Failover,
    Load,
    Move,
    Reprotect,
    RunbookBlocks,
    Workload,
    command_of,
    load_command,
)
from drkit.drill.judge.history import StatedLoss, StatedPosition
from drkit.drill.results.recording import MIRROR_LOG
from drkit.drill.runbook import read_runbook
from drkit.files import write_atomically
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab import Lab
from drkit.lab.secure import SecureDir
from drkit.model.errors import DrkitError, ExitCode, Refused

STATUS_SECONDS = 30.0
"""Timeout of `drkit status`."""
_RESUMABLE = frozenset({int(ExitCode.PARTLY_DONE), int(ExitCode.UNKNOWN), -signal.SIGKILL})
"""Exit codes of a run that `drkit resume` may complete."""


@dataclass
class DrillEnvironment:
    """The environment of one drill.

    `links`: by name. `failover`, `failback`, `reprotect`: the document of the last one.
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
    links: dict[str, LinkProgress]
    properties: dict[str, dict[str, str]]
    applications: dict[str, dict[str, str]]
    wan: Wan | None = None
    may_not_strike: Callable[[Fault], str | None] = lambda _: None
    took_data_from: set[str] = field(default_factory=set)
    mirror: Child | None = None
    run_process: subprocess.Popen[str] | None = None
    loads: list[Child] = field(default_factory=list)
    failover: dict[str, Any] | None = None
    failback: dict[str, Any] | None = None
    reprotect: dict[str, Any] | None = None

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
        links: dict[str, LinkProgress] = {}
        for spec in experiment.links:
            workload, drill = experiment.workload(spec.name), f"{run}/{spec.name}"
            clients = Clients(drill, folder, workload, applications, spec)
            links[spec.name] = LinkProgress(spec, workload, clients, drill)
        wan = Wan.of(lab, folder) if experiment.lab.wan else None
        return cls(run, experiment, lab, folder, say, links, properties, applications, wan)

    def note_fault(self, fault: Fault) -> None:
        """Note the moment of a fault that is a disaster of a link."""
        for link in self.links.values():
            if is_disaster(fault, link.spec.source):
                link.note_disaster()

    def topic(self, fault: TopicFault) -> str:
        """The topic at which a fault strikes: its link's workload's, on its cluster."""
        return self.links[fault.link].topic_on(fault.cluster)

    def stop_clients(self, link: str | None = None, kind: Kind | None = None) -> list[Client]:
        """Stop clients (of a link, of a kind); returns those that ran."""
        found: list[Client] = []
        for each in self.links.values():
            if link in (None, each.spec.name):
                running = each.clients.running(kind)
                each.clients.stop(running)
                found += running
        return found

    def died(self) -> list[Client]:
        """Clients of all links that ended unrequested, or with an incomplete history."""
        return [client for link in self.links.values() for client in link.clients.died()]

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
        arguments = ["-m", "drkit", *load_command(load, str(self.lab.dir))]
        child = Child(f"load {load.dataset}", arguments, self.folder / f"load-{load.dataset}.log", self.folder)
        self.loads.append(child)
        return child

    def run_move(self, step: Move, strike: Callable[[str], None]) -> Finished:
        """Run `drkit failover` or `drkit failback` to its end, and `drkit resume` as often as the step allows.

        `strike` is called with the name of each stage of `step.strikes`, while the run is stopped there.
        """
        pending: list[str] = [each.at for each in step.strikes]
        arguments = self._command(step)
        for resumes_left in range(step.resumes, -1, -1):
            finished = self._run(step, arguments, pending, strike)
            if finished.exit_code not in _RESUMABLE or not resumes_left:
                break
            self.say(f"the run ended with exit code {finished.exit_code}: drkit resume")
            arguments = self._resume(step)
        return finished

    def run_runbook(self, step: Failover, runbook: RunbookBlocks) -> Finished:
        """Execute the blocks of a runbook, up to the first command that ends with another code than 0 or 6.

        Returns its exit code (else 6 where one missed an objective, else 0), and the document of the last failover as
        `drkit runs` has it, of one that they began. What every command said is in `runbook.log`.
        """
        names = {"DRKIT_CONFIG": str(self.lab.config_path), "PLAN": str(self.folder / "failover-plan.json")}
        (link,) = self.experiment.moved_by(step)
        book = read_runbook(runbook_file(runbook.book), {**names, "PRIMARY": link.source, "DR": link.target})
        log, code = self.folder / "runbook.log", 0
        before = self._failovers()
        for command in (each for name in runbook.blocks for each in book.of_block(name)):
            self.say(f"{command.place}: {' '.join(command.argv)}")
            env = {**environment(), **book.environment}
            done = run_command(["-m", *command.argv], log, self.folder, step.timeout_seconds, env=env)
            with log.open("a", encoding="utf-8") as said:
                said.write(f"{command.place}: {' '.join(command.argv)}: exit code {done.exit_code}\n{done.stdout}\n")
            if done.exit_code not in (ExitCode.OK, ExitCode.OBJECTIVE_MISSED):
                return Finished(done.exit_code, self._failover_since(before), f" of {command.place}{done.log}")
            code = max(code, done.exit_code)
        return Finished(code, self._failover_since(before), "")

    def _failover_since(self, before: set[str] | None) -> str:
        """The document of the newest failover in the store but these; "" if there is none, or it can't be asked."""
        runs = set() if before is None else (self._failovers() or set()) - before
        shown = self._runs(max(runs)) if runs else {}
        return json.dumps(shown["result"]) if "result" in shown else ""

    def _failovers(self) -> set[str] | None:
        """The failovers in the store; None if it can't be asked."""
        listed = self._runs().get("runs")
        return None if listed is None else {each["run"] for each in listed if each["kind"] == "failover"}

    def _runs(self, *run: str) -> dict[str, Any]:
        """The document of `drkit runs`; empty if it returns none."""
        arguments = ["-m", "drkit", "runs", *run, "--config", str(self.lab.config_path), "--output", "json"]
        finished = run_command(arguments, self.folder / "runs.log", self.folder, STATUS_SECONDS)
        return document(finished.stdout) or {}

    def _command(self, step: Move | Reprotect) -> list[str]:
        """The command of a step, with the ids of the old primaries as the operator types them."""
        sources = [] if isinstance(step, Failover) else [link.spec.source for link in self.returned_by(step)]
        ids = [f"{alias}={self.lab.cluster_id(alias)}" for alias in dict.fromkeys(sources)]
        return [*command_of(step, str(self.lab.config_path), self._salvage, ids), "--output", "json"]

    def _resume(self, step: Move) -> list[str]:
        words = ["resume", "--config", str(self.lab.config_path), "--output", "json", "--yes"]
        words += ["--salvage-dir", self._salvage] if isinstance(step, Failback) else []
        return [*words, "--accept-unfenced"] if step.accept_unfenced else words

    @property
    def _salvage(self) -> str:
        return str(self.folder / "salvage")

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
        log = self.folder / "reprotect.log"
        return run_command(["-m", "drkit", *self._command(step)], log, self.folder, step.timeout_seconds)

    def returned_by(self, step: Failback | Reprotect) -> list[LinkProgress]:
        """The links that a failback or reprotect brings back now."""
        away = [name for name, link in self.links.items() if link.away]
        return [self.links[spec.name] for spec in self.experiment.returned_by(step, away)]

    def turn_link_round(self, link: LinkProgress) -> None:
        """Reverse a link of the configuration, as the operator does after a reprotect.

        Raises:
            DrkitError: the configuration doesn't have that link.
        """
        source, target = link.configured
        before = self.lab.config_path.read_text(encoding="utf-8")
        pattern = rf'source = "{source}"\ntarget = "{target}"'
        after, found = re.subn(pattern, f'source = "{target}"\ntarget = "{source}"', before)
        if not found:
            raise DrkitError(f"{self.lab.config_path} has no link from {source} to {target}")
        write_atomically(self.lab.config_path, after)
        link.turned = not link.turned

    def mirror_problems(self, link: str) -> set[tuple[str, int | None]]:
        """Kind and partition of the problems of a link's topic in the mirror's output so far."""
        try:
            lines = (self.folder / MIRROR_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return set()
        documents = (document(line) for line in lines if line.startswith("{"))
        progress = self.links[link]
        mine = ("problem", "->".join(progress.configured), progress.workload.topic)
        return {
            (one["kind"], one.get("partition"))
            for one in documents
            if one is not None and (one.get("type"), one.get("link"), one.get("topic")) == mine
        }

    def members(self, link: str, cluster: str) -> int | None:
        """How many members a link's group has on a cluster; None if unknown."""
        group = self.experiment.workload(link).group
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
        with ExitStack() as last_first:  # each ends, also where another one can't be ended
            if self.wan is not None:
                last_first.callback(self.wan.close)
            for child in (*self.loads, *([] if self.mirror is None else [self.mirror])):
                last_first.callback(child.stop)
            last_first.callback(self.stop_clients)


def own_configuration(lab: Lab, experiment: Experiment) -> Config:
    """The lab's configuration, which every command of a drill uses.

    Raises:
        Refused: it was changed and names other clusters than the lab's, or another store; it lacks a link of the
            experiment; or the experiment has faults, and a cluster there isn't marked `drill = true`.
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
    there = {f"{link.source}->{link.target}": link for link in config.links}
    missing = [link for link in experiment.links if not _is_link(there.get(link.name), link)]
    if missing:
        raise Refused(
            f"{lab.config_path} has no link {missing[0].name} with the policy {missing[0].policy}",
            meaning="The experiment plays on its own links; nothing was changed",
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


def _is_link(configured: LinkConfig | None, link: LinkSpec) -> bool:
    return configured is not None and configured.policy.value == link.policy


def stated_positions(told: dict[str, Any] | None, workload: Workload, at: float) -> tuple[StatedPosition, ...]:
    """Where a document of `drkit failover` says that the workload's group continues; `at`: when the failover ended."""
    rows = [] if told is None else told.get("groups", [])
    return tuple(
        StatedPosition(row["partition"], row["target_offset"], row["reread_at_most"], at)
        for row in rows
        if (row["group"], row["topic"]) == (workload.group, workload.topic) and row["target_offset"] is not None
    )


def stated_loss(told: dict[str, Any] | None, workload: Workload, at: float) -> StatedLoss | None:
    """What a document of `drkit failover` says is lost of the workload's topic; None: nothing. `at`: its begin."""
    rows = [] if told is None else told.get("lost_by_topic", [])
    lost = next((row["records"] for row in rows if row["topic"] == workload.topic), None)
    if told is None or lost is None:
        return None
    return StatedLoss(lost, told["evidence"]["rpo_lower_bound"], at)


def document(text: str) -> dict[str, Any] | None:
    """The one JSON object of a command's stdout; None if it isn't one."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
