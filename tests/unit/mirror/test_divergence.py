from __future__ import annotations

from drkit.kafka.epochs import EpochEnd
from drkit.mirror.divergence import Mirrored, diverged
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
