"""What counts as equal, gone, wrong and unread at the ends of both sides' logs."""

from drkit.failover.stages.compare_tails import OFFSETS, compare, last_places, origin
from drkit.kafka.client.record_probe import NOTHING, LogPosition, ProbedRecord
from drkit.model.topology import TopicPartition
from tests.unit.failover.worlds import Log

TP = TopicPartition("t", 0)


def test_each_of_the_last_target_offsets_has_the_source_offset_of_its_segment():
    view = Log("rrrhhrrmrr", target_base=50).view()
    assert view.target_end == 58
    places = last_places({TP: view})
    assert [place.offset for place in places] == list(range(50, 58))
    assert [origin(view, offset).offset for offset in (50, 52, 53, 54, 56, 57)] == [0, 2, 5, 6, 7, 8]


def test_only_the_last_of_a_long_log():
    view = Log("r" * (OFFSETS + 30)).view(target_start=10)
    assert [place.offset for place in last_places({TP: view})] == list(range(30, OFFSETS + 30))


def test_what_was_seen_is_judged():
    ours = {
        LogPosition(TP, 0): ProbedRecord(0, 1, 11),
        LogPosition(TP, 1): ProbedRecord(1, 1, 12),
        LogPosition(TP, 2): ProbedRecord(2, 1, 13),
        LogPosition(TP, 3): ProbedRecord(4, 1, 14),  # a marker: the next record was found
        LogPosition(TP, 5): NOTHING,
        LogPosition(TP, 6): ProbedRecord(reason="not read in time"),
    }
    places = {LogPosition(TP, offset): LogPosition(TP, offset + 100) for offset in (0, 1, 2)}
    theirs = {
        LogPosition(TP, 100): ProbedRecord(100, 1, 11),
        LogPosition(TP, 101): ProbedRecord(101, 1, 99),
        LogPosition(TP, 102): ProbedRecord(105, 1, 13),  # compacted away meanwhile
    }
    found = compare(ours, theirs, places)
    assert (found.equal, found.gone) == (1, 1)
    assert found.wrong == ["t:0 at 1 differs from t:0 at 101"]
    assert found.unread == ["t:0 at 6 (not read in time)"]
    unread = {**theirs, LogPosition(TP, 100): ProbedRecord(reason="no leader")}
    assert compare(ours, unread, places).unread == ["t:0 at 6 (not read in time)", "t:0 at 100 (no leader)"]
