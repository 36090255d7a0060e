from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.mirror.engine.interface import PartitionProgress
from drkit.mirror.progress import _ENDS_KEPT, MirrorProgress, SeenEnds
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition

START = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def test_caught_up_is_not_behind() -> None:
    ends = SeenEnds()
    ends.note(at(0), 10)
    assert ends.behind_since(10) is None


def test_behind_since_the_first_sight_of_an_end_beyond_the_position() -> None:
    ends = SeenEnds()
    for second, end in enumerate([10, 20, 30, 40]):
        ends.note(at(second), end)
    assert ends.behind_since(5) == at(0)
    assert ends.behind_since(10) == at(1)
    assert ends.behind_since(25) == at(2)
    assert ends.behind_since(40) is None


def test_under_steady_load_the_lag_stays_that_of_the_present_position() -> None:
    """A mirror that is always a second behind is not behind since the beginning."""
    ends = SeenEnds()
    for second in range(100):
        ends.note(at(second), second * 10 + 10)
        assert ends.behind_since(second * 10) == at(second)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=_ENDS_KEPT * 3),
    st.integers(0, 10_000),
)
def test_many_ends_never_make_the_answer_younger(steps: list[int], through: int) -> None:
    ends = SeenEnds()
    seen: list[tuple[datetime, int]] = []
    end = 0
    for second, step in enumerate(steps):
        end += step
        ends.note(at(second), end)
        seen.append((at(second), end))
    truth = next((when for when, value in seen if value > through), None)
    answer = ends.behind_since(through)
    if truth is None:
        assert answer is None
    else:
        assert answer is not None
        assert answer <= truth


@pytest.mark.parametrize("reads", ["save", "current", "just_seen"])
def test_a_position_that_was_read_before_a_partition_started_again_is_not_the_new_start(reads: str) -> None:
    """A resume has set it back meanwhile: stored over that, it would have a restart leave out what lies between."""
    tp, stored = TopicPartition("t", 0), []

    def mark(through: int) -> Watermark:
        return Watermark(*tp, 1, through, 1_000, 0, 1_000, 0, START)

    def positions() -> dict[TopicPartition, PartitionProgress]:
        progress.leave_and_start()
        return {tp: PartitionProgress(1_000, 1_000)}

    class Restarting(MirrorProgress):
        def leave_and_start(self) -> None:
            self.forget([tp])
            self.track([(mark(970), "t")])

    engine: Any = SimpleNamespace(positions=positions, batches_below=lambda _: {})
    store: Any = SimpleNamespace(put_watermarks=lambda _, marks: stored.extend(marks))
    clusters: Any = (None, None)
    progress = Restarting(LinkId("a", "b"), *clusters, store, engine, committed=True)
    progress.track([(mark(1_000), "t")])
    found = progress.save() if reads == "save" else getattr(progress, reads)()
    assert not found
    assert stored == []
    engine.positions = lambda: {tp: PartitionProgress(970, 1_000)}
    progress.save()
    assert [each.source_through for each in stored] == [970]
    assert [each.source_through for each in progress.just_seen()] == [970], "it is judged once it runs"
