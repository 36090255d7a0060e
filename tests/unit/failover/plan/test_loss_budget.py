"""What a failover may lose without being told to: per link, per topics, and where the loss isn't known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from drkit.config import Objectives
from drkit.failover.context.state_machine import Loss, Mode, TopicLoss
from drkit.failover.plan.failover_plan import plan_from_json, plan_json
from drkit.failover.plan.loss_budget import LossBudget, accepted, budgets_of, flag_for, over_budget
from drkit.failover.planning.failover_planner import PlanRequest, plan_for
from drkit.model.runs import ACCEPT_LOSS
from drkit.model.topology import LinkId
from tests.unit.failover.plan.test_plan import a_plan, a_world

EAST, WEST = LinkId("east", "dr"), LinkId("west", "dr")
ALL = (".*",)


def loss(*topics, lower_bound=False, reason=None):
    """Topics as (name, records, seconds)."""
    found = tuple(TopicLoss(*each) for each in topics)
    numbers = [each.records for each in found]
    ages = [each.seconds for each in found]
    return Loss(
        records=None if None in numbers or not numbers else sum(numbers),
        seconds=None if None in ages else max(ages, default=None),
        observed_at=None,
        by_topic=found,
        reason=reason,
        lower_bound=lower_bound,
    )


KNOWN = loss(("orders", 7, 1.0), ("payments", 3, 4.0))
GONE = loss(("orders", 7, 1.0), ("payments", 3, 4.0), lower_bound=True, reason="the source does not answer")


@pytest.mark.parametrize(
    ("what", "budget", "said"),
    [
        (KNOWN, LossBudget(ALL, 10, None), []),
        (KNOWN, LossBudget(ALL, 9, None), ["10 records would be lost, but max_loss_records is 9"]),
        (KNOWN, LossBudget(("pay.*",), 3, 4.0), []),
        (KNOWN, LossBudget(("pay.*",), 2, None), ["3 records of pay.* would be lost, but max_loss_records is 2"]),
        (KNOWN, LossBudget(ALL, None, 3.9), ["records up to 4.0 s old would be lost, but max_loss_seconds is 3.9"]),
        (KNOWN, LossBudget(("nothing",), 0, 0.0), []),
        (GONE, LossBudget(ALL, None, 4.0), []),
        (GONE, LossBudget(ALL, 9, None), ["10 records or more would be lost, but max_loss_records is 9"]),
    ],
)
def test_a_loss_is_compared_with_its_budget(what, budget, said):
    assert list(over_budget(what, [budget])) == said


@pytest.mark.parametrize(
    ("what", "budget"),
    [
        (GONE, LossBudget(ALL, 1_000_000, None)),
        (loss(("orders", None, 1.0)), LossBudget(ALL, 1_000_000, None)),
        (loss(("orders", 1, None)), LossBudget(ALL, None, 1e9)),
        (loss(), LossBudget(ALL, 1_000_000, 1e9)),
    ],
)
def test_what_is_not_known_is_not_within(what, budget):
    found = list(over_budget(what, [budget]))
    assert found
    assert all("isn't known" in each for each in found)


def test_one_topic_that_is_not_known_does_not_hide_another_that_is_over():
    (said,) = over_budget(loss(("a", None, 0.0), ("b", 12, 0.0)), [LossBudget(ALL, 9, None)])
    assert said.startswith("12 records or more would be lost")


def test_what_accepts_a_loss():
    assert accepted(KNOWN, 10)
    assert not accepted(KNOWN, 9)
    assert not accepted(KNOWN, None)
    assert not accepted(GONE, 1_000_000), "of a loss that is only known to be so much or more no number is enough"
    assert accepted(GONE, "unknown")
    assert (flag_for(KNOWN), flag_for(GONE)) == ("--accept-loss 10", "--accept-loss unknown")


def test_budgets_by_link():
    objectives = Objectives(
        max_loss_seconds=30,
        max_loss=[{"links": ["east.*"], "topics": ["pay.*"], "max_loss_records": 0}, {"max_loss_records": 5}],
    )
    assert budgets_of(EAST, objectives) == (
        LossBudget(ALL, None, 30),
        LossBudget(("pay.*",), 0, None),
        LossBudget(ALL, 5, None),
    )
    assert budgets_of(WEST, objectives) == (LossBudget(ALL, None, 30), LossBudget(ALL, 5, None))
    assert budgets_of(EAST, Objectives()) == ()


def test_a_budget_without_a_limit_is_an_error():
    with pytest.raises(ValidationError, match="sets no limit"):
        Objectives(max_loss=[{"links": ["east.*"]}])


# -- in the plan -----------------------------------------------------------------------------------


TIGHT = (LossBudget(ALL, 1, None),)


def planned(seen=None, *, budgets=TIGHT, **asked):
    return plan_for(seen or a_world(), PlanRequest("dr", **asked), endpoint="dr:9092", budgets=budgets)


def over(plan):
    return [each for each in plan.obstacles if each.waived_by == ACCEPT_LOSS]


def test_a_plan_above_its_budget_names_the_flag():
    (obstacle,) = over(planned())
    assert "2 records or more would be lost" in obstacle.what
    assert "--accept-loss unknown" in obstacle.remedy
    assert over(planned(accept_loss=2)), "the source is gone: 2 is the least"
    assert over(planned(accept_loss="unknown")) == []
    assert over(planned(budgets=())) == []


def test_a_move_that_waits_or_is_planned_loses_nothing_yet():
    there = a_world(source_reachable=True, mirror="somebody")
    assert over(planned(there, catch_up=True)) == []
    assert over(planned(there, mode=Mode.PLANNED)) == []
    assert over(planned(there)) != []


def test_the_budget_is_decision():
    assert planned().digest != planned(budgets=()).digest
    assert planned(budgets=()).digest == a_plan().digest
    plan = replace(planned(), obstacles=())
    assert plan_from_json(plan_json(plan)).budgets == TIGHT
