from __future__ import annotations

from datetime import UTC, datetime

from drkit.kafka.epochs import EpochEnd
from drkit.mapping.invert import invert_watermark
from drkit.mirror.divergence import Mirrored, diverged
from drkit.mirror.engine import Position
from drkit.mirror.progress import _joined, _Tracked
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("flights", 0)


def test_a_source_whose_epoch_ends_where_we_are_or_beyond_is_whole() -> None:
    for end in (100, 130):
        assert diverged({TP: Mirrored(100, 3)}, {TP: EpochEnd(3, end)}) == []


def test_a_source_whose_epoch_ends_below_lost_the_difference() -> None:
    (found,) = diverged({TP: Mirrored(100, 3)}, {TP: EpochEnd(3, 80)})
    assert (found.tp, found.kept, found.through, found.epoch) == (TP, 80, 100, 3)
    link = LinkId("primary", "dr")
    assert "lost offsets 80 to 99" in found.reason(link)
    assert "--topic flights --accept-recreated" in found.remedy(link)


def test_a_leader_that_never_had_the_epoch_lost_it_where_its_older_one_ends() -> None:
    (found,) = diverged({TP: Mirrored(100, 3)}, {TP: EpochEnd(2, 60)})
    assert found.kept == 60


def test_nothing_is_claimed_without_an_epoch_or_an_answer() -> None:
    assert diverged({TP: Mirrored(100, None)}, {TP: EpochEnd(3, 80)}) == []
    assert diverged({TP: Mirrored(100, 3)}, {}) == []


MARK = Watermark(*TP, 1, 100, 100, 0, 100, 0, datetime(2026, 11, 21, tzinfo=UTC), leader_epoch=3)


def test_an_epoch_holds_for_no_batches_that_came_after_it() -> None:
    assert (MARK.epoch_at(100), MARK.epoch_at(40), MARK.epoch_at(101)) == (3, 3, None)


def test_a_position_beyond_what_an_epoch_is_known_for_has_none() -> None:
    """As after a crash, or with an engine that isn't told epochs: else a whole source would seem cut."""
    tracked = _Tracked(MARK, TP.topic)
    assert _joined(tracked, Position(100, 100), None).leader_epoch == 3
    assert _joined(tracked, Position(130, 130), None).leader_epoch is None
    assert _joined(tracked, Position(130, 130), 5).leader_epoch == 5


def test_the_other_direction_knows_nothing_of_this_ones_epochs() -> None:
    assert invert_watermark(MARK, epoch=2).leader_epoch is None
