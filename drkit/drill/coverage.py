"""The coverage of faults by state of a run: planned in experiments, and injected in kept drills.

    states    steady → failover's stages → failed over → failback's stages → failed back
    faults    what is done (`kill`, `delete_topic` …) to what (a cluster, one broker of several, the mirror, the
              store, the run's own process, the topic or the applications on one of the clusters)

Rows and columns come from the types of an experiment file, so a new fault or stage there appears here. A cluster that
is the source of a link is in the rows of primary, one that is only a target in those of dr. A fault counts
in the state in which it was injected, even if a paused node still hangs later. Steps that end a fault (`resume`,
`heal_network`, `renew_credentials`, `renew_certificate`, `correct_clock`, `restart` in the same state) and rollbacks
don't count. Neither does a fault in a branch beside the run of another one: its stage is chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

from drkit.drill.experiment.base import SOURCE, TARGET, Place
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.faults import (
    APPLICATION_FAULTS,
    ENDS,
    NETWORK_FAULTS,
    NO_CLUSTER,
    NODE_FAULTS,
    TOPIC_FAULTS,
    ApplicationFault,
    Disconnect,
    Fault,
    FillDisk,
    Kill,
    NetworkFault,
    Pause,
    Restart,
    Resume,
    TopicFault,
    word_of,
)
from drkit.drill.experiment.reader import ExperimentFile, load_experiment
from drkit.drill.experiment.steps import (
    FailbackStage,
    FailoverStage,
    Move,
    Parallel,
    Reprotect,
    describe,
    describe_strike,
    strikes_in,
)
from drkit.drill.judge.result import Document, DrillResult, Instant, StepResult, StrikeResult, Verdict
from drkit.drill.results.archive import Drills
from drkit.model.errors import DrkitError

STEADY: Final = "steady"
FAILED_OVER: Final = "failed over"
FAILED_BACK: Final = "failed back"
STAGES: Final = {
    "failover": tuple(get_args(FailoverStage)),
    "failback": tuple(get_args(FailbackStage)),
}
STATES: Final = (
    STEADY,
    *(f"failover {stage}" for stage in STAGES["failover"]),
    FAILED_OVER,
    *(f"failback {stage}" for stage in STAGES["failback"]),
    FAILED_BACK,
)
_AFTER: Final = {"failover": FAILED_OVER, "failback": FAILED_BACK}
ONE_OF: Final = "one broker of "
TOPIC_ON: Final = "topic on "
APPLICATIONS_ON: Final = "applications on "
TARGETS: Final = ("primary", f"{ONE_OF}primary", "dr", f"{ONE_OF}dr", "cassandra", "mirror", "run")
"""The targets of faults. `run`: drkit's own process that runs a failover or failback."""
TOPICS: Final = (f"{TOPIC_ON}primary", f"{TOPIC_ON}dr")
APPLICATIONS: Final = (f"{APPLICATIONS_ON}primary", f"{APPLICATIONS_ON}dr")
NETWORK: Final = "network of primary"
"""The network between drkit and primary."""
_ENDS: Final = tuple(word_of(kind) for kind in get_args(ENDS))
_ONLY_AT: Final = {
    word_of(Disconnect): ("mirror",),
    word_of(FillDisk): ("primary", f"{ONE_OF}primary", "dr", f"{ONE_OF}dr"),
}
"""The only targets of some faults; the others have any node."""
_AT_NODES: Final = tuple(
    (do, on) for on in TARGETS for do in NODE_FAULTS if do not in _ENDS and on in _ONLY_AT.get(do, TARGETS)
)
_AT_TOPICS: Final = tuple((do, on) for on in TOPICS for do in TOPIC_FAULTS)
_AT_APPLICATIONS: Final = tuple((do, on) for on in APPLICATIONS for do in APPLICATION_FAULTS if do not in _ENDS)
_AT_NETWORK: Final = tuple((do, NETWORK) for do in NETWORK_FAULTS if do not in _ENDS)
NO_RUN: Final = "there is no run in this state"
ONLY_KILLED: Final = "a run can only be killed; a hanging run is one paused in its terminal"


class Cell(NamedTuple):
    """One cell of the table: `do` to `on`, in `state`."""

    do: str
    on: str
    state: str

    @property
    def fault(self) -> str:
        """Row of the table."""
        if self.on in (*TOPICS, *APPLICATIONS):
            cluster = self.on.removeprefix(TOPIC_ON).removeprefix(APPLICATIONS_ON)
            return f"{self.do.replace('_', ' ')} on {cluster}"
        if self.on == NETWORK:
            return self.do.replace("_", " ")
        return f"{self.do} {self.on}"

    @property
    def impossible(self) -> str | None:
        """Why no drill can inject it; None: one can."""
        if self.on != "run":
            return None
        if self.do != "kill":
            return ONLY_KILLED
        return NO_RUN if self.state in (STEADY, *_AFTER.values()) else None


CELLS: Final = tuple(
    Cell(do, on, state) for state in STATES for do, on in (*_AT_NODES, *_AT_NETWORK, *_AT_APPLICATIONS, *_AT_TOPICS)
)


@dataclass(frozen=True, slots=True)
class PlannedStrike:
    """A fault of an experiment: its cell, and the line and words that identify it in a result."""

    cell: Cell
    line: int
    step: str


def planned_strikes(file: ExperimentFile) -> Iterator[PlannedStrike]:
    """The faults of an experiment, in order. A restart that ends a kill, a pause or a full disk in the same state
    doesn't count."""
    down: dict[str, str] = {}
    for state, fault, line, words in _faults(file):
        if isinstance(fault, ENDS):
            if isinstance(fault, Resume):
                down.pop(fault.node, None)
        elif isinstance(fault, Restart) and down.pop(fault.node, None) == state:
            continue
        else:
            if isinstance(fault, Kill | Pause | FillDisk):
                down[fault.node] = state
            yield PlannedStrike(Cell(fault.do, _target(fault, file.experiment), state), line, words)


def _faults(file: ExperimentFile) -> Iterator[tuple[str, Fault, int, str]]:
    """Each fault of the method: the state of the run, the fault, its line, and its name in a result.

    Without those in a branch beside another one's run: at which of its stages they strike is chance.
    """
    state = STEADY
    beside: Place | None = None
    for place, step in file.experiment.each_step():
        branch = place[:_BRANCH]
        if isinstance(step, Parallel):
            beside = _branch_with_run(step, place)
        elif isinstance(step, Fault):
            if len(place) < _BRANCH or beside in (None, branch):
                yield state, step, file.line(*place), describe(step)
        elif isinstance(step, Move):
            for inside, stage, fault in strikes_in(step, place):
                yield f"{step.do} {stage}", fault, file.line(*inside), describe_strike(step, stage, fault)
            state = _AFTER[step.do]


_BRANCH: Final = 4
"""The length of a branch's place: `"method", 3, "branches", 0`."""


def _branch_with_run(step: Parallel, place: Place) -> Place | None:
    """The place of the branch in which a failover, failback or reprotect runs; None: there is none."""
    running = (
        at for at, branch in enumerate(step.branches) if any(isinstance(each, Move | Reprotect) for each in branch)
    )
    return next(((*place, "branches", at) for at in running), None)


def _target(fault: Fault, experiment: Experiment) -> str:
    if isinstance(fault, NetworkFault):
        return NETWORK
    if isinstance(fault, ApplicationFault):
        return f"{APPLICATIONS_ON}{_role(fault.cluster, experiment)}"
    if isinstance(fault, TopicFault):
        return f"{TOPIC_ON}{_role(fault.cluster, experiment)}"
    cluster, dash, _ = fault.node.partition("-")
    if cluster in NO_CLUSTER:
        return cluster
    role = _role(cluster, experiment)
    return f"{ONE_OF}{role}" if dash and experiment.lab.brokers > 1 else role


def _role(cluster: str, experiment: Experiment) -> str:
    """In whose rows a cluster is: the source of a link in those of primary, one that is only a target in dr's."""
    return SOURCE if any(link.source == cluster for link in experiment.links) else TARGET


@dataclass(frozen=True, slots=True)
class KeptDrill:
    """A kept drill, with its experiment file."""

    file: ExperimentFile
    result: DrillResult


def struck_cells(drill: KeptDrill) -> set[Cell]:
    """The cells that the drill really covered: its result has the fault as injected."""
    steps = [
        each for step in drill.result.steps for each in (step, *(one for branch in step.branches for one in branch))
    ]
    played: list[StepResult | StrikeResult] = [*steps, *(strike for step in steps for strike in step.strikes)]
    injected = {(each.line, each.step) for each in played if each.outcome == "ok"}
    return {each.cell for each in planned_strikes(drill.file) if (each.line, each.step) in injected}


class LastStrike(Document):
    """The newest drill that covered a cell."""

    run: str
    title: str
    at: Instant
    verdict: Verdict


class CoverageCell(Document):
    """One fault in one state. `experiments`: titles of those that inject it; `struck`: how many kept drills did;
    `last` is null if none did. `impossible` says why no drill can."""

    fault: str
    do: str
    on: str
    state: str
    impossible: str | None
    experiments: list[str]
    struck: int
    last: LastStrike | None


class CoverageExperiment(Document):
    """An experiment that was read."""

    title: str
    file: str


class UnreadFile(Document):
    """A kept drill or an experiment that can't be counted, and why."""

    name: str
    reason: str


class CoverageTotals(Document):
    """Cells: all possible ones; of these `struck`, `planned` (by an experiment, never injected), `never`."""

    possible: int
    struck: int
    planned: int
    never: int


class CoverageResult(Document):
    """The document of `drkit drill coverage --output json`: every cell, in the order of states and faults."""

    states: list[str]
    faults: list[str]
    totals: CoverageTotals
    cells: list[CoverageCell]
    experiments: list[CoverageExperiment]
    drills: int
    unread: list[UnreadFile]


def coverage(
    experiments: Sequence[ExperimentFile], kept: Sequence[KeptDrill], unread: Sequence[UnreadFile] = ()
) -> CoverageResult:
    """The table, from experiments and kept drills (newest first)."""
    planned: dict[Cell, dict[str, None]] = {}
    for file in experiments:
        for strike in planned_strikes(file):
            planned.setdefault(strike.cell, {})[file.experiment.title] = None
    struck: dict[Cell, list[DrillResult]] = {}
    for drill in kept:
        for cell in struck_cells(drill):
            struck.setdefault(cell, []).append(drill.result)
    cells = [
        CoverageCell(
            fault=cell.fault,
            do=cell.do,
            on=cell.on,
            state=cell.state,
            impossible=cell.impossible,
            experiments=list(planned.get(cell, ())),
            struck=len(struck.get(cell, ())),
            last=_last(struck.get(cell, ())),
        )
        for cell in CELLS
    ]
    return CoverageResult(
        states=list(STATES),
        faults=list(dict.fromkeys(cell.fault for cell in CELLS)),
        totals=_totals(cells),
        cells=cells,
        experiments=[CoverageExperiment(title=file.experiment.title, file=str(file.path)) for file in experiments],
        drills=len(kept),
        unread=list(unread),
    )


def strikes_counted(kept: Sequence[KeptDrill]) -> dict[Cell, int]:
    """How many kept drills covered each cell; cells without any are absent."""
    found: dict[Cell, int] = {}
    for drill in kept:
        for cell in struck_cells(drill):
            found[cell] = found.get(cell, 0) + 1
    return found


def read_kept(drills: Drills) -> tuple[list[KeptDrill], list[UnreadFile]]:
    """Every kept drill, newest first; those without a result, or with unreadable files, separately."""
    kept, unread = [], []
    for run in drills.runs():
        try:
            kept.append(KeptDrill(load_experiment(drills.played(run)), drills.result(run)))
        except DrkitError as error:
            unread.append(UnreadFile(name=run, reason=error.what))
    return kept, unread


def read_found(drills: Drills) -> tuple[list[ExperimentFile], list[UnreadFile]]:
    """The experiments with which random drills found something; unreadable ones separately."""
    found, unread = [], []
    for file in sorted(drills.found.glob("*.yaml")):
        try:
            found.append(load_experiment(file))
        except DrkitError as error:
            unread.append(UnreadFile(name=file.name, reason=error.what))
    return found, unread


def _last(results: Sequence[DrillResult]) -> LastStrike | None:
    if not results:
        return None
    newest = max(results, key=lambda result: result.started_at)
    return LastStrike(run=newest.run, title=newest.title, at=newest.started_at, verdict=newest.verdict)


def _totals(cells: Sequence[CoverageCell]) -> CoverageTotals:
    possible = [cell for cell in cells if cell.impossible is None]
    struck = sum(cell.struck > 0 for cell in possible)
    planned = sum(not cell.struck and bool(cell.experiments) for cell in possible)
    return CoverageTotals(
        possible=len(possible), struck=struck, planned=planned, never=len(possible) - struck - planned
    )
