"""Room on the target's disks against what is still to come, and its brokers against the source's."""

from __future__ import annotations

from drkit.kafka.admin.cluster_description import Disk
from drkit.model.topology import LinkId, TopicPartition
from drkit.observe.readiness.backlog_checks import judged_brokers, judged_disks, to_come
from drkit.observe.readiness.check import CheckOutcome

MIB = 1 << 20
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_what_is_to_come_is_what_only_the_source_has_on_each_replica() -> None:
    assert to_come({A: 100, B: 50}, {A: 40, B: 70}, {"a": 3, "b": 3}) == 180
    assert to_come({A: 100}, {}, {}) == 100, "a topic that isn't there yet has one at least"
    assert to_come({}, {A: 40}, {"a": 3}) == 0, "the source is silent"


def test_a_disk_that_is_nearly_full_is_named_however_much_room_the_others_have() -> None:
    disks = [Disk(1, "/d", 1000 * MIB, 900 * MIB), Disk(2, "/e", 1000 * MIB, 90 * MIB)]
    found = judged_disks("dr", disks, 0)
    assert (found.outcome, found.reason) == (CheckOutcome.WARN, "broker 2 has 90 MiB free (9%) in /e")
    assert "Make room on dr" in found.remedy


def test_more_to_come_than_there_is_room_for() -> None:
    disks = [Disk(1, "/d", 1000 * MIB, 500 * MIB), Disk(2, "/d", 1000 * MIB, 400 * MIB)]
    assert judged_disks("dr", disks, 900 * MIB).outcome is CheckOutcome.OK
    found = judged_disks("dr", disks, 901 * MIB)
    assert found.outcome is CheckOutcome.WARN
    assert "about 901 MiB are still to come and 900 MiB are free on dr" in found.reason


def test_a_broker_that_does_not_tell_is_not_called_well() -> None:
    assert judged_disks("dr", [Disk(1, "/d", MIB, MIB), Disk(2, "/d", None, None)], 0).outcome is CheckOutcome.UNKNOWN
    assert judged_disks("dr", [], 0).outcome is CheckOutcome.UNKNOWN


def test_fewer_brokers_than_the_source_has_are_told_with_what_each_will_carry() -> None:
    link = LinkId("primary", "dr")
    assert judged_brokers(link, 3, 3).outcome is CheckOutcome.OK
    told = judged_brokers(link, 3, 2)
    assert told.outcome is CheckOutcome.WARN
    assert told.reason == "dr has 2 brokers, primary 3: after a failover each carries 1.5 times as much"
