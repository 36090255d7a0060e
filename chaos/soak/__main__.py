"""`python -m chaos.soak`: starts two clusters of three brokers, plays faults under load, judges, reports."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from chaos.soak.run import REPORT_FILE, Soak
from chaos.soak.world import BROKER_CONFIG, World
from drkit.lab import Lab

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def soak(
    faults: Annotated[int, typer.Option("--faults", min=0, help="How many.")] = 8,
    seed: Annotated[int, typer.Option("--seed", help="The same seed plays the same faults.")] = 1,
    workers: Annotated[int, typer.Option("--workers", min=1, help="The number of workers of the link.")] = 1,
    store: Annotated[str, typer.Option("--store", help="sqlite or cassandra")] = "sqlite",
    offsets: Annotated[str, typer.Option("--offsets", help="preserve or translate")] = "preserve",
    scale: Annotated[float, typer.Option("--scale", min=0.1, help="Factor of the load (1: 1,400 records/s).")] = 1.0,
    gap: Annotated[float, typer.Option("--gap", min=0.3, help="The most seconds between two faults.")] = 6.0,
    minutes: Annotated[float, typer.Option("--minutes", help="Begin no fault after so many.")] = 120.0,
    every: Annotated[int, typer.Option("--every", min=1, help="Translate the position of every Nth record.")] = 50,
    lab_dir: Annotated[Path | None, typer.Option("--lab", help="Use (and leave) the lab in this folder.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for report and evidence.")] = None,
) -> None:
    """Exits 0 if nothing is missing or extra and every position is correct; else keeps the evidence."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = (out or Path(tempfile.mkdtemp(prefix="drkit-soak-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:7.1f} {line}", flush=True)

    lab = Lab.up(
        lab_dir or folder / "lab",
        brokers=3,
        store="cassandra" if store == "cassandra" else "sqlite",
        broker_config=BROKER_CONFIG,
        say=say,
    )
    clean = False
    try:
        name = f"soak-{seed}-{int(time.time())}"
        world = World(lab, folder, name, workers=workers, cassandra=store == "cassandra", offsets=offsets)
        try:
            report = Soak(
                world, seed=seed, faults=faults, scale=scale, gap=gap, minutes=minutes, every=every, say=say
            ).run()
        finally:
            world.close()
        clean = report["verdict"] == "clean"
        say(f"{report['verdict']}: {report.get('totals')} {report.get('broken', '')}; {folder / REPORT_FILE}")
    finally:
        if lab_dir is None:
            lab.down(keep_data=not clean)
            if clean:
                shutil.rmtree(folder / "lab", ignore_errors=True)
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    app()
