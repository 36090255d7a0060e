"""Which places at the ends of both sides' logs a planned move compares."""

from drkit.failover.stages.fence_stages import OFFSETS, last_places
from drkit.kafka.client.record_probe import LogPosition
from drkit.model.topology import TopicPartition
from tests.unit.failover.plan.worlds import Log

TP = TopicPartition("t", 0)


def test_each_of_the_last_target_offsets_has_the_source_offset_of_its_segment():
    view = Log("rrrhhrrmrr", target_base=50).view()
    assert view.target_end == 58
    places = {there.offset: here.offset for there, here in last_places([view]).items()}
    assert {offset: places[offset] for offset in (50, 52, 53, 54, 56, 57)} == {50: 0, 52: 2, 53: 5, 54: 6, 56: 7, 57: 8}


def test_only_the_last_of_a_long_log():
    view = Log("r" * (OFFSETS + 30)).view(target_start=10)
    assert list(last_places([view])) == [LogPosition(TP, offset) for offset in range(30, OFFSETS + 30)]
