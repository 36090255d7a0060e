"""How long the target's disks last at the rate at which the link mirrors now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.kafka.admin.cluster_description import Disk
from drkit.model.clock import now
from drkit.observe.link_status import RecoveryPoint
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.load_check import judged_load, mirrored_rate, not_removed_within
from drkit.store.workers import WorkerNote
from tests.support.pages.page import snapshot, worker

DAY, GIB = 86_400.0, 1 << 30
DISKS = [Disk(1, "/a", 100 * GIB, 80 * GIB), Disk(2, "/b", 100 * GIB, 10 * GIB)]
CAUGHT_UP = RecoveryPoint(0, 0.0)


def forever() -> tuple[None, list[str]]:
    return None, ["orders"]


def test_the_disk_with_the_least_room_lasts_as_if_all_that_is_mirrored_went_there():
    found = judged_load("dr", GIB / DAY, DISKS, forever)
    assert found.outcome is CheckOutcome.OK
    assert found.reason.startswith("broker 2 has room for at least 10 days at the 0.01 MiB/s that the link mirrors now")


def test_a_disk_that_may_be_full_within_three_days_is_a_warning_where_retention_does_not_prevent_it():
    fast = 5 * GIB / DAY
    full = judged_load("dr", fast, DISKS, forever)
    assert full.outcome is CheckOutcome.WARN
    assert "at least 2 days" in full.reason
    assert "retention by time removes nothing of orders" in full.reason
    late = judged_load("dr", fast, DISKS, lambda: (7 * DAY, []))
    assert (late.outcome, "only within 7 days" in late.reason) == (CheckOutcome.WARN, True)
    soon = judged_load("dr", fast, DISKS, lambda: (DAY, []))
    assert (soon.outcome, "retention removes it within 1 day" in soon.reason) == (CheckOutcome.OK, True)


def test_what_is_not_written_fills_nothing_and_disks_that_do_not_tell_are_unknown():
    assert judged_load("dr", 0.0, DISKS, forever).outcome is CheckOutcome.OK
    old = judged_load("dr", 1.0, [*DISKS, Disk(3, "/c", None, None)], forever)
    assert (old.outcome, "Kafka before 3.3" in old.reason) == (CheckOutcome.UNKNOWN, True)


def test_retention_counts_with_the_time_until_a_segment_is_rolled_and_only_where_it_deletes():
    day = str(int(DAY * 1000))
    plain = {"cleanup.policy": "delete", "retention.ms": day, "segment.ms": day}
    assert not_removed_within({"a", "b"}, {"a": plain, "b": {**plain, "segment.ms": "0"}}) == (2 * DAY, [])
    endless = {"a": plain, "b": {**plain, "retention.ms": "-1"}, "c": {**plain, "cleanup.policy": "compact"}}
    assert not_removed_within({"a", "b", "c", "hidden"}, endless) == (None, ["b", "c", "hidden"])


def test_the_rate_is_that_of_all_workers():
    two = (worker(worker="a", bytes_per_second=3.0), worker(worker="b", bytes_per_second=4.0))
    assert mirrored_rate(snapshot(statistics=two, recovery_point=CAUGHT_UP)) == (7.0, "")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"statistics": ()}, "no mirror has measured its rate"),
        ({"recovery_point": RecoveryPoint(9, 7200.0)}, "behind (by 2 hours), so its rate isn't that of primary"),
        ({"recovery_point": RecoveryPoint(None, None)}, "behind (by how long isn't known)"),
        (
            {"workers": (WorkerNote("silent:1:2", False, False, 1, now(), now()),)},
            "no rate is known of silent:1:2",
        ),
    ],
)
def test_a_rate_that_is_not_the_sources_is_not_known_with_the_reason(changes, why):
    values = {"statistics": (replace(worker(), worker="a"),), "recovery_point": CAUGHT_UP, **changes}
    rate, reason = mirrored_rate(snapshot(**values))
    assert rate is None
    assert why in reason
