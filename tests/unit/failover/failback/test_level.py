"""When a failback needs to delete nothing: each condition alone says no."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.failover.context.live_log import LiveLog
from drkit.failover.failback.checks import is_caught_up
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.model.link_state import TopicState
from drkit.model.offsets import Watermark
from drkit.model.topology import TopicPartition

TP = TopicPartition("t", 0)
TOPIC = ScrubTopic("t", "id-old", "t", 1, 1, 3, created_by_drkit=False)
MARK = Watermark(
    topic="t",
    partition=0,
    epoch=3,
    source_through=100,
    target_end=90,
    source_start=0,
    source_end=100,
    target_start=0,
    observed_at=datetime(2026, 11, 20, tzinfo=UTC),
    behind_since=None,
)
STATE = TopicState("t", "t", "id-old", "id-live", 3, 1, created_by_drkit=True)
LIVE = TopicInfo("t", "id-live", 1, 1, internal=False)


def level(topics=(TOPIC,), end=100, mark=MARK, live=LIVE, start=90, live_end=200):
    marks = {} if mark is None else {TP: mark}
    logs = {} if start is None else {"t": LiveLog("id-live", {0: start}, {0: live_end})}
    return is_caught_up(topics, {TP: end}, marks, {"t": STATE}, {} if live is None else {"t": live}, logs)


def test_it_is_where_all_was_mirrored_and_the_rest_is_still_there():
    assert level()
    assert level(live_end=90), "nothing was written there since"


@pytest.mark.parametrize(
    "otherwise",
    [
        {"topics": ()},
        {"end": 101},
        {"end": 99},
        {"end": None},
        {"mark": None},
        {"mark": replace(MARK, epoch=2)},
        {"mark": replace(MARK, source_end=101)},
        {"live": None},
        {"live": replace(LIVE, topic_id="another")},
        {"start": 91},
        {"start": None},
        {"live_end": 89},
        {"live_end": 0, "start": 0},
        {"topics": (replace(TOPIC, partitions=2),)},
    ],
)
def test_anything_else_is_not(otherwise):
    assert not level(**otherwise)
