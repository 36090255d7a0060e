"""What is at a place, at two looks."""

from dataclasses import asdict

import pytest

from drkit.failover.context.state_machine import PlacesSeen
from drkit.failover.positions.position_checks import (
    Match,
    PositionCheck,
    compare,
    count,
    difference,
    position_checks,
    what_changed,
)
from drkit.kafka.client.record_probe import NOTHING, LogPosition, ProbedRecord
from drkit.model.topology import TopicPartition

HERE = LogPosition(TopicPartition("t", 0), 7)
RECORD = ProbedRecord(7, 1000, 0xABC)
OUTSIDE = ProbedRecord(reason="outside the log", outside=True)
UNREAD = ProbedRecord(reason="no leader")


@pytest.mark.parametrize(
    ("before", "now", "removable", "expected"),
    [
        (RECORD, RECORD, False, Match.SAME),
        (
            position_checks({HERE: RECORD._replace(producer_id=5)})[0].peeked,
            RECORD._replace(producer_id=5),
            False,
            Match.SAME,
        ),
        (RECORD, RECORD._replace(crc=1), False, Match.DIFFERENT),
        (RECORD, RECORD._replace(timestamp=1001), True, Match.DIFFERENT),
        (RECORD, RECORD._replace(offset=9), False, Match.DIFFERENT),
        (RECORD, RECORD._replace(offset=9), True, Match.GONE),
        (RECORD, NOTHING, True, Match.GONE),
        (RECORD, NOTHING, False, Match.DIFFERENT),
        (RECORD, OUTSIDE, True, Match.DIFFERENT),
        (RECORD, UNREAD, False, Match.UNKNOWN),
        (UNREAD, RECORD, False, Match.UNKNOWN),
        (NOTHING, NOTHING, False, Match.END),
        (NOTHING, RECORD, False, Match.NEW),
    ],
)
def test_two_looks(before, now, removable, expected):
    assert compare(before, now, removable=removable) is expected


def test_counts_are_told_in_words():
    seen = count([Match.SAME, Match.SAME, Match.END, Match.UNKNOWN])
    assert seen == PlacesSeen(same=2, end=1, unknown=1)
    assert str(seen) == "of 4 places 2 hold the record planned, 1 are at the log's end, 1 could not be compared"
    assert set(asdict(seen)) == {match.value for match in Match}


def test_a_plan_is_stale_where_another_record_stands_at_a_place_and_not_where_something_was_written():
    end = LogPosition(HERE.tp, 9)
    before = position_checks({end: NOTHING, HERE: RECORD})
    assert [standing.place for standing in before] == [HERE, end]
    assert what_changed(before, position_checks({HERE: RECORD, end: ProbedRecord(9, 1, 1)})) == []
    other = position_checks({HERE: RECORD._replace(crc=5), end: NOTHING})
    assert what_changed(before, other) == [difference(HERE, RECORD, RECORD._replace(crc=5))]
    assert "t:0 at 7: the record 7 (stamped 1000, CRC 00000005), before: the record 7" in what_changed(before, other)[0]


def test_a_standing_keeps_what_was_seen():
    assert PositionCheck("t", 0, 7, 7, 1000, 0xABC, None).peeked == RECORD
