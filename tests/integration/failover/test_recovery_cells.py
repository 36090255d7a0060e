"""Cells of docs/recovery.md on real clusters: the state is reached by a kill, the part is broken, the commands are run.

A seeded sample runs always, all of them with `-m long`. A cluster that is down is one at whose address nothing
answers; one that came back empty has lost the link's topics; a replaced one is a cluster of another lab.
"""

from __future__ import annotations

import json
import os
import random
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from drkit.config import Config, load_config
from drkit.failover.abandon import abandon_run
from drkit.failover.estate import Estate
from drkit.failover.machine import PATHS, Kind, Mode, State
from drkit.failover.planner import Request, make_plan
from drkit.failover.recovery import Condition, Part, Situation, way_out
from drkit.failover.refence import lift_fence
from drkit.failover.service import cancel_run, resume_run, run_failover
from drkit.lab import Lab
from tests.support.estates import OwnLink, mirror, own_link, texts, without_primary
from tests.support.rooms import reading_ports
from tests.support.secured import allow, killed_at, put, with_writer, write
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

ALIAS = {Part.SOURCE: "primary", Part.TARGET: "dr"}
SEED = int(os.environ.get("DRKIT_CELLS_SEED", "15"))
ALWAYS, SAMPLED = 1, 2


class Cell(NamedTuple):
    """A row of the table."""

    kind: Kind
    mode: Mode
    state: State
    part: Part
    condition: Condition

    def __str__(self) -> str:
        return f"{self.mode}-{self.kind}-{self.state}-{self.part}-{self.condition}".replace(" ", "-")


def cells() -> list[Cell]:
    """Those that a kill and a cluster lost can make."""
    runs = ((Kind.FAILOVER, Mode.UNPLANNED), (Kind.FAILOVER, Mode.PLANNED), (Kind.FAILBACK, Mode.PLANNED))
    return [
        Cell(kind, mode, step.reaches, part, condition)
        for kind, mode in (*runs, (Kind.REPROTECT, Mode.PLANNED))
        for step in PATHS[kind][:-1]
        for part in ALIAS
        for condition in (Condition.DOWN, Condition.EMPTY, Condition.REPLACED)
    ]


def parameters() -> Iterator[object]:
    """The cell of a live cluster that is gone after the audit, a sample, and the others for `-m long`."""
    every = cells()
    first = Cell(Kind.FAILBACK, Mode.PLANNED, State.AUDITED, Part.TARGET, Condition.DOWN)
    near = [cell for cell in every if cell.condition is not Condition.REPLACED and cell != first]
    always = [first, *random.Random(SEED).sample(near, SAMPLED)]  # noqa: S311 - a choice of tests
    for cell in every:
        marks = () if cell in always else (pytest.mark.long,)
        yield pytest.param(cell, id=str(cell), marks=marks)


@pytest.fixture
def own(secure_lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    """A link whose clients are the user `app`; drkit is a super user."""
    mine = with_writer(own_link(secure_lab, tmp_path, unique_name), secure_lab)
    for alias in ALIAS.values():
        put(mine, alias, *(allow(mine.name, kind, "all") for kind in ("topic", "group")))
    yield mine
    mine.store.close()


@pytest.mark.parametrize("cell", list(parameters()))
def test_what_the_table_says_leads_on(
    cell: Cell, own: OwnLink, secure_lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic = reached(own, cell, tmp_path)
    config = broken(own, cell, topic, request)
    out = way_out(Situation(cell.kind, cell.mode, cell.state).where(cell.part, cell.condition))
    assert out.serves is not None
    run = own.store.runs()[0].run
    before = held(own, topic, tmp_path)

    with Estate(config, own.store) as estate:
        for command in out.filled(run, str(own.link.id), "primary", "dr").commands:
            carry_out(own, estate, command, tmp_path)

    serves = ALIAS[out.serves]
    lost = before - held(own, topic, tmp_path)
    assert not lost, f"{out} destroyed {sorted(lost)[:5]}"
    if out.serves is cell.part and cell.condition is Condition.REPLACED:
        return  # another cluster, where no fence of drkit's ever was
    if topic not in own.topic_names(serves):
        own.create(serves, "t")
    wait_until(lambda: write(secure_lab, serves, topic) == "written", what=f"a client of {serves} to write")


def reached(own: OwnLink, cell: Cell, tmp_path: Path) -> str:
    """Kill a run in the cell's state; the topic."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 5))
    own.commit("primary", "g", topic, {0: 3, 1: 5})
    mirror(own)
    stage = next(step.stage for step in PATHS[cell.kind] if step.reaches is cell.state)
    action = {Kind.FAILBACK: "failback", Kind.REPROTECT: "reprotect"}.get(cell.kind)
    if action is None:
        action = "planned" if cell.mode is Mode.PLANNED else "failover"
    else:
        own.produce("primary", topic, texts("only-here", 2))
        with own.estate() as estate:
            assert run_failover(estate, make_plan(estate, Request("dr")), accept_unfenced=False).error is None
        own.produce("dr", topic, texts("on-dr", 3))
    killed_at(own, action, (stage, "outcome", "after"), str(tmp_path / "salvage"))
    return topic


def broken(own: OwnLink, cell: Cell, topic: str, request: pytest.FixtureRequest) -> Config:
    """Break the cell's part; the configuration by which drkit sees that."""
    alias = ALIAS[cell.part]
    if cell.condition is Condition.EMPTY:
        if topic in own.topic_names(alias):
            with own.estate() as estate:
                estate.admin(alias).delete_topics([topic])
        return own.config
    if cell.condition is Condition.DOWN:
        address = without_primary(own).clusters["primary"].bootstrap_servers
        there = own.config.clusters[alias].model_copy(update={"bootstrap_servers": address})
    else:
        elsewhere: Lab = request.getfixturevalue("lab")
        there = load_config(elsewhere.config_path).clusters[alias]
    return own.config.model_copy(update={"clusters": {**own.config.clusters, alias: there}})


def carry_out(own: OwnLink, estate: Estate, command: str, tmp_path: Path) -> None:
    """What a command does, without its dialogue; a run may stop with what it says, for what follows is looked at."""
    words = shlex.split(command)
    ports = reading_ports(own, tmp_path / "salvage")
    match words[1:]:
        case ["status", *_]:
            return
        case ["abandon", run]:
            abandon_run(estate, run, print)
        case ["resume", run, "--cancel"]:
            assert cancel_run(estate, run).error is None
        case ["resume", run, *rest]:
            resume_run(estate, run, ports, unplanned="--unplanned" in rest)
        case ["fence", "--lift", "--cluster", cluster, *_]:
            _, proof = lift_fence(estate, own.link, cluster, print, meant=True)
            assert not proof.proven, proof.reason
        case ["failover", "--to", to, *_]:
            result = run_failover(estate, make_plan(estate, Request(to)), accept_unfenced=True)
            assert result.error is None
        case _:
            pytest.fail(f"no such command: {command}")


def held(own: OwnLink, topic: str, tmp_path: Path) -> set[str]:
    """Every record that is on a cluster or in a salvage, as an independent reader finds it."""
    found = {
        value
        for alias in ALIAS.values()
        if topic in own.topic_names(alias)
        for values in own.values(alias, topic).values()
        for value in values
    }
    for file in (tmp_path / "salvage").rglob("*.jsonl"):
        found |= {json.loads(line)[3] for line in file.read_text().splitlines()}
    return found
