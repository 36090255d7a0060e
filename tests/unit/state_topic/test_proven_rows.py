"""What a state topic's rows prove: whatever late writers, lost writes and compaction left, never a row too many."""

from __future__ import annotations

import random

import pytest

from drkit.model.topology import TopicPartition
from drkit.state_topic.records import ROWS_A_RECORD, RowBlock, RowBlocks, proven_rows

TP = TopicPartition("orders", 3)
EPOCH = 2


def pairs(count: int) -> list[tuple[int, int]]:
    return [(10 * number, 9 * number) for number in range(count)]


def proven(blocks: list[RowBlock], count: int, chain: str) -> list[tuple[int, int]] | None:
    rows = proven_rows(TP, EPOCH, sorted(blocks), count, chain)
    return None if rows is None else [(row.source_offset, row.target_offset) for row in rows]


@pytest.mark.parametrize("count", [0, 1, ROWS_A_RECORD - 1, ROWS_A_RECORD, ROWS_A_RECORD + 1, 3 * ROWS_A_RECORD + 7])
def test_all_rows_are_proven_by_the_watermark_that_counts_them(count):
    kept = RowBlocks(EPOCH, pairs(count))
    assert proven(kept.taken(), kept.count, kept.chain) == pairs(count)
    assert kept.taken() == []


def test_rows_that_came_after_the_watermark_are_not_taken():
    kept = RowBlocks(EPOCH, pairs(300))
    count, chain = kept.count, kept.chain
    blocks = {block.number: block for block in kept.taken()}
    for source, target in pairs(600)[300:]:
        assert kept.add(source, target)
    blocks |= {block.number: block for block in kept.taken()}
    assert proven(list(blocks.values()), count, chain) == pairs(300)


def test_a_watermark_ahead_of_its_rows_proves_nothing():
    kept = RowBlocks(EPOCH, pairs(ROWS_A_RECORD + 10))
    early = kept.taken()
    kept.add(10**6, 10**6)
    assert proven(early, kept.count, kept.chain) is None


def test_a_row_that_does_not_come_behind_the_others_asks_for_all_to_be_read_anew():
    kept = RowBlocks(EPOCH, pairs(5))
    assert kept.add(40, 36)  # once more
    assert not kept.add(40, 37)
    assert not kept.add(35, 30)
    assert kept.count == 5


def test_whatever_blocks_late_writers_leave_rows_are_those_that_the_watermark_means_or_none():
    rng = random.Random(7)  # noqa: S311 - a choice of tests
    answers = set()
    for _ in range(300):
        true = RowBlocks(EPOCH, pairs(rng.randrange(1, 1000)))
        blocks = {block.number: block for block in true.taken()}
        other = RowBlocks(EPOCH, [(s, t - rng.randrange(2)) for s, t in pairs(rng.randrange(1, 1000))])
        stale = RowBlocks(EPOCH, pairs(rng.randrange(1, 1000)))
        for block in [*other.taken(), *stale.taken()]:
            if rng.random() < 0.2:
                blocks[block.number] = block
        for number in [number for number in blocks if rng.random() < 0.05]:
            del blocks[number]
        rows = proven(list(blocks.values()), true.count, true.chain)
        assert rows in (None, pairs(true.count))
        answers.add(rows is None)
    assert answers == {True, False}
