"""The check of how many nodes keep the store's rows."""

from __future__ import annotations

import pytest

from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.store_safety import judged_replication


@pytest.mark.parametrize(
    ("replicas", "why"),
    [
        ({"dr": 1, "primary": 3}, "keyspace drkit has one replica in dr"),
        ({"dr": 2}, "a quorum is both"),
        ({"primary": 3}, "no replica in dr"),
        ({"": 3}, "maybe on none of dr"),
    ],
)
def test_what_a_lost_node_would_stop_is_told_with_the_statement_that_mends_it(replicas, why):
    check = judged_replication("drkit", "dr", replicas)
    assert check.outcome is CheckOutcome.WARN
    assert why in check.reason
    assert "'dr': 3" in check.remedy


def test_three_replicas_in_the_data_centre_that_is_asked_are_enough():
    check = judged_replication("drkit", "dr", {"dr": 3, "primary": 1})
    assert (check.outcome, check.reason) == (CheckOutcome.OK, "keyspace drkit has 3 replicas in dr")
