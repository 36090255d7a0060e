"""What goes after an operator accepted a loss of the same topic, in the same part of the run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.context.live_log import MISSING, STARTS_LATER, Lacking, LiveLog, TopicKept
from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.failback.carried_offsets import PartitionMapping
from drkit.failover.failback.failback_snapshot import compared
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages import audit_stage, salvage_stage
from drkit.failover.stages.audit_stage import Audit, AuditFailed, refuse_missing
from drkit.failover.stages.salvage_stage import refuse_gaps
from drkit.lag.diverged_logs import ComparedLogs
from drkit.model.clock import now
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import RETENTION_GAP, Problem
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition

TP = TopicPartition("t", 0)
TOPIC = ScrubTopic("t", "id", "t", 1, 1, 1, True, ends={0: 1000}, starts={0: 0}, live_topic_id="live")
MAPPED = {TP: PartitionMapping(Watermark("t", 0, 1, 1000, 1000, 0, 1000, 0, now()), [OffsetMapping("t", 0, 1, 0, 0)])}
ENDLESS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def there(start=0, end=1000, topic_id="live"):
    return compared(TOPIC, LiveLog(topic_id, {0: start}, {0: end}) if topic_id else LiveLog(), MAPPED)


def a_context(config=ENDLESS, **facts):
    told = []
    admin = SimpleNamespace(topic_configs=lambda names, **_: dict.fromkeys(names, config))
    return SimpleNamespace(
        link=Link(LinkId("dr", "primary"), topics=(".*",)),
        estate=SimpleNamespace(store=None, admin=lambda _alias: admin),
        run="RUN",
        facts=Facts(mode=Mode.PLANNED, **facts),
        carried=(),
        establish=lambda facts, _carried: told.append(facts.asked),
        told=told,
    )


@pytest.mark.parametrize(
    ("now_there", "refused"),
    [
        (there(100), None),
        (there(100, 1500), None),  # clients write there
        (there(60), None),  # some of it was put back
        (there(101), STARTS_LATER),
        (there(100, 990), STARTS_LATER),
        (there(topic_id=None), MISSING),  # somebody deleted it: everything would go with the scrub
        (there(topic_id="another"), "was recreated"),
    ],
)
def test_a_larger_gap_than_the_accepted_one_is_refused_before_the_scrub(monkeypatch, now_there, refused):
    monkeypatch.setattr(salvage_stage, "mappings_of", lambda *_: MAPPED)
    monkeypatch.setattr(salvage_stage, "with_gaps_now", lambda *_: [now_there])
    context = a_context()
    facts = Facts(mode=Mode.PLANNED, salvage_only=(there(100).lacking,))
    if refused is None:
        assert refuse_gaps(context, "dr", (TOPIC,), facts) == f"; in the salvage only: on dr, t {STARTS_LATER}"
        return
    with pytest.raises(Refused, match=f"t {refused}"):
        refuse_gaps(context, "dr", (TOPIC,), facts)
    assert context.told == [(now_there.lacking,)]


@pytest.mark.parametrize(
    ("now_there", "refused"),
    [(there(500), None), (there(500, 990), STARTS_LATER), (there(topic_id=None), MISSING)],
    ids=["retention went on", "its end, too", "somebody deleted it"],
)
def test_what_retention_takes_while_a_salvage_takes_its_hours_is_accepted_with_the_rest(
    monkeypatch, now_there, refused
):
    monkeypatch.setattr(salvage_stage, "mappings_of", lambda *_: MAPPED)
    monkeypatch.setattr(salvage_stage, "with_gaps_now", lambda *_: [now_there])
    context = a_context(config=ENDLESS | {"retention.bytes": "1000000"})
    facts = Facts(mode=Mode.PLANNED, salvage_only=(there(100).lacking,))
    if refused is None:
        assert refuse_gaps(context, "dr", (TOPIC,), facts)
    else:
        with pytest.raises(Refused, match=f"t {refused}"):
            refuse_gaps(context, "dr", (TOPIC,), facts)


def purged(first, last):
    reason = f"t:0 on dr no longer has offsets {first} to {last}"
    return Problem(RETENTION_GAP, "t", 0, reason, "", halted=False, since=now())


def test_records_purged_after_others_were_accepted_stop_the_drain():
    accepted = Lacking("t", purged(0, 11).reason)
    context = a_context(gone=(accepted,))
    assert refuse_missing(context, [purged(0, 11)]) == f"; {accepted.why}"  # it is said all the same
    with pytest.raises(AuditFailed, match="offsets 1000 to 100999, and no retention is set"):
        refuse_missing(context, [purged(1000, 100999)])
    assert context.told == [(Lacking("t", purged(1000, 100999).reason),)]


def test_another_difference_of_a_partition_than_the_accepted_one_stops_it():
    context = a_context(gone=(Lacking("t", "t:0 begins later (offsets 0 to 4 there)"),))
    assert refuse_missing(context, [], {TP: "t:0 begins later (offsets 0 to 4 there)"})
    with pytest.raises(AuditFailed, match="0 to 9"):
        refuse_missing(context, [], {TP: "t:0 begins later (offsets 0 to 9 there)"})


@pytest.mark.parametrize(("accepted", "stops"), [(12, False), (11, True), (13, False), (None, True)])
def test_the_audit_stops_for_more_than_was_accepted(monkeypatch, accepted, stops):
    named = () if accepted is None else (Lacking("t", audit_stage._PURGED, {"offsets": accepted}),)
    kept = TopicKept("", 0, {0: 1000}, LiveLog("live", {0: 0}, {0: 500}), "", "")
    context = a_context(gone=named, kept={"t": kept})
    context.estate.store = SimpleNamespace(watermarks=lambda _: {}, topic_states=lambda _: {})
    monkeypatch.setattr(audit_stage, "live_logs", lambda *_: {"t": LiveLog("live", {0: 12}, {0: 500})})
    monkeypatch.setattr(audit_stage, "unreadable_salvages", lambda *_: {})
    monkeypatch.setattr(Audit, "_lost_tails", lambda *_: ComparedLogs({}, frozenset()))
    audit = Audit("dr", "primary", (TOPIC,))
    if stops:
        with pytest.raises(AuditFailed, match=r"t \(12 offsets\): no retention is set, and records were deleted"):
            audit._lost_since_the_scrub(context)
    else:
        assert "not brought back: t (12 offsets)" in audit._lost_since_the_scrub(context)


@pytest.fixture
def unproven(monkeypatch):
    """Asks the audit of a log, kept from 0 to 500, of which nothing shows that it is still the same one; as much as was
    accepted."""

    def ask(accepted, *, same=False):
        gone = () if accepted is None else (Lacking("t", audit_stage._UNPROVEN, {"offsets": accepted}),)
        kept = TopicKept("", 0, {0: 1000}, LiveLog("live", {0: 0}, {0: 500}), "", "")
        context = a_context(gone=gone, kept={"t": kept})
        context.estate.store = SimpleNamespace(watermarks=lambda _: {}, topic_states=lambda _: {})
        monkeypatch.setattr(audit_stage, "live_logs", lambda *_: {"t": LiveLog("live", {0: 0}, {0: 700})})
        monkeypatch.setattr(audit_stage, "unreadable_salvages", lambda *_: {})
        monkeypatch.setattr(audit_stage, "lost_tails", lambda *_: ComparedLogs({}, frozenset({TP})))
        monkeypatch.setattr(audit_stage, "with_last_records", lambda *_: {TP} if same else set())
        return context, lambda: Audit("dr", "primary", (TOPIC,))._lost_since_the_scrub(context)

    return ask


@pytest.mark.parametrize("accepted", [None, 499])
def test_a_log_of_which_nothing_shows_that_it_is_the_one_that_was_kept_stops_the_audit(monkeypatch, unproven, accepted):
    monkeypatch.setattr(audit_stage, "compare_logs", lambda *_: ComparedLogs({}, frozenset()))
    context, audit = unproven(accepted)
    with pytest.raises(PartlyDone, match=r"nothing shows that dr held all of t \(up to 500 offsets\)") as stopped:
        audit()
    assert not isinstance(stopped.value, AuditFailed), "unknown isn't failed"
    assert "drkit resume RUN --accept-salvage-only" in stopped.value.remedy
    assert context.told == [(Lacking("t", audit_stage._UNPROVEN, {"offsets": 500}),)]


def test_what_nothing_shows_and_is_accepted_is_told_all_the_same(monkeypatch, unproven):
    monkeypatch.setattr(audit_stage, "compare_logs", lambda *_: ComparedLogs({}, frozenset()))
    _, audit = unproven(500)
    assert "nothing shows that dr held all of t (up to 500 offsets) until that was brought back" in audit()


def test_what_the_way_back_had_copied_before_the_log_became_another_one_is_the_audit_s(monkeypatch, unproven):
    monkeypatch.setattr(audit_stage, "compare_logs", lambda *_: ComparedLogs({TP: 200}, frozenset()))
    _, audit = unproven(None)
    assert audit() == ""


def test_a_last_record_that_is_still_there_shows_that_the_log_is_the_same_one(monkeypatch, unproven):
    monkeypatch.setattr(audit_stage, "compare_logs", lambda *_: ComparedLogs({}, frozenset()))
    _, audit = unproven(None, same=True)
    assert audit() == ""
