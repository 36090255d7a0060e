"""Whether a live cluster still holds what was brought back, where its log ends below that or nothing shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.failover.stages import failback_stages
from drkit.failover.stages.failback_stages import DrainBack
from drkit.lag.diverged_logs import ComparedLogs
from drkit.lag.unmirrored_tail import SECONDS, UnmirroredTail
from drkit.model.errors import PartlyDone
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("t", 0)
MARK = Watermark("t", 0, 1, 2000, 2000, 1000, 2000, 1000, datetime(2026, 11, 29, tzinfo=UTC))
ROW = OffsetMapping("t", 0, 1, 1000, 1000)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks of one partition that was brought back from 1000 to 2000: its log's start and end now, whether nothing shows
    that it is the same log, its rows, and what a comparison of its records finds."""

    def ask(
        start: int, end: int, *, unproven: bool = False, row: OffsetMapping | None = ROW, found: Any = None
    ) -> list[str]:
        logs = ComparedLogs({TP: end} if end < 2000 else {}, frozenset({TP} if unproven else ()))
        monkeypatch.setattr(failback_stages, "compare_logs", lambda *_: logs)

        def tail(offsets: dict[TopicPartition, int], *_: Any, seconds: float, **__: Any) -> UnmirroredTail:
            assert seconds > SECONDS or not offsets, (
                "the more there is to compare, the longer: a resume gets no further"
            )
            return found if found is not None and offsets else UnmirroredTail({}, {}, {})

        monkeypatch.setattr(failback_stages, "tail_below", tail)
        view = SimpleNamespace(tp=TP, watermark=MARK, source_start=start, rows=() if row is None else (row,))
        estate = SimpleNamespace(admin=lambda _alias: None, store=None)
        context: Any = SimpleNamespace(
            estate=estate, link=SimpleNamespace(id=LinkId("dr", "primary")), run="RUN", commit_begun=False
        )
        snapshot: Any = SimpleNamespace(partitions={TP: view})
        return DrainBack("dr", "primary", "id")._cut(context, snapshot, {"t:0": end})

    return ask


def test_a_log_that_is_as_it_was_read_is_whole(cut: Any) -> None:
    assert cut(1000, 2000) == []


def test_what_ends_below_where_the_way_back_began_holds_other_records(cut: Any) -> None:
    """It was set back to before all that was brought back: nothing there can be compared."""
    assert cut(0, 500) == ["t:0 (below offset 500)"]
    assert cut(500, 500) == [], "an empty log holds no other records"


def test_records_that_differ_below_the_end_were_never_brought_back(cut: Any) -> None:
    found = UnmirroredTail({TP: 1700}, {TP: 1690}, {})
    for end, unproven in ((1800, False), (2000, True)):
        assert cut(1000, end, unproven=unproven, found=found) == ["t:0 (from offset 1690 on)"]


@pytest.mark.parametrize(
    ("row", "found", "why"),
    [(ROW, UnmirroredTail({}, {}, {TP: "its leader is down"}), "its leader is down"), (None, None, "no mapping row")],
)
def test_what_can_not_be_compared_stops_the_run_and_is_called_no_other_record(
    cut: Any, row: OffsetMapping | None, found: Any, why: str
) -> None:
    with pytest.raises(PartlyDone, match=why) as stopped:
        cut(1000, 2000, unproven=True, row=row, found=found)
    assert "isn't known" in stopped.value.what
    assert "drkit resume RUN" in (stopped.value.remedy or "")
