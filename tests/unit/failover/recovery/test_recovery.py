"""No dead ends: the machine with its adversary, explored exhaustively to two faults."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from drkit.failover.context.state_machine import Run
from drkit.failover.recovery.way_out import (
    ABANDON,
    ANSWERS,
    BY_HAND,
    RESUME,
    STATUS,
    Component,
    Situation,
    WayOut,
    faults_of,
    way_out,
)
from tests.support.commands.runbooks import parse
from tests.support.recovery import recovery_model
from tests.support.recovery.recovery_model import (
    CommandRefused,
    ModelWorld,
    after,
    beginnings,
    carried_out,
    killed_after,
    situation,
    struck,
)
from tools.manual.recovery_page import STATES, recovery_page

ROOT = Path(__file__).resolve().parents[4]
FAULTS = 2
NO_RUN = cast("Run", None)
Decide = Callable[[Situation], WayOut]


def led_on(world: ModelWorld, decide: Decide) -> tuple[WayOut, ModelWorld]:
    """The way out from a world, and the world at its end."""
    out = decide(situation(world))
    for number, command in enumerate(out.commands):
        if command == ABANDON and number and world.run.finished:
            continue  # it is for a run that the command before it can't take to its end
        world = after(world, command)
    return out, world


def explored(faults: int = FAULTS, decide: Decide = way_out) -> Iterator[tuple[ModelWorld, WayOut, ModelWorld]]:
    """Every world that stages, kills, ways out and so many faults lead to; its way out, and the world after that."""
    seen: set[Hashable] = set()
    left = [(world, faults) for world in beginnings()]
    while left:
        world, budget = left.pop()
        facts = world.run.facts
        known = facts.mode, facts.fenced, facts.sealed, facts.audit, facts.mirror_stopped, facts.committed
        key = (world.run.kind, world.run.state, known, replace(world, run=NO_RUN), budget)
        if key in seen:
            continue
        seen.add(key)
        following = (carried_out(world), killed_after(world))
        left.extend((each, budget) for each in following if each is not None)
        if budget:
            left.extend((hit, budget - 1) for hit in struck(world))
        try:
            out, end = led_on(world, decide)
        except CommandRefused as refused:
            pytest.fail(f"{decide(situation(world)).commands} is refused ({refused}) in {situation(world)}: {world}")
        yield world, out, end
        left.append((end, budget))


def proven(faults: int, decide: Decide) -> int:
    """Explore; the worlds seen.

    Raises:
        AssertionError: a dead end, or something destroyed.
    """
    count = 0
    first = {world.run.kind: world.everything() for world in beginnings()}
    for world, out, end in explored(faults, decide):
        count += 1
        for each in (world, end):
            gone = first[each.run.kind] - each.everything() - each.taken
            assert not gone, f"{gone} was destroyed by drkit: {out} in {situation(world)}"
        up = [part for part in (Component.SOURCE, Component.TARGET) if world.condition(part) in ANSWERS]
        if up:
            assert end.writable, f"nobody can write after {out.commands} in {situation(world)}: {world} -> {end}"
            assert out.serves in up
        else:
            assert out.serves is None
    return count


def test_from_every_world_a_command_lets_clients_write_and_nothing_unkept_is_destroyed():
    assert proven(FAULTS, way_out) > 10_000


@pytest.mark.parametrize("only", [RESUME, ABANDON, STATUS])
def test_one_command_alone_would_leave_dead_ends(only):
    """The exploration itself is checked: it finds what is missing."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        proven(1, lambda now: replace(way_out(now), commands=(only,)))


def test_a_record_that_is_kept_nowhere_would_be_found(monkeypatch):
    monkeypatch.setattr(recovery_model.ModelWorld, "everything", lambda world: world.on_source | world.on_target)
    with pytest.raises(AssertionError, match="was destroyed by drkit"):
        proven(0, way_out)


def every_situation() -> Iterator[Situation]:
    """Every state of every kind of run, and how each part may be broken."""
    for kind, mode, state in STATES:
        yield Situation(kind, mode, state)
        for part, conditions in faults_of(kind).items():
            for condition in conditions:
                yield Situation(kind, mode, state).where(part, condition)


def test_no_cell_of_the_table_is_empty():
    for now in every_situation():
        out = way_out(now)
        assert out.commands, now
        assert out.costs, now
        assert out.serves is not None, now


def test_the_document_is_current():
    assert (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8") == recovery_page()


def test_every_command_is_one_that_the_cli_takes():
    names = ("01J", "a->b", "a", "b")
    commands = {command for now in every_situation() for command in way_out(now).filled(*names).commands}
    for command in commands - {BY_HAND}:
        parse(tuple(shlex.split(command)))
