"""A short soak with a fixed seed; `make soak ARGS="--faults 100"` is the long one (docs/soak.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.soak.run import Soak
from chaos.soak.world import BROKER_CONFIG, World
from drkit.lab import Lab
from tests.support.clusters.guard import Guard

pytestmark = [pytest.mark.lab, pytest.mark.long]

FAULTS = 5
SEED = 29


def test_a_short_soak_loses_nothing_and_doubles_nothing(
    tmp_path: Path, lab_guard: Guard, unique_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lab"
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=3, store="sqlite", broker_config=BROKER_CONFIG, timeout_seconds=240)
    try:
        world = World(lab, tmp_path, unique_name, workers=2, cassandra=False)
        try:
            soak = Soak(world, seed=SEED, faults=FAULTS, scale=0.5, gap=2.0, minutes=10, every=50, say=print)
            report = soak.run()
        finally:
            world.close()
    finally:
        lab.down()
    said = capsys.readouterr().out
    assert report["verdict"] == "clean", said
    assert len(report["faults"]) == FAULTS, said
    assert report["totals"]["records"] > 1_000, said
