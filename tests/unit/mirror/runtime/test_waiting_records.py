"""Since when records wait that stand behind open transactions, as the mirror watches the source's high watermark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.mirror.engine.interface import PartitionProgress
from drkit.mirror.progress import MirrorProgress
from drkit.mirror.resume.partition_resume import waiting_records
from drkit.model.offsets import WaitingRecords, Watermark
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("t", 0)
START = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
CAUGHT_UP = Watermark(*TP, 1, 10, 10, 0, 10, 0, START)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


class Mirror:
    """A mirror's view of a source that ends at `stable` for those who read what is committed, and at `high`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mark: Watermark = CAUGHT_UP, *, committed: bool = True) -> None:
        self.stable = self.high = 10
        self.position = PartitionProgress(mark.source_through, mark.target_end)
        self.now = START
        monkeypatch.setattr("drkit.mirror.progress.now", lambda: self.now)
        source: Any = SimpleNamespace(
            end_offsets=lambda tps, *, committed, **_: dict.fromkeys(tps, self.stable if committed else self.high),
            start_offsets=self._starts,
        )
        target: Any = SimpleNamespace(start_offsets=self._starts)
        engine: Any = SimpleNamespace(positions=lambda: {TP: self.position}, batches_below=lambda _: {})
        store: Any = None
        self.progress = MirrorProgress(LinkId("a", "b"), source, target, store, engine, committed=committed)
        self.progress.track([(mark, "t")])

    def _starts(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    def looks(self, second: int, stable: int, high: int, through: int) -> Watermark:
        """The watermark after a look, with everything below `through` mirrored."""
        self.now, self.stable, self.high = at(second), stable, high
        self.position = PartitionProgress(through, through)
        self.progress.observe()
        (mark,) = self.progress.current()
        return mark


def test_what_stands_behind_a_transaction_waits_since_it_was_first_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(monkeypatch)
    assert mirror.looks(1, 10, 10, 10).waiting is None
    assert mirror.looks(2, 10, 12, 10).waiting == WaitingRecords(12, at(2))
    found = mirror.looks(600, 10, 50, 10)
    assert found.waiting == WaitingRecords(50, at(2))
    assert (found.held_records, found.lag_records, found.behind_since) == (40, 0, None)
    assert mirror.looks(601, 51, 51, 51).waiting is None


def test_the_end_of_one_transaction_makes_what_another_holds_back_no_younger(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(monkeypatch)
    mirror.looks(1, 10, 20, 10)
    mirror.looks(2, 10, 30, 10)  # the second one begins at 20
    found = mirror.looks(600, 20, 31, 20)
    assert found.waiting == WaitingRecords(31, at(2))
    assert found.held_records == 11


def test_what_was_held_back_and_is_committed_now_waits_no_less_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is away, say: nothing of it is copied yet."""
    mirror = Mirror(monkeypatch)
    mirror.looks(1, 10, 20, 10)
    found = mirror.looks(600, 21, 21, 10)
    assert (found.behind_since, found.waiting, found.held_records) == (at(600), WaitingRecords(21, at(1)), 0)


def test_where_the_link_carries_open_transactions_the_source_has_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(monkeypatch, committed=False)
    found = mirror.looks(1, 10, 20, 10)
    assert (found.source_end, found.waiting) == (20, None)


def test_a_mirror_that_takes_over_knows_since_when_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(monkeypatch, replace(CAUGHT_UP, waiting=WaitingRecords(20, at(-600))))
    assert mirror.looks(1, 10, 25, 10).waiting == WaitingRecords(25, at(-600))
    assert mirror.progress.undated() == {}
    assert mirror.looks(2, 25, 30, 25).waiting == WaitingRecords(30, at(2)), "all that waited then is mirrored"


def test_of_a_transaction_that_was_open_before_any_look_its_coordinator_says_when_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = Mirror(monkeypatch, replace(CAUGHT_UP, waiting=WaitingRecords(20, None, at_most=True)))
    assert mirror.looks(1, 10, 25, 10).waiting == WaitingRecords(25, None, at_most=True)
    assert mirror.progress.undated() == {TP: 10}
    mirror.progress.date({TP: (9, at(-900))})
    assert mirror.progress.undated() == {TP: 10}, "that was another transaction"
    mirror.progress.date({TP: (10, at(-600))})
    assert mirror.looks(2, 10, 30, 10).waiting == WaitingRecords(30, at(-600))
    assert mirror.progress.undated() == {}


def test_once_all_of_it_is_decided_the_first_sight_counts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(monkeypatch, replace(CAUGHT_UP, waiting=WaitingRecords(20, None, at_most=True)))
    mirror.looks(1, 10, 25, 10)
    assert mirror.looks(2, 20, 25, 20).waiting == WaitingRecords(25, at(1))
    assert mirror.progress.undated() == {}


def test_a_coordinator_whose_clock_is_ahead_makes_nothing_younger_than_it_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = Mirror(monkeypatch, replace(CAUGHT_UP, waiting=WaitingRecords(20, None, at_most=True)))
    mirror.looks(1, 10, 25, 10)
    mirror.looks(300, 10, 25, 10)
    mirror.progress.date({TP: (10, at(3_600))})
    assert mirror.looks(301, 10, 25, 10).waiting == WaitingRecords(25, START)


@pytest.mark.parametrize(
    ("known", "stable", "high", "expected"),
    [
        (CAUGHT_UP, 10, 10, None),
        (CAUGHT_UP, 20, 20, None),
        (CAUGHT_UP, 10, 20, WaitingRecords(20, START)),
        (None, 10, 20, WaitingRecords(20, None, at_most=True)),
        (replace(CAUGHT_UP, observed_at=at(-90)), 10, 20, WaitingRecords(20, at(-90), at_most=True)),
        (replace(CAUGHT_UP, waiting=WaitingRecords(15, at(-600))), 10, 20, WaitingRecords(20, at(-600))),
        (replace(CAUGHT_UP, waiting=WaitingRecords(15, at(-600))), 20, 20, WaitingRecords(20, at(-600))),
        (replace(CAUGHT_UP, waiting=WaitingRecords(10, at(-600))), 10, 20, WaitingRecords(20, START)),
    ],
)
def test_a_partition_that_starts_takes_over_what_waits(
    known: Watermark | None, stable: int, high: int, expected: WaitingRecords | None
) -> None:
    seen: Any = SimpleNamespace(source_readable_end=stable, source_end=high, watermark=known)
    assert waiting_records(seen, 10, at(1)) == expected
