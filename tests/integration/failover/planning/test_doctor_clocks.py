"""Doctor compares the clocks of both real clusters with this machine's."""

from __future__ import annotations

from datetime import timedelta

import pytest

from drkit.kafka.admin import cluster_description
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import observing
from drkit.model.clock import now
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.clocks_check import CLOCKS
from drkit.observe.readiness.readiness import readiness
from tests.support.links.estates import OwnLink

pytestmark = pytest.mark.lab


def told(own: OwnLink) -> Check:
    with observing(own.config.clusters, None) as clusters:
        (found,) = (each for each in readiness(own.config, own.store, own.link, clusters).checks if each.name == CLOCKS)
        return found


@pytest.mark.parametrize("alias", ["primary", "dr"])
def test_the_active_controller_tells_the_present_time(own: OwnLink, alias: str) -> None:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        clock = admin.controller_clock()
        assert clock is not None
        assert clock.node in {each.node_id for each in admin.brokers()}
        assert clock.least <= 0 <= clock.most, "it is this machine's own clock"


def test_a_clock_that_is_off_is_told(own: OwnLink, monkeypatch: pytest.MonkeyPatch) -> None:
    agreed = told(own)
    assert agreed.outcome is CheckOutcome.OK, agreed
    monkeypatch.setattr(cluster_description, "now", lambda: now() - timedelta(hours=1))
    off = told(own)
    assert off.outcome is CheckOutcome.WARN, "the dry run accepts it"
    for alias in ("primary", "dr"):
        assert f"the active controller of {alias} (node 1) is at least 3,600.0 s ahead of this machine" in off.reason
