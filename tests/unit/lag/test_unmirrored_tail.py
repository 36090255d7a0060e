"""What is said of records for which there is no time."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.client import log_reader
from drkit.lag.unmirrored_tail import unmirrored_tail
from drkit.model.offsets import Watermark

MARKS = [Watermark("t", number, 1, 10, 10, 0, 10, 0, datetime(2026, 11, 29, tzinfo=UTC)) for number in range(3)]


def test_what_is_not_read_in_time_is_unread_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(tps: Any, **_: Any) -> dict[Any, int]:
        return dict.fromkeys(tps, 10)

    side = SimpleNamespace(alias="x", cluster=None, start_offsets=lambda tps, **_: dict.fromkeys(tps, 0))
    side.end_offsets = ends
    monkeypatch.setattr(log_reader, "LogReader", lambda *_, **__: nullcontext())
    sides: Any = SimpleNamespace(
        source=side, target=side, target_topic=str, committed=True, alteration=None, left=False, rows=None, link=None
    )
    found = unmirrored_tail(sides, MARKS, seconds=-1.0)
    assert found.first == {}
    assert {tp.partition for tp, why in found.unread.items() if "wasn't read in time" in why} == {0, 1, 2}
