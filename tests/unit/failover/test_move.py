"""When translating takes the positions that draining kept instead of reading them again."""

from datetime import timedelta

import pytest

from drkit.failover.run.state_machine import Facts, Mode
from drkit.failover.stages.failover_stages import _just_captured
from drkit.model.clock import now


@pytest.mark.parametrize(
    ("mode", "seconds_ago", "taken"),
    [
        (Mode.UNPLANNED, 0.2, True),
        (Mode.UNPLANNED, 60, False),  # resumed later: consumers may have committed since
        (Mode.UNPLANNED, -60, False),  # the clock was put back
        (Mode.PLANNED, 0.2, False),
        (Mode.UNPLANNED, None, False),  # the source did not answer while it drained
    ],
)
def test_positions_kept_a_moment_ago_are_taken_in_an_unplanned_move_only(mode, seconds_ago, taken):
    at = None if seconds_ago is None else now() - timedelta(seconds=seconds_ago)
    assert _just_captured(Facts(mode=mode, captured_at=at)) is taken
