"""What the primary keeps for its clients and dr lacks is told before a failover, on real clusters."""

from __future__ import annotations

import pytest

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import observing
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.target_checks import client_settings_check
from tests.support.clusters.quotas import quota
from tests.support.links.estates import OwnLink
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def test_a_quota_that_dr_lacks_is_named_until_it_is_there(own: OwnLink, unique_name: str) -> None:
    def told() -> str:
        with observing(own.config.clusters, None) as clusters:
            found = client_settings_check(own.link.id, clusters)
        assert found.outcome in {CheckOutcome.OK, CheckOutcome.WARN}, "other tests have settings here, too"
        return found.reason

    entity, rate = f"client-id {unique_name}", 1_000_000.0
    with (
        ClusterAdmin("primary", own.config.clusters["primary"]) as primary,
        ClusterAdmin("dr", own.config.clusters["dr"]) as dr,
        quota(primary, unique_name, "producer_byte_rate", rate),
    ):
        (settings, volumes) = primary.client_settings(), primary.disks()
        assert settings.hidden == {}
        assert settings.parts["broker settings"]["offsets.retention.minutes"] == "10080"
        assert all(0 < each.usable <= each.total for each in volumes if each.usable is not None and each.total)
        assert volumes
        wait_until(lambda: "quotas that dr lacks" in told() and entity in told(), what="the quota of primary alone")
        with quota(dr, unique_name, "producer_byte_rate", 2 * rate):
            different = f"{entity} (producer_byte_rate=1,000,000; there producer_byte_rate=2,000,000)"
            wait_until(lambda: different in told(), what="another value on dr")
        with quota(dr, unique_name, "producer_byte_rate", rate):
            wait_until(lambda: entity not in told(), what="the same on both")
