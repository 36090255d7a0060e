"""docs/recovery.md, from `way_out`: `python -m tools.manual.recovery_page > docs/recovery.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from drkit.failover.context.state_machine import PATHS, Kind, Mode, State
from drkit.failover.recovery.way_out import BY_HAND, Component, ComponentCondition, Situation, faults_of, way_out

_HEAD = """# Recovery: which command to run in each state

Generated from one function (`drkit/failover/recovery/way_out.py`), which `drkit doctor`, `drkit runs` and error
messages use too; a test keeps this page current. For each state of a run and each part that breaks it names the
commands that let clients write somewhere again, where, and their cost. A model with an adversary
(`tests/support/recovery/recovery_model.py`) is explored exhaustively up to two faults: there is no dead end, and
nothing is destroyed that isn't kept.

`drkit runs RUN` shows a run's state; a begun stage counts as reached. `source` and `target` are those of the
configured link: the primary, and the cluster failed over to. If the operator's machine is lost, frozen or replaced, run
the same command from another one (the lease ends after 15 s); *replaced* means that its disk, with the salvage folder,
is gone too. If both clusters are gone, one must come back first; then look here again.

Every cell can be played on real clusters (`tests/integration/failover/recovery/test_recovery_cells.py`): runs are
killed in every state, the component is really broken, the commands are executed, and a reader independent of drkit
looks for missing records. A sample is in `make test`, all 1,025 are in `make test-long`; a cell takes about a second on
two busy cores, the whole sweep some 20 minutes. In the sweep of 26 November 2026, at 7383667d, all 1,025 passed.

A process that is frozen while it writes to a SQLite store keeps it locked. A command then says so: end that process
(`fuser FILE` lists those that have the file open), and run the command again.
"""
_BY_HAND = f"""## Without the store

A lost store (no file, no keyspace, no tables) is filled again from the copy that the target keeps: see
[store.md](store.md). Move a damaged one away first. No copy has journals of runs, so no run can be resumed then; the
link's state and the fence decide what to do.

The store knows which ACLs a fence has put. Without it only you can lift a fence: `{BY_HAND}` on the ACLs beside its
mark. The mark is an ACL about a topic `drkit-fence.…`; the fence's ACLs deny `User:*` writing to the link's topics and
reading in its groups. Once the store is back, `drkit fence --lift` cleans up, and a run that relied on that fence goes
back to before it.
"""
STATES: tuple[tuple[Kind | None, Mode, State], ...] = (
    (None, Mode.UNPLANNED, State.CLOSED),
    *(
        (kind, mode, state)
        for kind, mode in (
            (Kind.FAILOVER, Mode.UNPLANNED),
            (Kind.FAILOVER, Mode.PLANNED),
            (Kind.FAILBACK, Mode.PLANNED),
            (Kind.REPROTECT, Mode.PLANNED),
        )
        for state in (State.PLANNED, *(step.reaches for step in PATHS[kind]))
    ),
)
"""Every state in which a run can be left, of each kind and mode; None: no run, the link is active."""


def recovery_page() -> str:
    """The page."""
    parts = [_HEAD]
    sections: dict[tuple[Kind | None, Mode], list[State]] = {}
    for kind, mode, state in STATES:
        sections.setdefault((kind, mode), []).append(state)
    for (kind, mode), states in sections.items():
        parts.append(f"## {_title(kind, mode)}\n\n{_table(kind, mode, states)}")
    return "\n".join((*parts, _BY_HAND))


def _title(kind: Kind | None, mode: Mode) -> str:
    if kind is None:
        return "No run: the link is active"
    return f"{mode.value.capitalize()} failover" if kind is Kind.FAILOVER else kind.value.capitalize()


def _table(kind: Kind | None, mode: Mode, states: list[State]) -> str:
    rows: dict[tuple[str, str, str, str], list[State]] = {}
    for state in states:
        for what, now in _broken(Situation(kind, mode, state)):
            out = way_out(now)
            commands = "<br>".join(f"`{command}`" for command in out.commands)
            serves = "none yet" if out.serves is None else out.serves.value
            rows.setdefault((what, commands, serves, out.costs), []).append(state)
    order = ["nothing", *Component]
    lines = ["| broken | state | do | clients write to | costs |", "|---|---|---|---|---|"]
    for (what, commands, serves, costs), found in sorted(
        rows.items(), key=lambda r: order.index(r[0][0].split(":")[0])
    ):
        where = "any" if len(found) == len(states) else ", ".join(found)
        lines.append(f"| {what} | {where} | {commands} | {serves} | {costs} |")
    return "\n".join(lines) + "\n"


def _broken(now: Situation) -> Iterator[tuple[str, Situation]]:
    """Nothing, then each part in each way; conditions that have one answer are joined."""
    yield "nothing", now
    for part, conditions in faults_of(now.kind).items():
        alike: dict[object, list[ComponentCondition]] = {}
        for condition in conditions:
            out = way_out(now.where(part, condition))
            alike.setdefault((out.commands, out.serves, out.costs), []).append(condition)
        for group in alike.values():
            yield f"{part}: {', '.join(group)}", now.where(part, group[0])


if __name__ == "__main__":
    sys.stdout.write(recovery_page())
