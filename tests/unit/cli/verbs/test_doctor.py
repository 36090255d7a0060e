"""What doctor makes of its checks once it knows whether a failover would be accepted."""

from __future__ import annotations

import pytest

from drkit.cli.verbs.failover.doctor import Planned, checks_with_plan
from drkit.observe.fence import FENCED
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.store_safety import STORE_COPY

ACCEPTED = Check("failover", CheckOutcome.OK, "it would be accepted")
REFUSED = Check("failover", CheckOutcome.FAIL, "it would be refused")
UNTOLD = Check("failover", CheckOutcome.UNKNOWN, "it can't be planned")


def outcome(name: str, planned: Planned) -> CheckOutcome:
    (*_, check) = checks_with_plan([Check(name, CheckOutcome.FAIL, "why", "remedy")], planned)
    assert (check.name, check.reason, check.remedy) == (name, "why", "remedy")
    return check.outcome


@pytest.mark.parametrize("name", ["problem: halted", "group positions translatable"])
def test_what_an_accepted_failover_weighs_itself_is_a_warning(name: str) -> None:
    assert outcome(name, Planned((ACCEPTED,), moves=True)) is CheckOutcome.WARN


@pytest.mark.parametrize("name", [f"problem: {FENCED}", STORE_COPY])
def test_a_fence_and_a_store_that_lost_rows_fail_beside_an_accepted_failover(name: str) -> None:
    assert outcome(name, Planned((ACCEPTED,), moves=True)) is CheckOutcome.FAIL


def test_a_dead_cluster_that_serves_fails_where_nothing_would_be_moved() -> None:
    assert outcome("clusters", Planned((ACCEPTED,), moves=False)) is CheckOutcome.FAIL


@pytest.mark.parametrize("planned", [REFUSED, UNTOLD])
def test_nothing_is_softened_where_no_failover_is_accepted(planned: Check) -> None:
    assert outcome("problem: halted", Planned((planned,), moves=True)) is CheckOutcome.FAIL
