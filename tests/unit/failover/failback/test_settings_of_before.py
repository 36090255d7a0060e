"""What a failback's plan says of settings that remove more than the live cluster's."""

from types import SimpleNamespace

import pytest

from drkit.failover.context.state_machine import Kind
from drkit.failover.failback.checks import warnings
from drkit.failover.failback.failback_snapshot import FailbackSnapshot
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.model.topology import Link, LinkId

ENDLESS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def told(before, now, kind=Kind.FAILBACK):
    snapshot = FailbackSnapshot(
        link=Link(LinkId("primary", "dr"), (".*",)),
        control=None,
        old=ClusterView("primary", reachable=True),
        live=ClusterView("dr", reachable=True),
        states={},
        watermarks={},
        configs={"orders": ENDLESS | before},
        live_configs={"orders": ENDLESS | now},
    )
    plan = SimpleNamespace(topics=(), level=False, only_here=0, carried=0, kind=kind)
    return [each for each in warnings(snapshot, plan) if "goes on both sides" in each]


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ({"retention.ms": "604800000"}, {}, "orders (retention.ms 604800000, on dr -1)"),
        ({"retention.bytes": "1000"}, {"retention.bytes": "2000"}, "orders (retention.bytes 1000, on dr 2000)"),
        ({}, {"cleanup.policy": "compact"}, "orders (cleanup.policy delete, on dr compact)"),
    ],
)
def test_settings_by_which_more_is_removed_are_named_before(before, now, named):
    (warning,) = told(before, now)
    assert warning.startswith(named)
    assert not told(before, now, Kind.REPROTECT), "a standby follows the live cluster"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {}),
        ({}, {"retention.ms": "1000"}),
        ({"retention.ms": "2000"}, {"retention.ms": "1000"}),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}),
    ],
)
def test_settings_that_keep_as_much_are_not(before, now):
    assert told(before, now) == []
