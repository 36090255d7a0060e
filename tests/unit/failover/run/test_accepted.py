"""What an operator accepts with a resume: what the last stop named, for the stage that stopped."""

import pytest

from drkit.failover.context.state_machine import Facts, Kind, Mode, Run, State
from drkit.failover.run.service import _accepted


@pytest.mark.parametrize(
    ("state", "asked", "salvage_only", "gone"),
    [
        (State.SALVAGED, ("b",), ("a", "b"), ("c",)),
        (State.RESEEDED, ("b",), ("a",), ("c", "b")),
        (State.AUDITED, ("a", "c"), ("a",), ("c", "a")),
        (State.SALVAGED, (), ("a",), ("c",)),  # it was killed, or stopped for something else
    ],
)
def test_only_the_topics_that_the_last_stop_named_are_accepted(state, asked, salvage_only, gone):
    facts = Facts(mode=Mode.PLANNED, salvage_only=("a",), gone=("c",), asked=asked)
    run = Run(Kind.FAILBACK, state, facts)
    assert _accepted(run, unfenced=False, salvage_only=False) == facts
    found = _accepted(run, unfenced=True, salvage_only=True)
    assert (found.salvage_only, found.gone, found.asked) == (salvage_only, gone, ())
    assert found.unfenced_accepted
