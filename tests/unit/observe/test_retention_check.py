"""What the source's retention would remove before it is mirrored."""

from __future__ import annotations

import pytest

from drkit.model.topology import TopicPartition
from drkit.observe.readiness.backlog_checks import Limits, Unmirrored, forecast
from drkit.observe.readiness.check import CheckOutcome

TP = TopicPartition("orders", 0)
DAY = Limits(milliseconds=86_400_000)
SIZE = Limits(bytes=1_000)


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "5", "retention.bytes": "-1"}, Limits(5, None)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "7"}, Limits(None, 7)),
        ({"cleanup.policy": "compact", "retention.ms": "5", "retention.bytes": "7"}, Limits()),
        ({"cleanup.policy": "compact", "delete.retention.ms": "9"}, Limits(tombstones=9)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "5", "delete.retention.ms": "9"}, Limits(5, None, 9)),
        ({"cleanup.policy": "delete", "delete.retention.ms": "9"}, Limits()),
        ({"retention.ms": "0"}, Limits(0, None)),
    ],
)
def test_the_limits_of_a_topic(settings, limits) -> None:
    assert Limits.of(settings) == limits


@pytest.mark.parametrize(
    ("behind", "share"),
    [
        (Unmirrored(TP, DAY), 0),
        (Unmirrored(TP, Limits(), 1e9, older_than_half=True, older_than_limit=True, bytes=1e12), 0),
        (Unmirrored(TP, DAY, 43_200.0), 0.5),
        (Unmirrored(TP, DAY, 10.0, older_than_half=True), 0.5),
        (Unmirrored(TP, DAY, 10.0, older_than_half=True, older_than_limit=True), 1),
        (Unmirrored(TP, DAY, 172_800.0), 2),
        (Unmirrored(TP, Limits(tombstones=86_400_000), 43_200.0), 0.5),
        (Unmirrored(TP, Limits(tombstones=86_400_000), None), 0),
        (Unmirrored(TP, SIZE, 1e9, bytes=700), 0.7),
        (Unmirrored(TP, SIZE, 1e9), 0),
        (Unmirrored(TP, Limits(86_400_000, 1_000), 43_200.0, bytes=900), 0.9),
    ],
)
def test_how_much_of_a_limit_is_used_up(behind, share) -> None:
    assert behind.used()[0] == share


def test_what_may_go_at_any_time_comes_first_and_each_limit_is_named() -> None:
    gone = Unmirrored(TP, DAY, older_than_limit=True)
    soon = Unmirrored(TopicPartition("flights", 1), SIZE, bytes=600)
    found = forecast("primary", [soon, gone, Unmirrored(TopicPartition("calm", 0), DAY, 1.0)], {})
    assert found.outcome is CheckOutcome.WARN
    assert found.reason == (
        "it may remove at any time what isn't mirrored yet: orders:0 (retention.ms is 1 day); what isn't mirrored yet "
        "has used up half of its time or size: flights:1 (retention.bytes is 1,000)"
    )
    assert "kafka-configs.sh" in found.remedy


def test_what_is_not_known_is_unknown_and_hides_nothing() -> None:
    unknown = {TP: "how far it is mirrored isn't known"}
    found = forecast("primary", [], unknown)
    assert (found.outcome, found.reason) == (
        CheckOutcome.UNKNOWN,
        "not known of orders:0 (how far it is mirrored isn't known)",
    )
    gone = Unmirrored(TopicPartition("flights", 1), DAY, older_than_limit=True)
    worse = forecast("primary", [gone], unknown)
    assert worse.outcome is CheckOutcome.WARN
    assert worse.reason.endswith("; not known of orders:0 (how far it is mirrored isn't known)")


def test_nothing_behind_or_little_of_the_limits_used_up_is_ok() -> None:
    assert forecast("primary", [], {}).reason == "primary holds nothing that isn't mirrored"
    found = forecast("primary", [Unmirrored(TP, DAY, 60.0)], {})
    assert (found.outcome, found.reason) == (
        CheckOutcome.OK,
        "1 partition not mirrored to the end, with less than half of their limits used up",
    )
