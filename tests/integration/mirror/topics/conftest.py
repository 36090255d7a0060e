"""What tests of topics share."""

from __future__ import annotations

import pytest

from tests.support.links.mirroring import Mirrored
from tests.support.links.topic_looks import TakenMeanwhile, taken_between_looks


@pytest.fixture
def taken_meanwhile(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> TakenMeanwhile:
    """Has a topic of the source take a record between looks of the mirror's."""
    return taken_between_looks(mirrored, monkeypatch)
