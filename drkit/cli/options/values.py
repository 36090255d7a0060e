"""Values of options: what the shell completes, and which numbers are taken."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import typer

_MOST = 1e9


def aliases(context: typer.Context, incomplete: str) -> list[str]:
    """The aliases of the clusters in the configuration that the command would read, as far as they begin so.

    It reads the file alone, not the whole configuration (each key press would wait for that to be loaded), and is
    silent where the file can't be read.
    """
    given = context.params.get("config") or os.environ.get("DRKIT_CONFIG") or "drkit.toml"
    try:
        clusters = tomllib.loads(Path(given).read_text(encoding="utf-8-sig")).get("clusters")
    except (OSError, ValueError, RecursionError):
        return []
    return [alias for alias in clusters if alias.startswith(incomplete)] if isinstance(clusters, dict) else []


def bounded(value: float | None) -> float | None:
    """A callback of each option that takes a float: the value, unless it is NaN, infinite, or too great to wait for.

    A minimum alone lets NaN through, and there are seconds that no clock takes.

    Raises:
        typer.BadParameter: it is.
    """
    if value is not None and not abs(value) <= _MOST:
        raise typer.BadParameter(f"{value:g} is not a number of at most {_MOST:,.0f}.")
    return value
