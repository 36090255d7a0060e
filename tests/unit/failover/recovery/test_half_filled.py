"""A store that a recovery or a restore has filled in part decides nothing about a link."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.recovery.fence_command import links_left
from drkit.failover.snapshot.choose_links import failed_away
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import Link, LinkId
from drkit.state_topic.guard import BEGUN, RECOVERY, RESTORING, STATE
from drkit.store import open_store

EAST, WEST = (Link(LinkId(name, "dr"), topics=(".*",)) for name in ("east", "west"))


@pytest.mark.parametrize("choose", [failed_away, links_left])
@pytest.mark.parametrize("begun", [BEGUN, RESTORING])
def test_a_link_whose_decision_is_not_filled_in_yet_is_no_primarys(choose, begun):
    store = open_store("sqlite:///:memory:")
    store.set_link_control(LinkControl(EAST.id, Direction.SEALED, 1, now()), expected_version=None)
    store.put_notes(WEST.id, RECOVERY, {STATE: begun})
    estate = SimpleNamespace(store=store)
    with pytest.raises(Refused, match="was interrupted: the store has only a part"):
        choose(estate, [EAST, WEST])
    assert choose(estate, [EAST]) == [EAST]
    store.close()
