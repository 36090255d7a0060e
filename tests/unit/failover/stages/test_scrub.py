"""What a scrub asks for before it deletes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from drkit.failover.context.interfaces import default_salvage_root
from drkit.failover.context.live_log import LiveLog, TopicKept
from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages import scrub_stage
from drkit.failover.stages.salvage_stage import UNREAD
from drkit.failover.stages.scrub_stage import Scrub
from drkit.failover.stages.stage import StageContext
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.admin.topic_requests import TooLate
from drkit.model.errors import PartlyDone, Refused, Unreachable
from drkit.model.topology import Link, LinkId


def test_where_writes_can_t_be_blocked_nothing_is_deleted_unless_that_is_accepted(monkeypatch):
    def not_allowed(*_):
        raise Refused("a managed cluster's policy")

    lifted = []
    monkeypatch.setattr(scrub_stage, "block_writes", not_allowed)
    monkeypatch.setattr(scrub_stage, "let_writes_in", lambda *_, keep_notes: lifted.append(keep_notes))
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
    assert lifted == [False, False], "the answer was no"


def test_a_block_that_got_no_answer_is_lifted_and_stays_noted(monkeypatch):
    """The cluster may put it after it was lifted."""

    def silent(*_):
        raise Unreachable("no answer")

    lifted = []
    monkeypatch.setattr(scrub_stage, "block_writes", silent)
    monkeypatch.setattr(scrub_stage, "let_writes_in", lambda *_, keep_notes: lifted.append(keep_notes))
    context = SimpleNamespace(estate=None, lease=SimpleNamespace(lost=False))
    with pytest.raises(Unreachable), SCRUB._no_writes(context, ()):
        pytest.fail("it would have been deleted")
    assert lifted == [True]


def empty_topics(monkeypatch, late):
    """A scrub that deletes an empty topic of clients', `late` times too late; what it did, in order."""
    did = []

    def delete(*_):
        did.append("delete")
        if did.count("delete") <= late:
            raise TooLate("too much time had passed")

    monkeypatch.setattr(scrub_stage, "block_writes", lambda *_: None)
    monkeypatch.setattr(scrub_stage, "let_writes_in", lambda *_, **__: None)
    monkeypatch.setattr(scrub_stage, "_delete", delete)
    monkeypatch.setattr(scrub_stage, "Deadline", SimpleNamespace(after=lambda _seconds: did.append("from now on")))
    admin = SimpleNamespace(
        topics=lambda _names: did.append("look") or {"t": TopicInfo("t", "id-2", 3, 1, internal=False)},
        log_ends=lambda *_, **__: {},
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


OLD = ScrubTopic("t", "id", "t", 1, 1, 1, created_by_drkit=False)
SCRUB = Scrub("primary", "id", "dr", LinkId("primary", "dr"), (OLD,), 0)
KEPT = TopicKept("/kept", 0, {0: 5}, LiveLog("live", {0: 0}, {0: 5}), "", "")


@pytest.fixture
def kept(monkeypatch):
    """A run that has kept topic t up to offset 5; what is there by high watermark and by log end, and what it did."""
    ends, did = {"read": 5, "log": 5}, []
    monkeypatch.setattr(scrub_stage, "block_writes", lambda *_: None)
    monkeypatch.setattr(scrub_stage, "let_writes_in", lambda *_, **__: None)
    monkeypatch.setattr(scrub_stage, "unreadable_salvages", lambda *_: {})
    monkeypatch.setattr(scrub_stage, "topics_at_salvage", lambda *_: {})
    monkeypatch.setattr(scrub_stage, "stale", lambda *_: {})
    monkeypatch.setattr(scrub_stage, "refuse_gaps", lambda *_: "")
    monkeypatch.setattr(scrub_stage, "commits_end", lambda *_: {})
    monkeypatch.setattr(scrub_stage, "keep", lambda *_: did.append("keep") or (context.facts, (), ""))
    monkeypatch.setattr(scrub_stage, "_delete", lambda *_: did.append("delete"))
    admin = SimpleNamespace(
        topics=lambda _names: {"t": TopicInfo("t", "id", 1, 1, internal=False)},
        end_offsets=lambda tps, **_: dict.fromkeys(tps, ends["read"]),
        log_ends=lambda tps, **_: dict.fromkeys(tps, ends["log"]),
        alias="primary",
    )
    context = StageContext(
        estate=SimpleNamespace(admin=lambda _alias: admin),
        link=Link(LinkId("dr", "primary"), topics=("t",)),
        run="run-1",
        facts=Facts(mode=Mode.PLANNED, kept={"t": KEPT}),
        positions=(),
        places=(),
        again=False,
        lease=SimpleNamespace(lost=False, check=lambda: None),
        ports=None,
        say=did.append,
        carried=(),
        establish=lambda *_: None,
    )
    monkeypatch.setattr(StageContext, "wait", lambda _self, done, _seconds: done())
    return context, ends, did


def test_what_is_acknowledged_and_not_replicated_yet_is_not_deleted(kept):
    """With acks=1 a record counts before a consumer can read it: no salvage has seen it."""
    context, ends, did = kept
    ends["log"] = 6
    with pytest.raises(Refused, match="aren't replicated yet") as told:
        SCRUB._delete_kept(context, [OLD])
    assert "keep" not in did, "a salvage can't read them"
    assert "delete" not in did
    assert "--describe --topic t" in told.value.remedy
    ends["log"] = 5
    assert SCRUB._delete_kept(context, [OLD])[1:] == ((), "")
    assert did[-1] == "delete"


def test_a_topic_that_a_client_has_made_and_written_to_is_not_empty_before_that_is_replicated(kept):
    context, ends, _ = kept
    ends.update(read=0, log=1)
    admin = context.estate.admin("primary")
    with pytest.raises(Refused, match="t:0 on primary holds 1 offsets"):
        scrub_stage._check_new(admin, "primary", list(admin.topics(["t"]).values()))


@pytest.mark.parametrize("times", [1, 99])
def test_last_records_that_can_t_be_read_in_time_are_looked_at_again_and_not_salvaged_again(kept, monkeypatch, times):
    context, _, did = kept
    looks = []

    def look(*_):
        looks.append(1)
        return {"t": f"{UNREAD}: on dr: no leader"} if len(looks) <= times else {}

    monkeypatch.setattr(scrub_stage, "stale", look)
    if times == 1:
        SCRUB._delete_kept(context, [OLD])
        assert did[-1] == "delete"
    else:
        with pytest.raises(Refused, match="can't be read in time") as told:
            SCRUB._delete_kept(context, [OLD])
        assert told.value.remedy.startswith("Check that all brokers of primary and dr answer")
    assert "keep" not in did


GONE = ScrubTopic("gone", "id-gone", "gone", 1, 1, 1, created_by_drkit=False)
"""A topic that an earlier attempt has deleted."""


def refused(context, scrub, error=Refused):
    """A scrub of topic t that stops; whether the journal says then that topics may be deleted."""
    journaled = []
    context = replace(context, establish=lambda facts, _carried: journaled.append(facts.deleting))
    with pytest.raises(error):
        scrub._delete_kept(context, [OLD])
    assert journaled[0], "it is journaled before anything is deleted"
    return journaled[-1]


@pytest.mark.parametrize(
    ("scrub", "earlier", "deleting"),
    [
        (SCRUB, False, False),
        (SCRUB, True, True),
        (replace(SCRUB, topics=(OLD, GONE)), False, False),
        (replace(SCRUB, topics=(OLD, GONE)), True, True),
    ],
    ids=["nothing", "an attempt was killed, or not answered", "somebody else's", "an earlier attempt's"],
)
def test_a_scrub_that_has_deleted_nothing_does_not_say_that_it_may_have(kept, scrub, earlier, deleting):
    """What an earlier attempt asked a frozen broker for may be carried out whenever that wakes up."""
    context, ends, did = kept
    ends["log"] = 6
    context = replace(context, facts=replace(context.facts, deleting=earlier))
    assert refused(context, scrub) is deleting
    assert "delete" not in did


@pytest.mark.parametrize(
    ("told", "deleting"),
    [
        (Refused("topic t can't be deleted: delete.topic.enable is false"), False),
        (Unreachable("primary does not answer"), True),
        (TooLate("too much time had passed"), False),
        (TooLate("too much time had passed", sent_before=True), True),
    ],
    ids=["refused", "not answered", "never asked for", "not answered, then too late"],
)
def test_what_the_cluster_may_still_delete_counts_as_deleted(kept, monkeypatch, told, deleting):
    context, _, _ = kept

    def delete(*_):
        raise told

    monkeypatch.setattr(scrub_stage, "_delete", delete)
    assert refused(context, SCRUB, type(told) if not isinstance(told, TooLate) else Refused) is deleting


def test_a_topic_that_is_gone_counts_as_deleted_whoever_was_asked(kept, monkeypatch):
    context, _, _ = kept
    there = context.estate.admin("primary").topics(["t"])

    def delete(*_):
        there.clear()
        raise Refused("another topic can't be deleted")

    monkeypatch.setattr(context.estate.admin("primary"), "topics", lambda _names: there)
    monkeypatch.setattr(scrub_stage, "_delete", delete)
    assert refused(context, SCRUB)


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
