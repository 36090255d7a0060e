"""What `drkit doctor` says of a link's mirror: what doesn't move is not healthy."""

import pytest

from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.readiness import _mirror
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
