"""Hands the rooms that failback needs, but must not import, to it: mirror, salvage, audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import platformdirs
import typer

from drkit.cli.context import Invocation
from drkit.failover.ports import Ports

SalvageOption = Annotated[
    Path | None,
    typer.Option(
        "--salvage-dir",
        metavar="DIR",
        help="Where what only the old primary holds is kept (default: under the user's state directory).",
    ),
]


def failback_ports(run: Invocation, salvage_dir: Path | None) -> Ports:
    """The rooms, wired to this invocation's configuration and store."""
    from drkit.cli.rooms_wiring import wire  # noqa: PLC0415 - Spark and the mirror load only when a failback runs

    return wire(run, salvage_dir or platformdirs.user_state_path("drkit") / "salvage")
