"""Doctor says how long dr's disks last at the rate that a running mirror measures."""

from __future__ import annotations

import pytest

from drkit.kafka.admin.clusters import observing
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.load_check import LOAD
from drkit.observe.readiness.readiness import readiness
from tests.support.links.estates import OwnLink, mirror, mirroring, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def told(own: OwnLink) -> Check:
    with observing(own.config.clusters, None) as clusters:
        (found,) = (each for each in readiness(own.config, own.store, own.link, clusters).checks if each.name == LOAD)
        return found


def test_the_disks_last_at_the_rate_of_the_mirror_and_that_is_not_known_without_one(own: OwnLink) -> None:
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("before", 50))
    mirror(own)
    stopped = told(own)
    assert stopped.outcome is CheckOutcome.UNKNOWN
    assert "no mirror has measured its rate" in stopped.reason

    def measured() -> Check:
        own.produce("primary", topic, texts("more", 500))
        found = told(own)
        assert "that the link mirrors now, of this link alone" in found.reason, found
        return found

    with mirroring(own):
        found = wait_until(measured, what="a rate")
    assert found.outcome is CheckOutcome.OK
    assert "has room for at least" in found.reason
