"""The folder for data that drkit can create or fetch again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """`$DRKIT_CACHE_DIR`, else the user's cache folder for drkit. It may not exist yet."""
    override = os.environ.get("DRKIT_CACHE_DIR")
    return Path(override).expanduser().resolve() if override else Path(platformdirs.user_cache_dir("drkit"))
