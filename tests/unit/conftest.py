"""What unit tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from drkit.store import open_store
from drkit.store.api import Store


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store, in memory: a worker's note holds for seconds, and a disk may take as long."""
    with closing(open_store("sqlite:///:memory:")) as opened:
        yield opened
