"""What counts as equal, gone, different and unread where records of both sides are compared."""

from drkit.kafka.client.record_probe import NOTHING, LogPosition, ProbedRecord
from drkit.lag.last_records import judge_records
from drkit.model.topology import TopicPartition

TP = TopicPartition("t", 0)


def test_what_was_read_is_judged():
    copies = {
        LogPosition(TP, 0): ProbedRecord(0, 1, 11),
        LogPosition(TP, 1): ProbedRecord(1, 1, 12),
        LogPosition(TP, 2): ProbedRecord(2, 1, 13),
        LogPosition(TP, 3): ProbedRecord(4, 1, 14),  # a marker: the next record was found
        LogPosition(TP, 4): ProbedRecord(4, 1, 15),
        LogPosition(TP, 5): NOTHING,
        LogPosition(TP, 6): ProbedRecord(reason="not read in time"),
    }
    places = {there: LogPosition(TP, there.offset + 100) for there in copies}
    ours = {
        LogPosition(TP, 100): ProbedRecord(100, 1, 11),
        LogPosition(TP, 101): ProbedRecord(101, 1, 99),
        LogPosition(TP, 102): ProbedRecord(105, 1, 13),  # compacted away meanwhile
        LogPosition(TP, 104): ProbedRecord(104, 1, 98),
    }
    found = judge_records(ours, copies, places)
    assert (found.equal, found.gone) == (1, 1)
    assert [(here.offset, there.offset) for here, there in found.differ] == [(101, 1), (104, 4)]
    assert found.differs_from() == {TP: 101}
    assert found.unread == [(LogPosition(TP, 106), "t:0 at 6: not read in time")]
    unread = judge_records({**ours, LogPosition(TP, 100): ProbedRecord(reason="no leader")}, copies, places)
    assert [why for _, why in unread.unread] == ["t:0 at 100: no leader", "t:0 at 6: not read in time"]
