"""Settings of the target's topics are compared by the rules of the mirror's topic sync."""

from __future__ import annotations

from dataclasses import replace

from drkit.model.topic_policy import TopicSettings
from drkit.model.topics.standby import STANDBY, UNCOMPACTED
from drkit.model.topology import Link, LinkId
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.target_checks import TopicsSeen, compared_topics

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
NAMES = {"orders": "orders", "flights": "flights"}
SOURCE = {"cleanup.policy": "delete", "retention.ms": "86400000", "min.insync.replicas": "2"}
IN_STEP = {**SOURCE, **STANDBY}


def seen(**target: str) -> TopicsSeen:
    """Both topics as the mirror sets them, but `orders` with these settings."""
    here = {**IN_STEP, **{name.replace("_", "."): value for name, value in target.items()}}
    return TopicsSeen(dict.fromkeys(NAMES, SOURCE), {"orders": here, "flights": IN_STEP}, dict.fromkeys(NAMES, 3))


def test_what_is_in_step_is_ok() -> None:
    found = compared_topics(LINK, NAMES, seen(), mirrors=False)
    assert (found.outcome, found.reason) == (CheckOutcome.OK, "2 topics of dr have what the mirror gives them")


def test_what_differs_is_told_with_both_values_and_who_puts_it() -> None:
    changed = seen(retention_ms="604800000", message_timestamp_type="LogAppendTime")
    found = compared_topics(LINK, NAMES, changed, mirrors=False)
    assert (found.outcome, found.remedy) == (CheckOutcome.WARN, "Start drkit mirror: it puts them")
    assert found.reason == (
        "settings of 1 topic on dr differ from what the mirror gives them: orders (message.timestamp.type is "
        "LogAppendTime, not CreateTime, retention.ms is 604800000, not 86400000)"
    )
    assert "within seconds" in compared_topics(LINK, NAMES, changed, mirrors=True).remedy


def test_what_the_link_excludes_or_overrides_is_no_difference() -> None:
    policy = TopicSettings(exclude=("retention[.]ms",), overrides=(("min.insync.replicas", "1"),))
    link = replace(LINK, topic_settings=policy)
    found = compared_topics(link, {"orders": "orders"}, seen(retention_ms="-1", min_insync_replicas="1"), mirrors=True)
    assert found.outcome is CheckOutcome.OK
    assert compared_topics(LINK, NAMES, seen(retention_ms="-1"), mirrors=True).outcome is CheckOutcome.WARN


def test_replicas_bound_what_is_due_and_an_aligned_topic_is_not_compacted_yet() -> None:
    one = replace(seen(min_insync_replicas="1"), replicas={"orders": 1, "flights": 3})
    assert compared_topics(LINK, NAMES, one, mirrors=True).outcome is CheckOutcome.OK
    compacted = {name: {**SOURCE, "cleanup.policy": "compact"} for name in NAMES}
    there = {"orders": {**IN_STEP, **UNCOMPACTED}, "flights": {**IN_STEP, "cleanup.policy": "compact"}}
    aligning = replace(seen(), source=compacted, target=there, aligning={"orders"})
    assert compared_topics(LINK, NAMES, aligning, mirrors=True).outcome is CheckOutcome.OK
    assert compared_topics(LINK, NAMES, replace(aligning, aligning=()), mirrors=True).outcome is CheckOutcome.WARN


def test_an_override_that_brokers_do_not_know_is_told() -> None:
    link = replace(LINK, topic_settings=TopicSettings(overrides=(("retention.mss", "1"),)))
    found = compared_topics(link, NAMES, seen(), mirrors=True)
    assert found.outcome is CheckOutcome.WARN
    assert "orders (retention.mss, an override of the link, is no setting of its brokers)" in found.reason


def test_what_is_hidden_is_not_called_equal() -> None:
    hidden = replace(seen(), hidden=["orders on dr"], target={"flights": IN_STEP})
    found = compared_topics(LINK, NAMES, hidden, mirrors=True)
    assert (found.outcome, found.reason) == (
        CheckOutcome.UNKNOWN,
        "not compared, since drkit isn't shown them: orders on dr",
    )
