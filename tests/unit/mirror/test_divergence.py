from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from drkit.kafka.admin.leader_epochs import EpochEnd, KeptEpochs
from drkit.kafka.admin.source_divergence import divergence
from drkit.kafka.protocol.coalescing import CoalescedRun
from drkit.mapping.invert import invert_watermark
from drkit.mirror.engine.interface import PartitionProgress
from drkit.mirror.engine.source_epochs import SourceEpochs
from drkit.mirror.progress import _joined, _Tracked
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("flights", 0)
MARK = Watermark(*TP, 1, 100, 100, 0, 100, 0, datetime(2026, 11, 21, tzinfo=UTC), leader_epoch=3)
LINK = LinkId("primary", "dr")


def test_a_source_whose_epoch_ends_where_we_are_or_beyond_is_whole() -> None:
    for end in (100, 130):
        assert divergence(MARK, EpochEnd(3, end), 200) is None


def test_a_source_whose_epoch_ends_below_lost_the_difference() -> None:
    found = divergence(MARK, EpochEnd(3, 80), 200)
    assert found is not None
    assert (found.tp, found.kept, found.through, found.epoch) == (TP, KeptEpochs(80, exact=True), 100, 3)
    assert "lost offsets 80 to 99 after" in found.reason(LINK)
    assert "--topic flights --accept-recreated" in found.remedy(LINK)
    assert "100 offsets of partition 0, which stay" in found.remedy(LINK)


def test_a_leader_that_never_had_the_epoch_may_have_lost_more_than_its_older_one_shows() -> None:
    found = divergence(MARK, EpochEnd(2, 60), 200)
    assert found is not None
    assert found.kept == KeptEpochs(60, exact=False)
    assert "lost offsets 60 to 99, and maybe earlier ones, after" in found.reason(LINK)


def test_a_log_without_the_epoch_is_another_one_however_far_it_reaches() -> None:
    """A former leader comes back with a tail that nobody else had: longer than what was mirrored, and other records."""
    found = divergence(MARK, EpochEnd(2, 110), 200)
    assert found is not None
    assert found.kept == KeptEpochs(100, exact=False)
    assert "doesn't know leader epoch 3" in found.reason(LINK)


def test_a_logs_end_tells_where_no_epoch_does() -> None:
    for mark, end in ((replace(MARK, leader_epoch=None), None), (MARK, None), (MARK, EpochEnd(-1, -1))):
        assert divergence(mark, end, 100) is None
        found = divergence(mark, end, 90)
        assert found is not None
        assert "its log ends at 90" in found.reason(LINK)


def test_a_high_watermark_that_lags_behind_the_leaders_log_is_no_loss() -> None:
    assert divergence(MARK, EpochEnd(3, 100), 90) is None


def found_at(base: int, count: int, epoch: int) -> CoalescedRun:
    return CoalescedRun(base, epoch, count, 0, 0, b"", 1)


def test_epochs_are_told_for_what_is_mirrored_not_for_what_was_only_read() -> None:
    epochs = SourceEpochs(3)
    epochs.note([found_at(100, 10, 3), found_at(110, 10, 5), found_at(120, 10, 7)], 100)
    assert epochs.newest == 7
    assert [epochs.below(offset) for offset in (0, 100, 110, 111, 120, 121, 130, 999)] == [3, 3, 3, 5, 5, 7, 7, 7]
    epochs.note([found_at(130, 10, 7)], 115)
    epochs.note([found_at(140, 10, 8)], 125)
    assert [epochs.below(offset) for offset in (125, 140, 141)] == [7, 7, 8]


def test_nothing_is_told_of_a_log_that_keeps_no_epochs() -> None:
    epochs = SourceEpochs(-1)
    epochs.note([found_at(0, 10, -1)], 0)
    assert (epochs.newest, epochs.below(10)) == (-1, -1)


def test_an_epoch_holds_for_its_position_alone() -> None:
    assert (MARK.epoch_at(100), MARK.epoch_at(40), MARK.epoch_at(101)) == (3, None, None)


def test_a_position_beyond_what_an_epoch_is_known_for_has_none() -> None:
    """As after a crash, or with an engine that isn't told epochs: else a whole source would seem cut."""
    tracked = _Tracked(MARK, TP.topic)
    assert _joined(tracked, PartitionProgress(100, 100), None).leader_epoch == 3
    assert _joined(tracked, PartitionProgress(130, 130), None).leader_epoch is None
    assert _joined(tracked, PartitionProgress(130, 130), 5).leader_epoch == 5


def test_the_other_direction_knows_nothing_of_this_ones_epochs() -> None:
    assert invert_watermark(MARK, epoch=2).leader_epoch is None
