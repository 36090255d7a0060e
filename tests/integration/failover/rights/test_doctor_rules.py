"""Doctor names the rules of the primary that dr lacks, on clusters with an authorizer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import observing
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import Acl
from drkit.model.topology import Link
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.target_checks import access_rules_check
from drkit.observe.status import link_statuses
from tests.support.links.estates import OwnLink, mirror, texts

pytestmark = pytest.mark.lab


def told(own: OwnLink, link: Link) -> Check:
    with observing(own.config.clusters, None) as clusters:
        (status,) = link_statuses(own.config, own.store, [link], clusters=clusters)
        return access_rules_check(status, own.store, clusters)


def test_rules_that_dr_lacks_are_named_until_the_mirror_has_put_them(own: OwnLink) -> None:
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("orders", 10))
    mirror(own)
    read = Acl("topic", topic, "literal", "User:app", "*", "read", "allow")
    rules = {read, replace(read, operation="write")}
    off, standby = own.link, replace(own.link, acls=AclMode.STANDBY)
    assert told(own, off).outcome is CheckOutcome.OK
    with (
        ClusterAdmin("primary", own.config.clusters["primary"]) as primary,
        ClusterAdmin("dr", own.config.clusters["dr"]) as dr,
    ):
        assert primary.create_acls(rules) == {}
        try:
            lacking = told(own, off)
            assert lacking.outcome is CheckOutcome.WARN
            assert f"dr lacks 2 rules ('allow User:app to read topic {topic}'" in lacking.reason
            due = told(own, standby)
            assert due.outcome is CheckOutcome.WARN
            assert f"dr lacks 1 rule ('{read}'); not noted for the switch: 1 rule (" in due.reason
            mirror(own, standby)
            assert told(own, standby).reason == "dr has 1 rule that a standby gets; the switch puts 1 more"
            assert told(own, off).reason.startswith("dr lacks 1 rule")
        finally:
            primary.delete_acls(rules)
            dr.delete_acls(rules)
