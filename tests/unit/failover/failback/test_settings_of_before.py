"""Settings of before that remove more than the live cluster's: what a plan says, and what the switch keeps of these."""

from types import SimpleNamespace

import pytest

from drkit.failover.context.state_machine import Kind
from drkit.failover.failback.checks import warnings
from drkit.failover.failback.failback_snapshot import FailbackSnapshot
from drkit.failover.failback.removing_settings import GroupPlace, kept_for_unread
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.kafka.client.record_probe import NOTHING, ProbedRecord
from drkit.model.errors import Refused
from drkit.model.topic_policy import TopicSettings
from drkit.model.topology import Link, LinkId, TopicPartition

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
        (
            {"cleanup.policy": "compact", "retention.ms": "1000"},
            {},
            "orders (cleanup.policy compact, on dr delete), orders (retention.ms 1000, on dr -1)",
        ),
        (
            {"cleanup.policy": "compact", "delete.retention.ms": "1000"},
            {"cleanup.policy": "compact", "delete.retention.ms": "2000"},
            "orders (delete.retention.ms 1000, on dr 2000)",
        ),
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
        ({"cleanup.policy": "compact", "retention.ms": "1000"}, {"cleanup.policy": "compact"}),
        ({"delete.retention.ms": "1000"}, {"delete.retention.ms": "2000"}),
    ],
)
def test_settings_that_keep_as_much_are_not(before, now):
    assert told(before, now) == []


TP = TopicPartition("orders", 0)
NOW_MS = 1_000_000


class Held:
    """A partition of 100 offsets, one stamped each second up to now, of 10 bytes each. `markers`: how many at the end
    are a transaction's; `late`: nothing is read in time."""

    def __init__(self, *, sizes=True, markers=0, late=False):
        self.sizes, self.markers, self.late = sizes, markers, late

    def probe_records(self, places, *, seconds):
        if self.late:
            return dict.fromkeys(places, ProbedRecord(reason=f"not read in {seconds:g} s", late=True))
        return {
            place: ProbedRecord(place.offset, 1, 2) if place.offset < 100 - self.markers else NOTHING
            for place in places
        }

    def end_offsets(self, tps, *, committed):
        assert not committed
        return dict.fromkeys(tps, 100)

    def offsets_for_times(self, at):
        first = {tp: 100 - (NOW_MS - stamp) // 1000 for tp, stamp in at.items()}
        return {tp: offset if offset < 100 else None for tp, offset in first.items()}

    def log_sizes(self, tps):
        if not self.sizes:
            raise Refused("no DESCRIBE")
        return dict.fromkeys(tps, 1000)


def kept(own, offset, policy=None, **held):
    return [
        (each.name, each.live, each.unread)
        for each in kept_for_unread(
            Held(**held),
            {"orders": ENDLESS | own},
            {"orders": ENDLESS},
            [GroupPlace("billing", TP, offset)],
            policy or TopicSettings(),
            at_ms=NOW_MS,
        )
    ]


BY_DESIGN = TopicSettings(exclude=("retention[.].*",))
"""dr has a retention of its own."""


@pytest.mark.parametrize(
    ("own", "offset", "unread"),
    [
        ({"retention.ms": "10000"}, 40, 60),
        ({"retention.ms": "10000"}, 99, 1),  # it needs its time
        ({"retention.ms": "10000"}, None, 100),
        ({"retention.bytes": "5000"}, 40, 60),
        ({"retention.ms": "10000"}, 100, None),
        ({}, 40, None),
    ],
)
def test_what_the_operator_made_dr_keep_stays_for_a_group_that_has_not_read_everything(own, offset, unread):
    expected = [] if unread is None else [(next(iter(own)), "-1", unread)]
    assert kept(own, offset) == expected


@pytest.mark.parametrize(
    ("own", "offset", "stays"),
    [
        ({"retention.ms": "10000"}, 89, True),
        ({"retention.ms": "10000"}, 90, False),
        ({"retention.ms": "0"}, 99, True),
        ({"retention.bytes": "999"}, 99, True),
        ({"retention.bytes": "1000"}, 40, False),
    ],
)
def test_where_dr_keeps_more_by_the_link_s_policy_only_what_goes_now_counts(own, offset, stays):
    assert bool(kept(own, offset, BY_DESIGN)) is stays


@pytest.mark.parametrize("policy", [TopicSettings(), BY_DESIGN], ids=["follows", "its own"])
@pytest.mark.parametrize("own", ["compact", "compact,delete"])
def test_a_topic_that_keeps_dr_s_cleanup_policy_keeps_the_retention_that_it_has_with_it(own, policy):
    """Its own one has no effect while it is compacted only: with `delete` it would remove what nobody has read."""
    stays = [("cleanup.policy", "delete", 60), ("retention.ms", "-1", 60)]
    assert kept({"cleanup.policy": own, "retention.ms": "604800000"}, 40, policy) == stays


def test_what_can_t_be_told_counts_as_removed():
    assert kept({"retention.bytes": "1000"}, 40, BY_DESIGN, sizes=False)
    assert kept({"retention.ms": "10000"}, 99, late=True)


def test_a_group_that_has_read_all_but_a_transaction_s_marker_is_not_behind():
    assert not kept({"retention.ms": "10000"}, 99, markers=1)
    assert kept({"retention.ms": "10000"}, 98, markers=1) == [("retention.ms", "-1", 2)]


def test_the_run_says_which_group_has_not_read_what():
    (found,) = kept_for_unread(
        Held(),
        {"orders": ENDLESS | {"retention.ms": "10000"}},
        {"orders": ENDLESS},
        [GroupPlace("billing", TP, 98), GroupPlace("audit", TP, 40)],
        TopicSettings(),
        at_ms=NOW_MS,
    )
    assert str(found) == (
        "orders keeps retention.ms -1 (audit has not read 60 offsets of orders:0, which its own, 10000, would remove)"
    )
