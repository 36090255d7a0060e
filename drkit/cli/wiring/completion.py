"""What the shell completes: values that the configuration holds. Fast, and silent where it can't be read."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import typer


def aliases(context: typer.Context, incomplete: str) -> list[str]:
    """The aliases of the clusters in the configuration that the command would read, as far as they begin so.

    It reads the file alone, not the whole configuration: each key press would wait for that to be loaded.
    """
    given = context.params.get("config") or os.environ.get("DRKIT_CONFIG") or "drkit.toml"
    try:
        clusters = tomllib.loads(Path(given).read_text(encoding="utf-8-sig")).get("clusters")
    except (OSError, ValueError, RecursionError):
        return []
    return [alias for alias in clusters if alias.startswith(incomplete)] if isinstance(clusters, dict) else []
