"""`--consistent` on real clusters: topics cut off at different points, a transaction over two of them, late stamps."""

import time

import pytest
from confluent_kafka import Producer

from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import plan_again, run_failover
from drkit.model.clock import from_millis
from tests.support.links.estates import TIMEOUT, mirror, without_primary

pytestmark = pytest.mark.lab


def transact(own, name, records):
    """One transaction: (topic, value, stamp)."""
    producer = Producer({**own.client("primary"), "transactional.id": name})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    for topic, value, stamp in records:
        producer.produce(topic, value.encode(), partition=0, timestamp=stamp)
    producer.commit_transaction(TIMEOUT)


def test_all_groups_are_placed_at_the_last_instant_before_anything_is_missing(own):
    ahead, behind, idle = (own.create("primary", name, partitions=1) for name in ("ahead", "behind", "idle"))
    start = int(time.time() * 1000) - 600_000
    own.produce("primary", idle, {0: ["once"]}, stamp=start - 86_400_000)
    for topic in (ahead, behind):
        own.produce("primary", topic, {0: [f"{topic}-{n}" for n in range(10)]}, stamp=start)
    mirror(own)
    # a transaction over both: on `ahead` before and after the instant; then `behind` has one more that is not mirrored
    transact(
        own, own.name, [(ahead, "in", start + 19_000), (ahead, "out", start + 40_000), (behind, "in", start + 19_000)]
    )
    group = own.commit("primary", "g", ahead, {0: 13})
    lagging = own.commit("primary", "lagging", ahead, {0: 3})
    own.commit("primary", "g", behind, {0: 12})
    own.commit("primary", "g", idle, {0: 1})
    mirror(own)
    own.produce("primary", behind, {0: ["missing", "late"]}, stamp=start + 21_000)
    own.produce("primary", behind, {0: ["later"]}, stamp=start + 20_000)

    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr", consistent=True))
        assert plan.cut.instant == from_millis(start + 20_000) == plan.at.instant
        assert plan.cut.limits[0].topic == behind
        assert plan.cut.limits[0].exact
        assert (plan.cut.beyond[0].topic, plan.cut.beyond[0].missing) == (behind, 3)
        (cut,) = plan.cut.cuts
        assert f"records on {ahead}:0 lie before the instant, records on {ahead}:0 from it on" in cut.replace(
            f", {behind}:0", ""
        )
        assert cut in plan.warnings
        assert plan_again(estate, plan).digest == plan.digest
        still_open = Producer({**own.client("primary"), "transactional.id": f"{own.name}-open"})
        still_open.init_transactions(TIMEOUT)
        still_open.begin_transaction()
        still_open.produce(idle, b"held back", partition=0, timestamp=start + 5_000)
        still_open.flush(TIMEOUT)
        held = make_plan(estate, PlanRequest("dr", consistent=True)).cut
        assert (held.instant, held.limits[0].topic) == (from_millis(start + 5_000), idle)
        assert "records held by an open transaction" in held.limits[0].why
        still_open.abort_transaction(TIMEOUT)

        result = run_failover(estate, plan, accept_unfenced=True)
    assert result.error is None
    assert own.unread("dr", group, ahead) == {0: ["out"]}
    assert own.committed("dr", group)[idle, 0] == 1
    assert own.committed("dr", lagging) == {(ahead, 0): 3}

    with own.estate(without_primary(own)) as estate:  # as last seen nothing was missing: the last look decides
        blind = make_plan(estate, PlanRequest("dr", consistent=True))
    looks = [mark.observed_at for mark in own.store.watermarks(own.link.id).values()]
    assert from_millis(start + 40_000) < blind.cut.instant <= min(looks)
    assert "nothing was missing when it was looked at" in blind.cut.limits[0].why
    assert any("divides a transaction is unknown" in each for each in blind.cut.cuts)
