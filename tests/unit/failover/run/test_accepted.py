"""What an operator accepts with a resume: what the last stop named, for the stage that stopped."""

from dataclasses import replace

import pytest

from drkit.failover.context.live_log import Lacking
from drkit.failover.context.state_machine import Facts, Kind, Mode, Run, State
from drkit.failover.run.service import _accepted

A, B, C = (Lacking(name, "was recreated") for name in "abc")


@pytest.mark.parametrize(
    ("state", "asked", "salvage_only", "gone"),
    [
        (State.SALVAGED, (B,), (A, B), (C,)),
        (State.RESEEDED, (B,), (A,), (C, B)),
        (State.AUDITED, (A,), (A,), (C, A)),
        (State.SALVAGED, (), (A,), (C,)),  # it was killed, or stopped for something else
    ],
)
def test_only_what_the_last_stop_named_is_accepted(state, asked, salvage_only, gone):
    facts = Facts(mode=Mode.PLANNED, salvage_only=(A,), gone=(C,), asked=asked)
    run = Run(Kind.FAILBACK, state, facts)
    assert _accepted(run, unfenced=False, salvage_only=False) == facts
    found = _accepted(run, unfenced=True, salvage_only=True)
    assert (found.salvage_only, found.gone, found.asked) == (salvage_only, gone, ())
    assert found.unfenced_accepted


@pytest.mark.parametrize(
    ("lacks", "within"),
    [
        ({}, True),
        ({"missing": {"0 below": 7}}, True),
        ({"missing": {"0 below": 13}}, False),  # more of it went
        ({"missing": {"0 below": 12, "1 below": 1}}, False),
        ({"missing": {"0 at the end": 1}}, False),
        ({"why": "is missing"}, False),  # something else happened since
        ({"topic": "b"}, False),
    ],
)
def test_what_is_accepted_is_what_was_named_and_nothing_that_goes_later(lacks, within):
    named = Lacking("a", "starts later", {"0 below": 12})
    assert replace(named, **lacks).is_within([C, named]) == within
