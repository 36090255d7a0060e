"""A link's record, turned round."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from drkit.failover.failback.way_back import FormerDirection, reverse_record, save_reversed
from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, doubts_on_record
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, SourceBatch, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic.store_age import unproven_problem
from drkit.store import open_store

AT = datetime(2026, 11, 29, tzinfo=UTC)
LINK = Link(LinkId("primary", "dr"), topics=("t",))
TP, SURE = TopicPartition("t", 0), TopicPartition("t", 1)
EQUAL = TopicPartition("t", 2)
SILENT = SimpleNamespace(batches_at=lambda _offsets: {})
"""A cluster of which no leader answers in time."""


@pytest.mark.parametrize("recorded", [True, False], ids=["on record", "by the plan"])
def test_a_record_made_of_rows_that_may_not_be_all_says_so_itself_in_either_direction(recorded):
    """A fresh copy would prove what is left of them."""
    store = open_store("sqlite:///:memory:")
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "d", 1, 3, created_by_drkit=True)])
    for tp in (TP, SURE):
        store.append_mappings(LINK.id, [OffsetMapping(*tp, 1, 0, 0), OffsetMapping(*tp, 1, 20, 15)])
    store.append_mappings(LINK.id, [OffsetMapping(*EQUAL, 1, 0, 0)])
    store.put_watermarks(LINK.id, [Watermark(*tp, 1, 40, 35, 0, 40, 0, AT) for tp in (TP, SURE)])
    store.put_watermarks(LINK.id, [Watermark(*EQUAL, 1, 40, 40, 0, 40, 0, AT)])
    in_doubt = NO_ROW_DOUBTS if recorded else RowDoubts(single={str(TP): "why", str(EQUAL): "why"})
    if recorded:
        store.put_problem(LINK.id, unproven_problem(LINK.id, TP, "its copy had lost them", AT))
    before = {"t": FormerDirection(1, created_by_drkit=True)}
    back = LINK.reversed()
    save_reversed(store, back.id, reverse_record(store, SILENT, LINK, before, "r", only_known=True, in_doubt=in_doubt))
    assert set(doubts_on_record(store.problems(back.id)).single) == {str(TP)}, "equal offsets need no row but the first"

    store.forget_link_data(LINK.id)
    assert not store.problems(LINK.id)
    save_reversed(store, LINK.id, reverse_record(store, SILENT, back, before, "r", only_known=False))
    assert set(doubts_on_record(store.problems(LINK.id)).single) == {str(TP)}
    store.close()


WHOLE, CLEANED, GROWN, EMPTY = range(4)
ENDS = {WHOLE: 40, CLEANED: 40, GROWN: 40, EMPTY: 0}
HELD = {WHOLE: LogBatch(30, 39, 3, 7), CLEANED: LogBatch(41, 45, 4, 8), GROWN: LogBatch(38, 45, 4, 9)}


def test_the_last_batches_of_all_partitions_are_read_at_once():
    """By them, partitions of which nothing is read later on are told from those that were set back."""
    asked = []

    def batches_at(offsets):
        asked.append(offsets)
        return {tp: HELD[tp.partition] for tp in offsets}

    store = open_store("sqlite:///:memory:")
    store.put_topic_states(LINK.id, [TopicState("t", "t", "s", "d", 1, len(ENDS), created_by_drkit=True)])
    store.append_mappings(LINK.id, [OffsetMapping("t", number, 1, 100, 0) for number in ENDS])
    store.put_watermarks(
        LINK.id, [Watermark("t", number, 1, 100 + end, end, 100, 100 + end, 0, AT) for number, end in ENDS.items()]
    )
    target = SimpleNamespace(batches_at=batches_at)
    turned = reverse_record(store, target, LINK, {}, "r", only_known=False)
    assert asked == [{TopicPartition("t", number): 39 for number in (WHOLE, CLEANED, GROWN)}]
    known = {mark.partition: (mark.leader_epoch, mark.source_batch) for mark in turned.watermarks}
    assert known.pop(WHOLE) == (3, SourceBatch(39, 7))
    assert set(known.values()) == {(None, None)}, "nothing is known where no batch ends there"
    store.close()
