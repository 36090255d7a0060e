"""The cells of docs/recovery.md: a run's state, and a broken component."""

from __future__ import annotations

from typing import NamedTuple

from drkit.failover.context.state_machine import Kind, Mode, State
from drkit.failover.recovery.way_out import Component, ComponentCondition, Situation, WayOut, faults_of, way_out
from tools.manual.recovery_page import STATES


class RunState(NamedTuple):
    """A run's state; kind None: there is no run, the link is active."""

    kind: Kind | None
    mode: Mode
    state: State

    def __str__(self) -> str:
        return "no-run" if self.kind is None else f"{self.mode}-{self.kind}-{self.state}"


class Fault(NamedTuple):
    """The broken component; part None: there is none."""

    part: Component | None
    condition: ComponentCondition

    def __str__(self) -> str:
        return "nothing" if self.part is None else f"{self.part}-{self.condition}".replace(" ", "-")


class Cell(NamedTuple):
    """A cell of the table."""

    at: RunState
    fault: Fault

    def __str__(self) -> str:
        return f"{self.fault}-{self.at}"

    @property
    def out(self) -> WayOut:
        """The table's text."""
        now = Situation(*self.at)
        return way_out(now if self.fault.part is None else now.where(self.fault.part, self.fault.condition))


def cells() -> list[Cell]:
    """All cells, grouped by fault."""
    found = [
        Cell(RunState(*at), fault)
        for at in STATES
        for fault in (
            Fault(None, ComponentCondition.UP),
            *(Fault(part, condition) for part, ways in faults_of(at[0]).items() for condition in ways),
        )
    ]
    faults = {each.fault: None for each in sorted(found, key=lambda cell: _order(cell.fault))}
    return [cell for fault in faults for cell in found if cell.fault == fault]


def by_fault(wanted: list[Cell]) -> dict[Fault, list[Cell]]:
    """Cells by fault, in any order."""
    found: dict[Fault, list[Cell]] = {}
    for cell in wanted:
        found.setdefault(cell.fault, []).append(cell)
    return found


def _order(fault: Fault) -> tuple[int, int]:
    return (
        -1 if fault.part is None else list(Component).index(fault.part),
        list(ComponentCondition).index(fault.condition),
    )
