from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from drkit.kafka.admin.logs.leader_epochs import EpochEnd, KeptEpochs
from drkit.kafka.admin.logs.source_divergence import divergence
from drkit.kafka.protocol.coalescing import CoalescedRun
from drkit.mapping.invert import invert_watermark
from drkit.mirror.engine.interface import NOTHING_BELOW, BatchBelow, PartitionProgress
from drkit.mirror.engine.source_batches import SourceBatches
from drkit.mirror.progress import _joined, _Tracked
from drkit.model.offsets import SourceBatch, Watermark
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
    return CoalescedRun(base, epoch, count, 0, 0, b"", 1, crc=base)


def test_epochs_are_told_for_what_is_mirrored_not_for_what_was_only_read() -> None:
    epochs = SourceBatches(3)
    epochs.note([found_at(100, 10, 3), found_at(110, 10, 5), found_at(120, 10, 7)], 100)
    assert epochs.newest_epoch == 7
    assert [epochs.epoch_below(offset) for offset in (0, 100, 110, 111, 120, 121, 130, 999)] == [3, 3, 3, 5, 5, 7, 7, 7]
    epochs.note([found_at(130, 10, 7)], 115)
    epochs.note([found_at(140, 10, 8)], 125)
    assert [epochs.epoch_below(offset) for offset in (125, 140, 141)] == [7, 7, 8]


def test_nothing_is_told_of_a_log_that_keeps_no_epochs() -> None:
    epochs = SourceBatches(-1)
    epochs.note([found_at(0, 10, -1)], 0)
    assert (epochs.newest_epoch, epochs.epoch_below(10)) == (-1, -1)


def test_an_epoch_holds_for_its_position_alone() -> None:
    assert (MARK.epoch_at(100), MARK.epoch_at(40), MARK.epoch_at(101)) == (3, None, None)


def test_a_position_beyond_what_an_epoch_is_known_for_has_none() -> None:
    """As after a crash, or with an engine that isn't told epochs: else a whole source would seem cut."""
    tracked = _Tracked(MARK, TP.topic)
    assert _joined(tracked, PartitionProgress(100, 100), NOTHING_BELOW).leader_epoch == 3
    assert _joined(tracked, PartitionProgress(130, 130), NOTHING_BELOW).leader_epoch is None
    assert _joined(tracked, PartitionProgress(130, 130), BatchBelow(5, None)).leader_epoch == 5


def test_the_last_batch_that_is_mirrored_is_told_as_far_as_answers_end_there() -> None:
    batches = SourceBatches(3)
    assert batches.below(100) == BatchBelow(3, None)
    batches.note([found_at(100, 10, 3), found_at(110, 10, 3)], 100)
    batches.note([found_at(120, 10, 4)], 100)
    first, second = SourceBatch(119, 110), SourceBatch(129, 120)
    seen = {offset: batches.below(offset) for offset in (100, 119, 120, 129, 130)}
    assert seen == {
        100: BatchBelow(3, None),
        119: BatchBelow(3, None),
        120: BatchBelow(3, first),
        129: BatchBelow(4, first),
        130: BatchBelow(4, second),
    }
    batches.note([found_at(130, 10, 4)], 130)
    assert (batches.below(131).batch, batches.below(140).batch) == (second, SourceBatch(139, 130))


def test_a_batch_holds_for_all_positions_above_it() -> None:
    mark = replace(MARK, source_batch=SourceBatch(89, 7))
    assert (mark.batch_below(90), mark.batch_below(89)) == (SourceBatch(89, 7), None)
    tracked = _Tracked(mark, TP.topic)
    assert _joined(tracked, PartitionProgress(130, 130), NOTHING_BELOW).source_batch == SourceBatch(89, 7)
    assert _joined(tracked, PartitionProgress(130, 130), BatchBelow(5, SourceBatch(129, 8))).source_batch == (129, 8)
    assert invert_watermark(mark, epoch=2).source_batch is None


def test_the_other_direction_knows_nothing_of_this_ones_epochs() -> None:
    assert invert_watermark(MARK, epoch=2).leader_epoch is None
