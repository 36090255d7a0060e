"""What the store holds under the id of a way back: the record of a link of its own, or of a way back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from drkit.failover.failback.way_back import is_mirrored
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.runs import RunSummary
from drkit.model.topology import LinkId
from drkit.store import open_store

LINK = LinkId("dr", "primary")
FORWARD = LINK.reversed()
AT = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("own", "forward", "run", "expected"),
    [
        (None, None, None, True),
        (None, Direction.SEALED, None, True),
        (Direction.PAUSED, Direction.SEALED, None, True),
        (Direction.SEALED, Direction.SEALED, ("failover", LINK), True),
        (Direction.ACTIVE, Direction.SEALED, ("failback", LINK), True),
        (Direction.ACTIVE, Direction.SEALED, ("abandon", LINK), True),
        (Direction.SEALED, Direction.SEALED, ("failback", FORWARD), False),
        (Direction.PAUSED, Direction.SEALED, ("failback", FORWARD), False),
        (Direction.ACTIVE, Direction.REVERSED, ("abandon", FORWARD), False),
        (Direction.ACTIVE, Direction.REVERSED, ("reprotect", FORWARD), False),
        (Direction.REVERSED, Direction.SEALED, ("reprotect", LINK), False),
    ],
    ids=[
        "never decided",
        "beside a failed over link",
        "paused by an operator",
        "failed over itself",
        "brought back itself",
        "given up itself",
        "left by an earlier failback",
        "half reset by a failback that was given up",
        "flows now",
        "flows for good",
        "handed over by a reprotect",
    ],
)
def test_a_link_of_its_own_is_told_from_what_a_way_back_recorded(
    own: Direction | None, forward: Direction | None, run: tuple[str, LinkId] | None, expected: bool
) -> None:
    store = open_store("sqlite:///:memory:")
    assert not is_mirrored(store, LINK), "nothing is recorded"
    store.put_topic_states(LINK, [TopicState("t", "t", "id-1", "id-2", 1, 1, created_by_drkit=True)])
    if run is not None:
        kind, link = run
        store.put_run(RunSummary("R", kind, "closed", AT, AT, f"{link} {kind}"))
    for link, direction in ((LINK, own), (FORWARD, forward)):
        if direction is not None:
            control = LinkControl(link, direction, 1, AT, run=None if run is None else "R")
            assert store.set_link_control(control, expected_version=None)
    assert is_mirrored(store, LINK) is expected
    store.close()
