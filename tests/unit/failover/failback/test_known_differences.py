"""Differences in the middle of both logs, which neither their beginnings nor their ends show."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.failover.context.live_log import LiveLog
from drkit.failover.failback.checks import why_not_level
from drkit.failover.failback.failback_snapshot import FailbackSnapshot, _not_there
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.lag.returned_records import given_up_problem
from drkit.model.link_state import OFFSETS_DIFFER, RECORDS_RETURNED, Problem, TopicState
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store import open_store

LINK = LinkId("primary", "dr")
AT = datetime(2026, 11, 28, tzinfo=UTC)
TP = TopicPartition("t", 0)
RETURNED = Problem(RECORDS_RETURNED, "t", 0, "50 to 59 came back", "", False, AT, unsure_from=50, unsure_until=60)


@pytest.mark.parametrize(
    ("problem", "start", "lacks"),
    [
        (RETURNED, 0, True),
        (RETURNED, 59, True),
        (RETURNED, 60, False),  # the old primary no longer has them
        (replace(RETURNED, unsure_from=100, unsure_until=110), 0, False),
        (given_up_problem(LINK, TP, 50, 60, since=AT), 0, True),
        (replace(RETURNED, kind=OFFSETS_DIFFER), 0, False),
    ],
)
def test_what_came_back_or_was_given_up_is_not_on_the_live_cluster(problem, start, lacks):
    store = open_store("sqlite:///:memory:")
    store.put_problem(LINK, problem)
    assert _not_there(store, LINK, {TP: start}, {TP: 100}) == ({TP: problem.reason} if lacks else {})
    store.close()


@pytest.mark.parametrize(
    ("known", "level"),
    [({}, True), ({"not_there": {TP: "50 to 59 came back"}}, False), ({"unlike": {TP: "begins later"}}, False)],
)
def test_what_is_known_to_differ_is_not_level_though_it_ends_alike(known, level):
    state = TopicState("t", "t", "old", "live", 1, 1, created_by_drkit=True)
    snapshot = FailbackSnapshot(
        link=Link(LINK, ("*",)),
        control=None,
        old=ClusterView("primary", reachable=True),
        live=ClusterView("dr", reachable=True),
        states={"t": state},
        watermarks={TP: Watermark("t", 0, 1, 100, 100, 0, 100, 0, AT)},
        ends={TP: 100},
        live_topics={"t": TopicInfo("t", "live", 1, 1, internal=False)},
        live_logs={"t": LiveLog("live", {0: 0}, {0: 100})},
        **known,
    )
    why = why_not_level(snapshot, (ScrubTopic("t", "old", "t", 1, 1, 1, created_by_drkit=False),))
    assert (why is None) is level
    assert level or why in str(known)
