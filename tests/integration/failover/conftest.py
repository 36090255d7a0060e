"""A link of one's own on the shared lab, over a SQLite store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.lab import Lab
from tests.support.links.estates import OwnLink, own_link


@pytest.fixture
def own(lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    mine = own_link(lab, tmp_path, unique_name)
    yield mine
    mine.store.close()
