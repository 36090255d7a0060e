"""Every test here has a link of its own on the session's lab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.lab import Lab
from tests.support.links.mirroring import Mirrored


@pytest.fixture
def mirrored(lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link over topics and groups whose names begin with a name of the test's own."""
    world = Mirrored(lab, tmp_path, unique_name)
    yield world
    world.close()
