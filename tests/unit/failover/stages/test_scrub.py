"""What a scrub asks for before it deletes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from drkit.failover.context.interfaces import default_salvage_root
from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.stages import scrub_stage
from drkit.failover.stages.scrub_stage import Scrub
from drkit.failover.stages.stage import StageContext
from drkit.model.errors import PartlyDone, Refused
from drkit.model.topology import LinkId


def test_where_writes_can_t_be_blocked_nothing_is_deleted_unless_that_is_accepted(monkeypatch):
    def not_allowed(*_):
        raise Refused("a managed cluster's policy")

    lifted = []
    monkeypatch.setattr(scrub_stage, "block_writes", not_allowed)
    monkeypatch.setattr(scrub_stage, "let_writes_in", lambda *_: lifted.append(1))
    scrub = Scrub("primary", "id", "dr", LinkId("primary", "dr"), (), 0)

    def context(*, accepted: bool):
        facts = Facts(mode=Mode.PLANNED, unfenced_accepted=accepted)
        return SimpleNamespace(estate=None, run="run-1", facts=facts, lease=SimpleNamespace(lost=False))

    with pytest.raises(PartlyDone) as told, scrub._no_writes(context(accepted=False), ()):
        pytest.fail("it would have been deleted")
    assert "drkit resume run-1 --accept-unfenced" in str(told.value.remedy)
    with scrub._no_writes(context(accepted=True), ()) as clause:
        assert "a managed cluster's policy" in clause
    assert lifted == [1, 1]


@pytest.mark.parametrize(
    ("named", "begun", "root"),
    [
        (None, "/srv/salvage", Path("/srv/salvage")),
        (Path("/other"), "/srv/salvage", Path("/other")),
        (None, None, default_salvage_root()),
    ],
    ids=["where it began", "named anew", "nothing named"],
)
def test_a_resumed_run_keeps_its_salvages_where_it_began(named, begun, root):
    facts = Facts(mode=Mode.PLANNED, salvage_root=begun)
    context = SimpleNamespace(required_ports=SimpleNamespace(salvage_root=named), facts=facts, run="RUN")
    assert StageContext.salvage_folder.fget(context) == root / "RUN"
