"""Every cell of docs/recovery.md on real clusters: a run is left in its state, a part is broken, the commands are run.

A seeded sample runs always, all of them with `-m long`. Cells of one fault are played together: on one secured lab
that is put back to a snapshot, in which a run was killed in every state. A sweep in several sessions keeps that lab:

    TEST_CELLS_DIR=/somewhere TEST_CELLS_LOG=cells.log pytest -k … \
      tests/integration/failover/recovery/test_recovery_cells.py
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.failover.context.state_machine import Kind, Mode, State
from drkit.failover.recovery.way_out import Component, ComponentCondition
from tests.support.clusters.guard import Guard
from tests.support.recovery.cell_player import Verdict, play_all
from tests.support.recovery.prepared_runs import Site
from tests.support.recovery.recovery_cells import Cell, Fault, RunState, by_fault, cells

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("TEST_CELLS_SEED", "15"))
FROZEN = Fault(Component.MACHINE, ComponentCondition.FROZEN)
"""Its runs are recreated: a process that stands still is in no snapshot."""
SAMPLED = 1
"""States of one fault that run always, beside the live cluster that is gone after the audit."""
NEED_ROOT = {
    *(Fault(Component.MACHINE, condition) for condition in (ComponentCondition.DOWN, ComponentCondition.REPLACED)),
    *(Fault(Component.SALVAGE, condition) for condition in (ComponentCondition.FULL, ComponentCondition.READ_ONLY)),
}
FEW = 8
"""So many runs are sooner made again for each fault than kept."""


def parameters() -> Iterator[object]:
    """The cell of a live cluster that is gone after the audit, a sample, and the others for `-m long`."""
    every = cells()
    first = Cell(RunState(Kind.FAILBACK, Mode.PLANNED, State.AUDITED), Fault(Component.TARGET, ComponentCondition.DOWN))
    chance = random.Random(SEED)  # noqa: S311 - a choice of tests
    others = {Component.SOURCE, Component.STORE, Component.MIRROR, Component.SALVAGE}
    quick = [fault for fault in by_fault(every) if fault.part in others and fault.condition is ComponentCondition.DOWN]
    fault = chance.choice(quick)
    always = {first, *chance.sample([cell for cell in every if cell.fault == fault], SAMPLED)}
    for cell in every:
        yield pytest.param(cell, id=str(cell), marks=() if cell in always else (pytest.mark.long,))


class Sweep:
    """Plays all chosen cells of a fault when the first of them is asked for."""

    def __init__(self, folder: Path, chosen: list[Cell], *, keep: bool) -> None:
        self._chosen = by_fault(chosen)
        self._keep = keep
        self._verdicts: dict[Cell, Verdict] = {}
        self._site = Site(folder)
        kept = [cell for cell in chosen if cell.fault != FROZEN]
        if keep or len(kept) > FEW:
            try:
                self._site.take_snapshot(list(dict.fromkeys(cell.at for cell in (cells() if keep else kept))))
            except BaseException:
                self.close()
                raise

    def verdict(self, cell: Cell) -> Verdict:
        """The outcome of a cell."""
        if cell not in self._verdicts:
            together = self._chosen[cell.fault]
            runs = self._site.runs([each.at for each in together], freeze=cell.fault == FROZEN)
            verdicts = play_all(self._site, together, {run.at: run for run in runs})
            self._verdicts |= dict(zip(together, verdicts, strict=True))
            _log(verdicts)
        return self._verdicts[cell]

    def close(self) -> None:
        """Stop the lab."""
        self._site.close(keep=self._keep)


@pytest.fixture(scope="module")
def sweep(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard
) -> Iterator[Sweep]:
    kept = os.environ.get("TEST_CELLS_DIR")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("cells")
    if not kept:
        lab_guard.watch(folder / "lab")
    chosen = [
        item.callspec.params["cell"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    made = Sweep(folder, chosen, keep=bool(kept))
    yield made
    made.close()


@pytest.mark.parametrize("cell", list(parameters()))
def test_what_the_table_says_leads_on(cell: Cell, sweep: Sweep) -> None:
    if cell.fault in NEED_ROOT and os.geteuid() != 0:
        pytest.skip("a small disk is mounted, or a pid namespace made: that needs root")
    verdict = sweep.verdict(cell)
    assert not verdict.problem, f"{cell.out}\n{verdict.problem}"


def _log(verdicts: list[Verdict]) -> None:
    """Where somebody wants to know."""
    path = os.environ.get("TEST_CELLS_LOG")
    if path is None:
        return
    with Path(path).open("a", encoding="utf-8") as file:
        for verdict in verdicts:
            why = verdict.problem.strip().splitlines()[-1] if verdict.problem else ""
            file.write(f"{verdict.cell}\t{'FAILED' if why else 'ok'}\t{verdict.seconds}\t{why}\n")
