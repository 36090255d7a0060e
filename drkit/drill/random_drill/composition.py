"""Composes valid experiments from a seed: blocks, each of which injects and ends a fault, and an ending. Pure.

    workload and mirror → blocks in the steady state → ending → the clients' history is judged

    quiet      producers stop; the mirror catches up; nothing may be missing
    failover   the primary is killed or hangs; the groups move; blocks strike at stages of the run, and after it

Blocks in the steady state follow each other, or strike at the same time, each in a branch of a parallel step. The
workload may write in transactions.

A block is a unit: without it the experiment is still valid and its hypothesis should hold, so a finding is shrunk block
by block. A block includes what it expects afterwards (the mirror catches up, the clients work). The first block is for
the least covered cell that can be composed; the others prefer such cells. The same seed, number and counts give the
same experiment.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import yaml

from drkit.drill.coverage import FAILED_OVER, NETWORK, STAGES, STEADY, TOPIC_ON, TOPICS, Cell

Steps = tuple[dict[str, Any], ...]
Ending = Literal["quiet", "failover"]
CATCH_UP_SECONDS: Final = 180
WAIT_SECONDS: Final = 120
RESUMES: Final = 3
MOST_BLOCKS: Final = 3
UNJUDGED_RPO: Final = 1_000_000
"""The loss with a dead primary is measured, not judged: the mirror's speed on this machine is not a finding."""
HOLD_SECONDS: Final = (0.5, 1.0, 2.0, 4.0)
_TRANSACTIONAL: Final = 1 / 3
"""The share of workloads that write in transactions."""
_MOVED_CHECKS: Final = ("skipped_by_group", "reread_beyond_plan")
"""Checks of a group that was moved."""


@dataclass(frozen=True, slots=True)
class FaultBlock:
    """One fault, with the steps that inject and end it; for a stage of a failover, the faults that strike there."""

    cell: Cell
    steps: Steps

    def __str__(self) -> str:
        return f"{self.cell.fault} ({self.cell.state})"


@dataclass(frozen=True, slots=True)
class Composition:
    """An experiment by its parts.

    `death`: the fault that stops the primary before a failover; `together`: blocks in the steady state strike at the
    same time where they may.
    """

    seed: int
    number: int
    workload: dict[str, Any]
    ending: Ending
    death: Literal["kill", "pause"]
    lagging: bool
    together: bool
    blocks: tuple[FaultBlock, ...] = field(default=())

    def without(self, block: FaultBlock) -> Composition:
        """The same composition without a block."""
        return replace(self, blocks=tuple(each for each in self.blocks if each is not block))

    @property
    def title(self) -> str:
        """The experiment's title."""
        return f"Random drill, seed {self.seed}, number {self.number}"

    def _blocks_in(self, state: str) -> Iterator[FaultBlock]:
        return (block for block in self.blocks if block.cell.state == state)

    def experiment(self) -> dict[str, Any]:
        """The experiment as the data of its file."""
        rate = self.workload["records_per_second"]
        method: list[dict[str, Any]] = [{"do": "workload", **self.workload}, {"do": "mirror"}]
        method += self._steady_steps()
        method += self._failover(rate) if self.ending == "failover" else _catch_up_steps()
        store = "cassandra" if any(block.cell.on == "cassandra" for block in self.blocks) else "sqlite"
        wan = {"wan": True} if any(block.cell.on == NETWORK for block in self.blocks) else {}
        moved = self.ending == "failover"
        checks = ["lost", "duplicated", "corrupted", "reordered", "nonmonotonic_poll"]
        hangs = moved and self.death == "pause"
        return {
            "title": self.title,
            "hypothesis": f"Whatever strikes ({self.struck}), drkit keeps its promises to the clients.",
            "lab": {"brokers": 1, "store": store, **wan},
            "steady_state": {
                "within_seconds": WAIT_SECONDS,
                "conditions": [
                    {"condition": "acknowledged", "cluster": "primary", "at_least": max(200, 2 * rate)},
                    {"condition": "mirrored", "at_most_behind": 4 * rate},
                    {"condition": "positions_captured"},
                ],
            },
            "method": method,
            "checks": [*checks, *(_MOVED_CHECKS if moved else ()), "foreign", *self._transaction_checks()],
            "objectives": {"rpo_records": UNJUDGED_RPO if moved else 0},
            "rollbacks": [{"do": "resume", "node": "primary"}] if hangs else [],
        }

    @property
    def struck(self) -> str:
        """A description of the faults."""
        death = [f"{self.death} primary"] if self.ending == "failover" else []
        parallel = self._parallel_blocks()
        beside = [f"in parallel: {' | '.join(map(str, parallel))}"] if parallel else []
        return ", ".join(beside + [str(block) for block in self.blocks if block not in parallel] + death)

    def _steady_steps(self) -> Steps:
        parallel = self._parallel_blocks()
        branches = [list(block.steps) for block in parallel]
        return (
            *(step for block in self._blocks_in(STEADY) if block not in parallel for step in block.steps),
            *([{"do": "parallel", "branches": branches}] if branches else []),
        )

    def _parallel_blocks(self) -> list[FaultBlock]:
        """The blocks that strike at the same time; none where there are fewer than two."""
        chosen: list[FaultBlock] = []
        for block in self._blocks_in(STEADY) if self.together else ():
            if all(_fits_beside(block.cell, each.cell) for each in chosen):
                chosen.append(block)
        return chosen if len(chosen) > 1 else []

    def _transaction_checks(self) -> tuple[str, ...]:
        if "transactions" not in self.workload:
            return ()
        # a mirror copies each partition for itself: a primary that is lost may leave the last transactions torn
        torn = ("torn_transaction",) if self.ending == "quiet" else ()
        return ("aborted_read", *torn, "dirty_commit", "stable_offset_stuck")

    def _failover(self, rate: int) -> Steps:
        stages = [stage for stage in STAGES["failover"] if any(self._blocks_in(f"failover {stage}"))]
        strikes = [
            {"at": stage, "faults": [fault for block in self._blocks_in(f"failover {stage}") for fault in block.steps]}
            for stage in stages
        ]
        failover: dict[str, Any] = {"do": "failover", "accept_unfenced": True, "resumes": RESUMES}
        if strikes:
            failover["strikes"] = strikes
        behind: Steps = (  # a group that stops before its first commit would have no position to move
            _wait(condition="consumed", cluster="primary", at_least=max(100, rate)),
            _wait(condition="positions_captured"),
            {"do": "stop_clients", "who": "consumer"},
            {"do": "hold", "seconds": HOLD_SECONDS[-1]},
        )
        return (
            *(behind if self.lagging else ()),
            {"do": self.death, "node": "primary"},
            {**failover, "timeout_seconds": 240},
            {"do": "move_clients", "to": "dr"},
            *(step for block in self._blocks_in(FAILED_OVER) for step in block.steps),
            _wait(condition="acknowledged", cluster="dr", at_least=max(100, rate)),
            {"do": "stop_clients", "who": "producer"},
            _wait(condition="drained", cluster="dr"),
        )


def to_yaml(composition: Composition) -> str:
    """The text of the experiment's file."""
    head = f"# {composition.title}, composed by `drkit drill random`. Play it again: drkit drill run FILE\n\n"
    return head + yaml.safe_dump(composition.experiment(), sort_keys=False, allow_unicode=True, width=110)


def composable() -> tuple[Cell, ...]:
    """The cells that a composed experiment can cover, in the order of the table."""
    at_stages = [
        Cell(do, on, f"failover {stage}")
        for stage in STAGES["failover"]
        for do, on in _AT_STAGES
        if on != "mirror" or do == "restart" or stage in _MIRROR_RUNS
    ]
    return (
        *(Cell(do, on, STEADY) for do, on in _STEADY),
        *at_stages,
        *(Cell(do, on, FAILED_OVER) for do, on in _FAILED_OVER),
    )


def compose(seed: int, number: int, struck: Mapping[Cell, int], *, cassandra: bool = True) -> Composition:
    """The experiment of this number.

    Args:
        seed: the session's seed.
        number: the experiment's, from 1.
        struck: how often each cell was covered so far; absent: never.
        cassandra: whether to draw cells of the store: such an experiment needs a Cassandra node.
    """
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - repeatable, not secret
    cells = [cell for cell in composable() if cassandra or cell.on != "cassandra"]
    least = min(struck.get(cell, 0) for cell in cells)
    first = chance.choice([cell for cell in cells if struck.get(cell, 0) == least])
    chosen = {first}
    ending: Ending = "failover" if first.state != STEADY or chance.random() < 0.5 else "quiet"  # noqa: PLR2004
    together = chance.random() < 0.5  # noqa: PLR2004
    for others in range(chance.randint(int(together), MOST_BLOCKS - 1)):
        rest = [cell for cell in cells if _is_compatible(cell, ending, chosen)]
        if together and first.state == STEADY and others == 0:
            rest = [cell for cell in rest if cell.state == STEADY and _fits_beside(cell, first)]
        weights = [1 / (1 + struck.get(cell, 0)) for cell in rest]
        chosen.add(chance.choices(rest, weights)[0])
    rate = chance.choice((100, 200, 400))
    workload: dict[str, Any] = {
        "topic": "drill.random",
        "partitions": chance.randint(1, 6),
        "keys": chance.choice((10, 100)),
        "records_per_second": rate,
        "value_bytes": chance.choice((100, 400, 2000)),
        "commit_every_seconds": chance.choice((0.2, 0.5, 2.0)),
    }
    workload["keys"] = max(workload["keys"], workload["partitions"])
    if chance.random() < _TRANSACTIONAL:
        workload["transactions"] = {"records": chance.choice((5, 20, 50)), "abort_every": chance.choice((2, 4))}
    blocks = tuple(FaultBlock(cell, _steps(chance, cell, rate)) for cell in sorted(chosen, key=cells.index))
    return Composition(
        seed=seed,
        number=number,
        workload=workload,
        ending=ending,
        death=chance.choice(("kill", "pause")),
        lagging=chance.random() < 0.5,  # noqa: PLR2004
        together=together,
        blocks=blocks,
    )


def planned_cells(composition: Composition) -> list[Cell]:
    """The cells that it covers, including the primary's death."""
    death = [Cell(composition.death, "primary", STEADY)] if composition.ending == "failover" else []
    return [*(block.cell for block in composition.blocks), *death]


def _is_compatible(cell: Cell, ending: Ending, chosen: AbstractSet[Cell]) -> bool:
    """Whether another block fits: a mirror killed at a stage can't be killed or paused at a later one.

    A node is struck once per stage. The store is struck alone, because its lab is larger.
    """
    if cell in chosen or cell.on == "cassandra":
        return False
    if _ends_mirror(cell) and any(map(_ends_mirror, chosen)):
        return False
    if _at_stage(cell) and any((each.on, each.state) == (cell.on, cell.state) for each in chosen):
        return False
    return cell.state == STEADY or ending == "failover"


def _fits_beside(cell: Cell, other: Cell) -> bool:
    """Whether two faults may strike at the same time: at different things, and never at both clusters.

    A fault of a cluster's topic can't be injected while that cluster is down.
    """
    clusters = [each.on.removeprefix(TOPIC_ON) for each in (cell, other)]
    return cell.on != other.on and not all(each in ("primary", "dr") for each in clusters)


def _ends_mirror(cell: Cell) -> bool:
    return cell.on == "mirror" and cell.do != "restart" and _at_stage(cell)


def _at_stage(cell: Cell) -> bool:
    return cell.state not in (STEADY, FAILED_OVER)


_STEADY: Final = (
    *((do, on) for on in ("primary", "dr", "cassandra", "mirror") for do in ("kill", "pause", "restart")),
    ("degrade_network", NETWORK),
    ("partition_network", NETWORK),
    ("reset_network", NETWORK),
    ("add_partitions", f"{TOPIC_ON}primary"),
    ("flood", f"{TOPIC_ON}primary"),
)
"""Includes the harmless faults of a topic: its other faults refute the hypothesis by themselves."""
_AT_STAGES: Final = (
    ("kill", "mirror"),
    ("pause", "mirror"),
    ("restart", "mirror"),
    ("kill", "run"),
    ("kill", "dr"),
    ("restart", "dr"),
)
_MIRROR_RUNS: Final = ("fence", "drain")
"""The stages at whose begin the mirror still runs: the drain seals the link, which ends the mirror."""
_FAILED_OVER: Final = (
    ("kill", "dr"),
    ("pause", "dr"),
    ("restart", "dr"),
    ("restart", "primary"),
    ("restart", "mirror"),
)


def _steps(chance: random.Random, cell: Cell, rate: int) -> Steps:
    """The steps that inject a cell's fault, end it, and check that it is over."""
    fault = _fault(chance, cell)
    if _at_stage(cell):
        return (fault, {"do": "restart", "node": "dr"}) if (cell.do, cell.on) == ("kill", "dr") else (fault,)
    before, between = ({"do": "hold", "seconds": chance.choice(HOLD_SECONDS)} for _ in range(2))
    ends: dict[str, Steps] = {
        "kill": (between, {"do": "restart", "node": cell.on}),
        "pause": (between, {"do": "resume", "node": cell.on}),
        "degrade_network": (between, {"do": "heal_network"}),
        "partition_network": (between, {"do": "heal_network"}),
    }
    following = ends.get(cell.do, ())
    if cell.state == FAILED_OVER:
        return (before, fault, *following, _wait(condition="answers", cluster="dr"))
    return (before, fault, *following, _wait(condition="mirrored", at_most_behind=4 * rate))


def _fault(chance: random.Random, cell: Cell) -> dict[str, Any]:
    """The fault itself, as data of the file."""
    if cell.on in TOPICS:
        own = {"records": chance.choice((1_000, 20_000)), "value_bytes": 200} if cell.do == "flood" else {}
        return {"do": cell.do, "cluster": cell.on.removeprefix(TOPIC_ON), **own}
    if cell.on != NETWORK:
        return {"do": cell.do, "node": cell.on}
    if cell.do == "degrade_network":
        delay = chance.choice((20.0, 100.0, 300.0))
        return {"do": cell.do, "delay_ms": delay, "jitter_ms": delay / 4, "loss": chance.choice((0.0, 0.01))}
    if cell.do == "partition_network":
        direction = chance.choice(("both", "to_primary", "from_primary"))
        return {"do": cell.do, "direction": direction, "forgets": chance.random() < 0.5}  # noqa: PLR2004
    return {"do": cell.do}


def _catch_up_steps() -> Steps:
    return (
        {"do": "stop_clients", "who": "producer"},
        _wait(condition="drained", cluster="primary"),
        _wait(condition="mirrored", at_most_behind=0),
    )


def _wait(**until: Any) -> dict[str, Any]:
    seconds = CATCH_UP_SECONDS if until["condition"] == "mirrored" else WAIT_SECONDS
    return {"do": "wait", "until": until, "timeout_seconds": seconds}
