"""Both ways of coalescing small batches, for tests that must hold for either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drkit.kafka import compiled


@pytest.fixture(scope="module", params=["plain Python", "machine code"])
def joining(request: pytest.FixtureRequest) -> Iterator[str]:
    """Make the process coalesce batches in this way."""
    state = compiled._State
    before = state.kernel, state.wanted
    state.kernel = compiled.load() if request.param == "machine code" else None
    state.wanted = True
    yield request.param
    state.kernel, state.wanted = before
