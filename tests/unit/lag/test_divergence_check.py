"""What a lost tail says of what is below it, where the source holds something else there or nobody can tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.kafka.admin.logs.leader_epochs import KeptEpochs
from drkit.kafka.admin.logs.source_divergence import Divergence, topic_recreated
from drkit.lag.divergence_check import check_divergences, further_down
from drkit.model.errors import Unreachable
from drkit.model.link_state import FOREIGN_WRITER, RETENTION_GAP, SOURCE_TRUNCATED, Problem, TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store

LINK = LinkId("primary", "dr")
TP = TopicPartition("t", 0)
AT = datetime(2026, 11, 27, tzinfo=UTC)
MARK = Watermark("t", 0, 1, 120, 50, 0, 120, 0, AT, leader_epoch=2)
LOST = Divergence(TP, 120, 50, KeptEpochs(110, exact=True), 2)


def test_a_divergence_names_what_is_replaced_below_it() -> None:
    told = replace(LOST, replaced=(70, "it holds a record at offset 70 that was never mirrored"))
    assert LOST.unsure == (110, None)
    assert told.unsure == (70, None)
    assert replace(told, undecided=60).unsure == (60, None)
    assert "; it holds a record at offset 70 that was never mirrored (a cluster that was set back" in told.reason(LINK)


@pytest.mark.parametrize(("rows", "replaced"), [([(0, 0)], 0), ([], None)], ids=["mapped", "no rows"])
def test_where_nobody_can_tell_what_is_below_a_divergence_nothing_is_proven(
    rows: list[tuple[int, int]], replaced: int | None
) -> None:
    store = open_store("sqlite:///:memory:")
    store.append_mappings(LINK, [OffsetMapping("t", 0, 1, *row) for row in rows])

    def silent() -> None:
        raise Unreachable("dr does not answer")

    found = check_divergences(
        {TP: LOST},
        {TP: MARK},
        link=LINK,
        store=store,
        sides=silent,  # type: ignore[arg-type]  # it raises before it returns
    )[TP]
    assert found.unsure[0] == (110 if replaced is None else replaced)
    if replaced is not None:
        assert "dr does not answer" in found.reason(LINK)
    store.close()


@pytest.mark.parametrize(
    ("kind", "first", "halted", "asked"),
    [
        (SOURCE_TRUNCATED, 110, True, True),
        (FOREIGN_WRITER, 110, True, True),
        (FOREIGN_WRITER, 0, True, False),
        (SOURCE_TRUNCATED, 110, False, False),
        (RETENTION_GAP, 110, True, False),
    ],
)
def test_below_a_place_on_record_it_is_unknown_what_the_source_holds_while_a_side_is_silent(
    kind: str, first: int, halted: bool, asked: bool
) -> None:
    """Of which all differs already, or which names no place, nothing is asked."""
    store = open_store("sqlite:///:memory:")
    store.append_mappings(LINK, [OffsetMapping("t", 0, 1, 0, 0)])
    told = Problem(kind, "t", 0, "why", "what to do", halted=halted, since=AT, unsure_from=first)

    def silent() -> None:
        raise Unreachable("dr does not answer")

    deeper, unread = further_down(
        [told],
        {TP: MARK},
        link=LINK,
        store=store,
        sides=silent,  # type: ignore[arg-type]  # it raises before it returns
    )
    assert deeper == {}
    assert unread == (
        {TP: "whether primary still holds what was mirrored below that is not known: dr does not answer"}
        if asked
        else {}
    )
    store.close()


def test_only_of_brokers_that_are_read_by_name_a_new_topic_may_be_on_the_target_already() -> None:
    state = TopicState("t", "t", "old-id", "target-id", 1, 1, created_by_drkit=True)
    said = topic_recreated(LINK, state, "new-id", AT, by_name=False).reason
    assert said == "t on primary is a new topic of the same name (id new-id, mirrored was old-id)"
    assert topic_recreated(LINK, state, "new-id", AT, by_name=True).reason == (
        f"{said}; what was read of it before this was noticed may be on the target already, since brokers older than "
        "Kafka 3.1 are read by a topic's name"
    )
