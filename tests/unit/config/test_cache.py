"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from drkit.config.environment import cache_dir


def test_the_cache_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRKIT_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert cache_dir() == tmp_path / "elsewhere"
