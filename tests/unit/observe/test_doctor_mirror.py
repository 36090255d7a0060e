"""What `drkit doctor` says of a link's mirror: what doesn't move is not healthy."""

from datetime import UTC, datetime

import pytest

from drkit.model.offsets import Certainty
from drkit.observe.link_status import GroupStatus
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.readiness import _mirror, _positions_fresh
from tests.support.pages.page import LINK, snapshot


@pytest.mark.parametrize(
    "reason",
    [
        f"orders is paused: `drkit link resume '{LINK}' --topic …`",
        "worker host:1:2 is waiting",
        "a mirror is running and has not checked flights:0 for 31 s: see its log",
        "another program writes to flights:0 (and 3 more)",
    ],
)
def test_a_degraded_link_is_not_said_to_be_well(reason):
    check = _mirror(snapshot(state="degraded", reason=reason))
    assert check.outcome is CheckOutcome.WARN
    assert reason in check.reason
    assert "running as host:1" in check.reason
    assert f"drkit status --link '{LINK}'" in check.remedy


def test_a_link_that_mirrors_is_well():
    check = _mirror(snapshot())
    assert (check.outcome, check.reason) == (CheckOutcome.OK, "running as host:1")


def test_a_state_without_a_reason_or_a_worker_is_not_well_either():
    check = _mirror(snapshot(state="degraded", worker=None))
    assert (check.outcome, check.reason) == (
        CheckOutcome.WARN,
        "the link is degraded (no mirror runs): no reason kept",
    )


@pytest.mark.parametrize(
    ("refused", "why"),
    [({}, "does not answer"), ({"primary": "bad password"}, "answers, but drkit can't work with it")],
)
def test_old_positions_of_a_source_that_rejects_drkit_are_not_those_of_one_that_is_silent(refused, why):
    old = GroupStatus("g", "t", 0, 1, 1, Certainty.EXACT, None, datetime(2026, 1, 1, tzinfo=UTC))
    check = _positions_fresh(snapshot(source_reachable=False, refused=refused), [old])
    assert check.remedy == f"primary {why}, so nothing newer can be captured"
