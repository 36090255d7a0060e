"""A link's record, turned round."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from drkit.failover.failback.way_back import FormerDirection, reverse_record, save_reversed
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, doubts_on_record
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic.store_age import unproven_problem
from drkit.store import open_store

AT = datetime(2026, 11, 29, tzinfo=UTC)
LINK = Link(LinkId("primary", "dr"), topics=("t",))
TP, SURE = TopicPartition("t", 0), TopicPartition("t", 1)
EQUAL = TopicPartition("t", 2)


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
    save_reversed(store, back.id, reverse_record(store, LINK, before, "r", only_known=True, in_doubt=in_doubt))
    assert set(doubts_on_record(store.problems(back.id)).single) == {str(TP)}, "equal offsets need no row but the first"

    store.forget_link_data(LINK.id)
    assert not store.problems(LINK.id)
    save_reversed(store, LINK.id, reverse_record(store, back, before, "r", only_known=False))
    assert set(doubts_on_record(store.problems(LINK.id)).single) == {str(TP)}
    store.close()
