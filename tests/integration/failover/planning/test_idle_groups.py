"""Groups that nobody reads with: what doctor says of their offsets, before a failover and after it."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.kafka.admin.clusters import observing
from drkit.model.errors import Refused
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.idle_groups import IDLE_GROUPS
from drkit.observe.readiness.readiness import readiness
from tests.support.links.estates import OwnLink, mirror, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def check(own: OwnLink) -> Check:
    with observing(own.config.clusters, None) as clusters:
        found = readiness(own.config, own.store, own.link, clusters).checks
    return next(each for each in found if each.name == IDLE_GROUPS)


def test_doctor_names_groups_whose_offsets_kafka_may_delete(own: OwnLink) -> None:
    topic = own.create("primary", "orders")
    own.produce("primary", topic, texts("x", 20))
    idle, read = f"{own.name}.idle", f"{own.name}.read"
    own.commit("primary", "idle", topic, {0: 20, 1: 12})
    consumer = Consumer(
        {
            "bootstrap.servers": own.config.clusters["primary"].bootstrap_servers,
            "group.id": read,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.5) is not None and bool(consumer.assignment()), 60, "the group's member")
        consumer.commit(asynchronous=False)
        mirror(own)
        found = check(own)
        assert found.outcome is CheckOutcome.WARN
        assert f"1 group without members ({idle}): primary deletes their offsets 7 days after" in found.reason
        own.commit("primary", "idle", topic, {0: 20, 1: 13})
        mirror(own)
        found = check(own)
        assert (found.outcome, "1 group without members" in found.reason) == (CheckOutcome.OK, True)
        assert "all have committed since" in found.reason
    finally:
        consumer.close()
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        try:
            run_failover(estate, plan, accept_unfenced=True)
        except Refused as error:
            pytest.fail(str(error))
    found = check(own)
    assert (found.outcome, found.remedy) == (CheckOutcome.OK, "")
    assert f"2 moved groups without members on dr since the failover ({idle}, {read})" in found.reason
    assert "it keeps their offsets for 6 days more at least, of 7 days" in found.reason
