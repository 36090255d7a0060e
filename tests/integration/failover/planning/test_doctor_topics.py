"""Doctor compares topics, rules, versions and retention of real clusters, by what the mirror itself would do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import observing
from drkit.model.clock import now, to_millis
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.readiness import readiness
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab
SETTINGS, RETENTION = "topic settings", "retention on the source"
WEEK = timedelta(days=7)


def checks(own: OwnLink):
    with observing(own.config.clusters, None) as clusters:
        return {each.name: each for each in readiness(own.config, own.store, own.link, clusters).checks}


def test_a_setting_that_somebody_changed_on_dr_is_told_until_the_mirror_puts_it_back(own: OwnLink) -> None:
    topic = own.create("primary", "orders", retention_ms=str(WEEK // timedelta(milliseconds=1)))
    own.produce("primary", topic, texts("orders", 20))
    mirror(own)
    found = checks(own)
    compared = (SETTINGS, RETENTION, "versions", "access rules", "brokers of the target")
    assert {name: found[name].outcome for name in compared} == dict.fromkeys(compared, CheckOutcome.OK)
    assert "metadata.version " in found["versions"].reason
    assert "not told" not in found["versions"].reason
    with ClusterAdmin("dr", own.config.clusters["dr"]) as dr:
        dr.set_topic_configs(topic, {"retention.ms": "1000000"})
    told = checks(own)[SETTINGS]
    assert told.outcome is CheckOutcome.WARN
    assert f"{topic} (retention.ms is 1000000, not 604800000)" in told.reason
    mirror(own)
    assert checks(own)[SETTINGS].outcome is CheckOutcome.OK


def test_what_retention_may_remove_before_it_is_mirrored_is_told(own: OwnLink) -> None:
    topics = {
        name: own.create("primary", name, retention_ms=str(WEEK // timedelta(milliseconds=1)))
        for name in ("young", "ageing")
    }
    for topic in topics.values():
        own.produce("primary", topic, texts("before", 20), stamp=to_millis(now() - timedelta(days=6)))
    mirror(own)
    for name, age in (("young", timedelta(days=1)), ("ageing", timedelta(days=5))):
        own.produce("primary", topics[name], texts("later", 5), stamp=to_millis(now() - age))
    told = checks(own)[RETENTION]
    assert told.outcome is CheckOutcome.WARN
    assert "has used up half of its time or size" in told.reason
    assert f"{topics['ageing']}:0 (retention.ms is 7 days)" in told.reason
    assert topics["young"] not in told.reason
    mirror(own)
    assert checks(own)[RETENTION].outcome is CheckOutcome.OK


def test_tombstones_that_compaction_may_remove_before_they_are_mirrored_are_told(own: OwnLink) -> None:
    topic = own.create("primary", "latest", cleanup_policy="compact", delete_retention_ms="1")
    own.produce("primary", topic, texts("before", 5))
    mirror(own)
    own.produce("primary", topic, texts("later", 5))
    told = wait_until(lambda: _warned(own), what="a limit that is over")
    assert f"{topic}:0 (tombstones: delete.retention.ms is" in told.reason
    mirror(own)
    assert checks(own)[RETENTION].outcome is CheckOutcome.OK


def _warned(own: OwnLink) -> Check:
    told = checks(own)[RETENTION]
    assert told.outcome is CheckOutcome.WARN, told
    return told
