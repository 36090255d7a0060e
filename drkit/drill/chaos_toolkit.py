"""Exports an experiment in the format of Chaos Toolkit: what drkit has a command for, as process actions and probes.

Format: https://chaostoolkit.org/reference/api/experiment/ (title, description, tags, configuration,
steady-state-hypothesis, method, rollbacks, extensions). Chaos Toolkit has no workload that records what was
acknowledged and no checks on it, so an export never is the whole drill: each part without a command is listed with its
line and the reason, in the document's extension `drkit` and in its description.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from drkit import __version__
from drkit.drill.experiment.base import DEFAULT_LINK, Place
from drkit.drill.experiment.faults import Kill, NodeFault, Pause, Restart, Resume
from drkit.drill.experiment.reader import ExperimentFile
from drkit.drill.experiment.steps import (
    Answers,
    Condition,
    Failback,
    Failover,
    Hold,
    Load,
    Mirror,
    Mirrored,
    Move,
    MoveClients,
    Parallel,
    PlainStep,
    PositionsCaptured,
    ProblemTold,
    Reprotect,
    Rollback,
    Silent,
    Step,
    StopClients,
    Wait,
    Workload,
    command_of,
    describe,
    describe_strike,
    load_command,
    strikes_in,
)
from drkit.drill.judge.result import Document
from drkit.model.errors import Refused
from drkit.model.wording import counted

Activity = dict[str, Any]
LAB, CONFIG, SALVAGE = "${lab_dir}", "${lab_dir}/drkit.toml", "${lab_dir}/salvage"
STATUS_SECONDS: Final = 60.0
LAB_SECONDS: Final = 300.0
"""The timeout of `drkit lab …`, whose restart waits until the node answers."""


class PartNotExported(Document):
    """A part of the experiment that has no command. `place`: its keys; `line`: its first line in the file.

    `instead`: what the export has in its place; null: nothing.
    """

    place: str
    line: int
    what: str
    reason: str
    instead: str | None = None

    def said(self) -> str:
        """What is missing, why, and what there is instead."""
        return f"{self.what}: {self.reason}" + ("" if self.instead is None else f" (instead: {self.instead})")


class ExportResult(Document):
    """The document of `drkit drill export --output json`. `out`: the file written; null: none.

    `actions`, `probes`: how many activities the Chaos Toolkit experiment has. `chaos_toolkit`: the experiment itself.
    """

    title: str
    file: str
    out: str | None
    actions: int
    probes: int
    not_exported: list[PartNotExported]
    chaos_toolkit: dict[str, Any]


def export_experiment(file: ExperimentFile, lab_dir: Path) -> ExportResult:
    """The experiment in the format of Chaos Toolkit.

    Args:
        file: the experiment.
        lab_dir: the lab's folder where the environment variable LAB_DIR doesn't name another.

    Raises:
        Refused: no step of its method has a command.
    """
    export = _Export(file)
    hypothesis = export.hypothesis()
    method, rollbacks = export.method(), export.rollbacks()
    export.rest()
    if not any(each["type"] == "action" for each in method):
        raise Refused(
            f"{file.path} has no step that a command of drkit could play: there is nothing to export",
            meaning="\n".join(f"line {each.line}: {each.what}: {each.reason}" for each in export.missing),
            remedy="Play it with drkit: drkit drill run",
        )
    experiment = file.experiment
    missing = sorted(export.missing, key=lambda each: each.line)
    configuration: dict[str, Any] = {"lab_dir": {"type": "env", "key": "LAB_DIR", "default": str(lab_dir)}}
    for alias in export.old_primaries:
        name = _cluster_id_of(alias)
        configuration[name] = {"type": "env", "key": name.upper(), "default": ""}
    document = {
        "version": "1.0.0",
        "title": experiment.title,
        "description": _description(file, missing),
        "tags": ["drkit", "kafka", "disaster-recovery"],
        "configuration": configuration,
        "steady-state-hypothesis": hypothesis,
        "method": method,
        "rollbacks": rollbacks,
        "extensions": [
            {
                "name": "drkit",
                "version": __version__,
                "not_exported": [each.model_dump(mode="json") for each in missing],
            }
        ],
    }
    activities = [*hypothesis["probes"], *method, *rollbacks]
    return ExportResult(
        title=experiment.title,
        file=str(file.path),
        out=None,
        actions=sum(each["type"] == "action" for each in activities),
        probes=sum(each["type"] == "probe" for each in activities),
        not_exported=missing,
        chaos_toolkit=document,
    )


def _description(file: ExperimentFile, missing: Sequence[PartNotExported]) -> str:
    lab = file.experiment.lab
    lines = [
        file.experiment.hypothesis.strip(),
        f"Exported by drkit {__version__}.",
        f"Before it: `drkit lab up --brokers {lab.brokers} --store {lab.store}`, `drkit mirror`, and your own clients.",
        "Run: `chaos run --hypothesis-strategy before-method-only --rollback-strategy always FILE`.",
        "An exit code other than 0 of an action is in the journal (`status`) and does not fail the experiment.",
    ]
    if missing:
        lines.append(f"{counted(len(missing), 'part')} of the experiment not exported:")
        lines += [f"- line {each.line}: {each.said()}" for each in missing]
    return "\n".join(lines)


@dataclass
class _Export:
    """`missing`: what has no command, so far. `old_primaries`: the clusters whose ids the commands so far ask for."""

    file: ExperimentFile
    missing: list[PartNotExported] = field(default_factory=list)
    old_primaries: dict[str, None] = field(default_factory=dict)

    def lacks(self, place: Place, what: str, reason: str, instead: str | None = None) -> None:
        key = ".".join(map(str, place))
        line = self.file.line(*place)
        self.missing.append(PartNotExported(place=key, line=line, what=what, reason=reason, instead=instead))

    # -- steady state ------------------------------------------------------------------------

    def hypothesis(self) -> dict[str, Any]:
        probes: list[Activity] = []
        for number, condition in enumerate(self.file.experiment.steady_state.conditions):
            place = ("steady_state", "conditions", number)
            probe = _probe(condition)
            if probe is not None:
                probes.append(probe)
            elif isinstance(condition, Mirrored | PositionsCaptured):
                doctor = _doctor(condition.link.partition("->")[2])
                self.lacks(
                    place, condition.condition, "a tolerance can't compute with what drkit status says", doctor["name"]
                )
                probes += [] if doctor in probes else [doctor]
            else:
                self.lacks(place, condition.condition, _NO_CONDITION)
        return {"title": "The lab is in its steady state", "probes": probes}

    # -- method ------------------------------------------------------------------------------

    def method(self) -> list[Activity]:
        return [activity for _, activity in self.in_order(self.file.experiment.method, ("method",))]

    def in_order(self, steps: Sequence[Step], place: Place) -> list[tuple[Place, Activity]]:
        """The activities of these steps, each with its step's place; holds are pauses of those beside them."""
        activities: list[tuple[Place, Activity]] = []
        pause = 0.0
        for number, step in enumerate(steps):
            where = (*place, number)
            if isinstance(step, Hold):
                pause += step.seconds
                continue
            found = self.parallel(step, where) if isinstance(step, Parallel) else self.step(step, where)
            if found:
                found[0] = _after(pause, found[0])
                pause = 0.0
            activities += [(where, activity) for activity in found]
        if pause and activities:
            _, last = activities[-1]
            last["pauses"] = {**last.get("pauses", {}), "after": pause}
        return activities

    def parallel(self, step: Parallel, place: Place) -> list[Activity]:
        """The longest branch in the foreground; of the others each its first activity, in the background."""
        branches = [self.in_order(branch, (*place, "branches", at)) for at, branch in enumerate(step.branches)]
        longest = max(branches, key=len)
        background: list[Activity] = []
        for branch in branches:
            if branch is longest or not branch:
                continue
            (_, first), *others = branch
            background.append({**first, "background": True})
            for where, activity in others:
                self.lacks(where, activity["name"], "activities in the background of Chaos Toolkit have no order")
        if background:
            self.lacks(
                place,
                describe(step),
                "Chaos Toolkit does not wait for activities in the background before the next step",
                "the other branches in the background",
            )
        return [*background, *(activity for _, activity in longest)]

    def step(self, step: PlainStep | Rollback, place: Place) -> list[Activity]:
        match step:
            case Failover() if step.runbook is not None:
                pass
            case Failover() | Failback():
                self.lacks_strikes(step, place)
                return [self.move(step, place)]
            case Reprotect():
                return [self.move(step, place)]
            case Load():
                return [_load(step)]
            case Wait():
                return self.wait(step, place)
            case Kill() | Pause() | Resume() | Restart() if step.node not in ("mirror", "run"):
                return [_action(describe(step), ["lab", step.do, step.node, "--dir", LAB], LAB_SECONDS)]
        self.lacks(place, describe(step), _reason(step))
        return []

    def wait(self, step: Wait, place: Place) -> list[Activity]:
        probe = _probe(step.until)
        reason = _NO_CONDITION if probe is None else "Chaos Toolkit looks once, and does not wait until it holds"
        self.lacks(place, describe(step), reason, None if probe is None else probe["name"])
        return [] if probe is None else [{name: probe[name] for name in probe if name != "tolerance"}]

    def move(self, step: Move | Reprotect, place: Place) -> Activity:
        """The command of a failover, failback or reprotect; of these with the id of each old primary."""
        ids: list[str] = []
        if not isinstance(step, Failover):
            experiment = self.file.experiment
            away = next(away for where, _, away in experiment.each_move() if where == place)
            sources = dict.fromkeys(link.source for link in experiment.returned_by(step, away))
            self.old_primaries |= sources
            ids = [f"{alias}=${{{_cluster_id_of(alias)}}}" for alias in sources]
        return _action(describe(step), command_of(step, CONFIG, SALVAGE, ids), step.timeout_seconds)

    def lacks_strikes(self, step: Move, place: Place) -> None:
        for where, stage, fault in strikes_in(step, place):
            self.lacks(where, describe_strike(step, stage, fault), "only drkit drill run stops a run at a stage")
        if step.resumes:
            self.lacks(
                place, f"resumes: {step.resumes}", "Chaos Toolkit acts on no exit code; resume by hand: drkit resume"
            )

    # -- the rest ----------------------------------------------------------------------------

    def rollbacks(self) -> list[Activity]:
        return [
            activity
            for number, step in enumerate(self.file.experiment.rollbacks)
            for activity in self.step(step, ("rollbacks", number))
        ]

    def rest(self) -> None:
        """What isn't a step: the lab's extras, safety rules, checks, objectives."""
        experiment = self.file.experiment
        extras = [f"lab.{name}" for name in ("secured", "tls", "wan") if getattr(experiment.lab, name)]
        if [link.name for link in experiment.links] != [DEFAULT_LINK]:
            extras.append("lab.links")
        if extras:
            self.lacks(("lab",), ", ".join(extras), "drkit lab up does not make such a lab")
        for name in sorted(experiment.safety.model_fields_set):
            self.lacks(("safety", name), f"safety.{name}", "Chaos Toolkit asks nothing before a step")
        reason = "they judge the history of the drill's own clients"
        self.lacks(("checks",), f"checks: {', '.join(experiment.checks)}", reason)
        named = sorted(experiment.objectives.model_fields_set)
        if named:
            said = "drkit failover exits with 6 where an objective of the configuration is missed"
            self.lacks(
                ("objectives",), f"objectives: {', '.join(named)}", "they are measured by the drill's clients", said
            )


_NO_CONDITION: Final = "no command of drkit says it with its exit code or in a text to compare"


def _reason(step: PlainStep | Rollback) -> str:
    if isinstance(step, Workload):
        return f"only drkit drill run has this producer and group; let your own write to {step.topic} and read it"
    if isinstance(step, Failover):
        return "a person carries it out, by the runbook"
    if isinstance(step, Mirror):
        return "it runs until it is stopped, and Chaos Toolkit waits for all that is in the background; start it before"
    if isinstance(step, MoveClients | StopClients):
        return "your clients are not known to drkit; move or stop them yourself"
    if isinstance(step, NodeFault) and step.node in ("mirror", "run"):
        return "the process is not a node of the lab"
    return "only drkit drill run injects this fault"


def _process(arguments: Sequence[str], timeout_seconds: float) -> dict[str, Any]:
    return {"type": "process", "path": "drkit", "arguments": list(arguments), "timeout": timeout_seconds}


def _action(name: str, arguments: Sequence[str], timeout_seconds: float) -> Activity:
    return {"type": "action", "name": name, "provider": _process([*arguments, "--output", "json"], timeout_seconds)}


def _after(seconds: float, activity: Activity) -> Activity:
    pauses = activity.get("pauses", {})
    return {**activity, "pauses": {**pauses, "before": seconds + pauses.get("before", 0.0)}} if seconds else activity


def _cluster_id_of(alias: str) -> str:
    """The configuration that has a cluster's id."""
    return f"{alias}_cluster_id"


def _load(step: Load) -> Activity:
    action = _action(describe(step), load_command(step, LAB), LAB_SECONDS)
    return {**action, "background": True} if step.background else action


def _doctor(target: str) -> Activity:
    return {
        "type": "probe",
        "name": f"drkit doctor says that a failover to {target} would succeed",
        "tolerance": 0,
        "provider": _process(["doctor", "--to", target, "--config", CONFIG, "--output", "json"], STATUS_SECONDS),
    }


def _probe(condition: Condition) -> Activity | None:
    """What looks at a condition, with its tolerance; None: no command says it."""
    match condition:
        case Answers() | Silent():
            up = rf'"cluster": "{condition.cluster}",\s*"state": "up"'
            name, arguments = f"{condition.cluster} {condition.condition}", ["lab", "status", "--dir", LAB]
            pattern = up if isinstance(condition, Answers) else rf"(?s)\A(?!.*{up})"
        case ProblemTold():
            name = f"drkit status tells of {condition.kind}"
            arguments, pattern = ["status", "--config", CONFIG], rf'"kind": "{condition.kind}"'
        case _:
            return None
    return {
        "type": "probe",
        "name": name,
        "tolerance": {"type": "regex", "pattern": pattern, "target": "stdout"},
        "provider": _process([*arguments, "--output", "json"], STATUS_SECONDS),
    }
