"""`python -m chaos.adversary`: plays seeded plans on one lab, minimises failures, prints how to replay them."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from chaos.adversary.plan import Plan, make, minimise
from chaos.adversary.run import Run
from chaos.adversary.world import BROKER_CONFIG
from chaos.soak.clusters import SoakError
from drkit.drill.environment.waiting import NotInTime
from drkit.lab import Lab

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class Adversary:
    """Plays plans on one lab, one after the other.

    Args:
        lab: with the clusters `primary` and `dr`, of one broker each.
        folder: each run gets a folder in it.
        plant: a defect to plant in the workers.
        known: findings that match this pattern don't count.
        loud: print every step.
    """

    def __init__(self, lab: Lab, folder: Path, *, plant: str = "-", known: str = "", loud: bool = False) -> None:
        self._lab = lab
        self._folder = folder
        self._plant = plant
        self._known = known
        self._loud = loud
        self._number = 0
        self.said: list[str] = []

    def play(self, plan: Plan) -> list[str]:
        """Play a plan; returns the findings."""
        self._number += 1
        folder = self._folder / f"{plan.seed}-{self._number}-{int(time.time()) % 100_000}"
        self.said = []
        found = Run(self._lab, folder, plan, plant=self._plant, known=self._known, say=self._say).play()
        if not found:
            shutil.rmtree(folder, ignore_errors=True)
        return found

    def smallest(self, plan: Plan) -> tuple[Plan, list[str]]:
        """The fewest actions of a plan that still find something, and the findings."""
        found: dict[tuple[int, ...], list[str]] = {}

        def fails(numbers: list[int]) -> bool:
            try:
                what = self.play(plan.only(numbers))
            except (SoakError, NotInTime) as error:
                self._say(f"broken: {error}")
                return False
            if what:
                found[tuple(numbers)] = what
            return bool(what)

        kept = minimise(list(plan.numbers), fails)
        return plan.only(kept), found.get(tuple(kept), [])

    def _say(self, line: str) -> None:
        self.said.append(line)
        if self._loud:
            print(line, flush=True)


@app.command()
def adversary(
    seed: Annotated[int, typer.Option("--seed", help="The first seed.")] = 1,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many seeds, one after the other.")] = 1,
    only: Annotated[str, typer.Option("--only", help="Play only these actions: comma-separated numbers.")] = "",
    minimal: Annotated[bool, typer.Option("--minimise/--no-minimise", help="Minimise failing plans.")] = True,
    plant: Annotated[str, typer.Option("--plant", help="Plant this defect in the mirror.")] = "-",
    known: Annotated[str, typer.Option("--known", help="Findings that match this pattern don't count.")] = "",
    lab_dir: Annotated[Path | None, typer.Option("--lab", help="Use (and leave) the lab in this folder.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for logs and results.")] = None,
    loud: Annotated[bool, typer.Option("--loud", help="Print each step.")] = False,
    minutes: Annotated[float, typer.Option("--minutes", help="Begin no run after so many.")] = 600.0,
) -> None:
    """Exits 0 if no run found anything."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = (out or Path(tempfile.mkdtemp(prefix="drkit-adversary-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab.up(lab_dir or folder / "lab", brokers=1, store="sqlite", broker_config=BROKER_CONFIG)
    begun = time.monotonic()
    failed = 0
    try:
        player = Adversary(lab, folder, plant=plant, known=known, loud=loud)
        for each in range(seed, seed + runs):
            if time.monotonic() - begun > 60 * minutes:
                break
            plan = make(each)
            if only:
                plan = plan.only(int(number) for number in only.split(","))
            failed += not _one(player, plan, folder / "results.jsonl", minimal=minimal and not only)
    finally:
        if lab_dir is None:
            lab.down()
    sys.exit(1 if failed else 0)


def _one(player: Adversary, plan: Plan, results: Path, *, minimal: bool) -> bool:
    """Play one plan and print the outcome; returns whether it was clean."""
    begun = time.monotonic()
    broken = ""
    try:
        found = player.play(plan)
    except (SoakError, NotInTime) as error:
        found, broken = [], str(error)
    seconds = round(time.monotonic() - begun, 1)
    word = "broken" if broken else "FOUND" if found else "clean"
    kinds = [action.kind for action in plan.actions]
    audited = ", audited" if plan.audits else ""
    line = f"seed {plan.seed}: {word} in {seconds} s{audited}: {' '.join(kinds)} {broken}"
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
    if found:
        if minimal:
            print("\n".join(f"    {line}" for line in player.said), flush=True)
            smaller, still = player.smallest(plan)
            plan, found = (smaller, still) if still else (plan, found)
        print("\n".join(f"    {line}" for line in [*plan.lines(), *found]))
        numbers = ",".join(str(number) for number in plan.numbers)
        print(f"    again: python -m chaos.adversary --seed {plan.seed} --only {numbers}", flush=True)
    with results.open("a") as file:
        entry = {
            "seed": plan.seed,
            "word": word,
            "seconds": seconds,
            "actions": kinds,
            "audited": plan.audits,
            "found": found,
            "numbers": plan.numbers,
        }
        file.write(json.dumps(entry) + "\n")
    return word == "clean"


if __name__ == "__main__":
    app()
