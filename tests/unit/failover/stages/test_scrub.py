"""What a scrub asks for before it deletes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from drkit.failover.context.interfaces import default_salvage_root
from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages import scrub_stage
from drkit.failover.stages.scrub_stage import Scrub
from drkit.failover.stages.stage import StageContext
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.admin.topic_requests import TooLate
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
    assert "Nothing is deleted" not in told.value.meaning, "topics that clients made stand where deleted ones were"
    with scrub._no_writes(context(accepted=True), ()) as clause:
        assert "a managed cluster's policy" in clause
    assert lifted == [1, 1]


def empty_topics(monkeypatch, late):
    """A scrub that deletes an empty topic of clients', `late` times too late; what it did, in order."""
    did = []

    def delete(*_):
        did.append("delete")
        if did.count("delete") <= late:
            raise TooLate("too much time had passed")

    monkeypatch.setattr(scrub_stage, "block_writes", lambda *_: None)
    monkeypatch.setattr(scrub_stage, "let_writes_in", lambda *_: None)
    monkeypatch.setattr(scrub_stage, "_delete", delete)
    monkeypatch.setattr(scrub_stage, "Deadline", SimpleNamespace(after=lambda _seconds: did.append("from now on")))
    admin = SimpleNamespace(
        topics=lambda _names: did.append("look") or {"t": TopicInfo("t", "id-2", 3, 1, internal=False)},
        end_offsets=lambda *_, **__: {},
    )
    lease = SimpleNamespace(lost=False, check=lambda: None)
    context = SimpleNamespace(estate=None, run="run-1", facts=Facts(mode=Mode.PLANNED), lease=lease, say=print)
    topic = ScrubTopic("t", "id-2", "t", 3, 1, 1, created_by_drkit=False)
    Scrub("primary", "id", "dr", LinkId("primary", "dr"), (topic,), 0)._delete_empty(context, admin, [topic])
    return did


def test_the_time_in_which_an_empty_topic_is_deleted_begins_after_the_look_at_it(monkeypatch):
    assert empty_topics(monkeypatch, late=0) == ["look", "from now on", "delete"]
    assert empty_topics(monkeypatch, late=1) == 2 * ["look", "from now on", "delete"]


def test_a_link_too_slow_for_that_is_not_told_as_clients_that_make_topics(monkeypatch):
    with pytest.raises(Refused, match=r"could not be deleted within .+ of a look at them: t") as told:
        empty_topics(monkeypatch, late=99)
    assert "Stop the clients" not in told.value.remedy
    assert "drkit resume run-1" in told.value.remedy


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
