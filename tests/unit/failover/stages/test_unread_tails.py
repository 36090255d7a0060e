"""Records at the ends of both logs that aren't read in time: why is the same text at each look, and shows nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.context.interfaces import Salvaged
from drkit.failover.context.live_log import LiveLog, TopicKept
from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages import salvage_stage
from drkit.failover.stages.salvage_stage import keep, stale, topics_at_salvage, with_last_records
from drkit.kafka.client.record_probe import ProbedRecord
from drkit.mapping.translate import NO_ROW_DOUBTS
from drkit.model.errors import Refused
from drkit.model.topology import Link, LinkId, TopicPartition

TP = TopicPartition("t", 0)
TOPIC = ScrubTopic("t", "id", "t", 1, 1, 1, created_by_drkit=False, ends={0: 5}, live_topic_id="live")
LIVE = LiveLog("live", {0: 0}, {0: 5})
LATE = ProbedRecord(reason="not read in time: no leader, or more offsets than could be read", late=True)


@pytest.fixture
def probing(monkeypatch):
    """A context, whose `compacted` are the live cluster's topics that are, with what each cluster answers about every
    place."""
    answers = {}
    for name, found in {
        "ends_now": {TP: 5},
        "live_logs": {"t": LIVE},
        "committed_on": [],
        "mappings_of": {},
        "with_gaps_now": [],
        "carried": (),
        "documents": (),
        "live_batches": {},
    }.items():
        monkeypatch.setattr(salvage_stage, name, lambda *_, found=found: found)

    def admin(alias):
        def probe(places, **_):
            def of(place):
                return answers.get((alias, place.tp.partition), answers.get(alias, ProbedRecord(place.offset, 1, 2)))

            return {place: of(place) for place in places}

        return SimpleNamespace(probe_records=probe, compacted=lambda _: context.compacted)

    salvager = SimpleNamespace(salvage=lambda *_: Salvaged("/kept", {"t": 0}))
    context = SimpleNamespace(
        link=Link(LinkId("dr", "primary"), topics=("t",)),
        estate=SimpleNamespace(admin=admin, groups=lambda _alias: None, store=None),
        required_ports=SimpleNamespace(salvager=salvager),
        salvage_folder=SimpleNamespace(exists=lambda: False),
        facts=Facts(mode=Mode.PLANNED),
        carried=(),
        say=print,
        establish=lambda *_: None,
        compacted=set(),
    )
    return context, answers


@pytest.mark.parametrize("alias", ["primary", "dr"])
def test_a_salvage_whose_last_records_are_not_read_is_refused(probing, alias, monkeypatch):
    context, answers = probing
    monkeypatch.setattr(salvage_stage, "rows_in_doubt", lambda *_: NO_ROW_DOUBTS)
    keep(context, "primary", "dr", [TOPIC])
    answers[alias] = LATE
    context.required_ports.salvager.salvage = lambda *_: pytest.fail("it may take hours")
    with pytest.raises(Refused, match=rf"the last records of t \(on {alias}: not read in time"):
        keep(context, "primary", "dr", [TOPIC])


@pytest.mark.parametrize("alias", ["primary", "dr"])
def test_two_looks_that_both_read_nothing_in_time_do_not_agree(probing, alias):
    context, answers = probing
    answers[alias] = LATE
    now = topics_at_salvage(context, "primary", "dr", [TOPIC])
    kept = TopicKept("/kept", 0, now["t"].ends, LIVE, now["t"].offsets, now["t"].tails)
    found = stale(Facts(mode=Mode.PLANNED, kept={"t": kept}), {}, now)
    assert found["t"].startswith("its last records can't be read in time")
    del answers[alias]
    now = topics_at_salvage(context, "primary", "dr", [TOPIC])
    kept = TopicKept("/kept", 0, now["t"].ends, LIVE, now["t"].offsets, now["t"].tails)
    assert stale(Facts(mode=Mode.PLANNED, kept={"t": kept}), {}, now) == {}


@pytest.mark.parametrize("compacted", [False, True])
def test_a_log_whose_last_records_are_those_that_were_kept_is_the_same_one(probing, compacted):
    context, answers = probing
    context.compacted = {"t"} if compacted else set()
    kept = {"t": TopicKept("/kept", 0, {}, LIVE, "", topics_at_salvage(context, "primary", "dr", [TOPIC])["t"].tails)}
    assert with_last_records(context, "dr", kept) == {TP}
    for another in (ProbedRecord(4, 1, 3), ProbedRecord(4, 2, 2), LATE):
        answers["dr"] = another
        assert with_last_records(context, "dr", kept) == set()


@pytest.mark.parametrize("now", [ProbedRecord(9, 1, 2), LATE], ids=["written anew and removed", "not read in time"])
def test_what_happened_to_the_last_records_of_one_partition_says_nothing_of_another(probing, monkeypatch, now):
    context, answers = probing
    context.compacted = {"t"}
    other = TopicPartition("t", 1)
    log = LiveLog("live", {0: 0, 1: 0}, {0: 5, 1: 5})
    monkeypatch.setattr(salvage_stage, "live_logs", lambda *_: {"t": log})
    kept = {"t": TopicKept("/kept", 0, {}, log, "", topics_at_salvage(context, "primary", "dr", [TOPIC])["t"].tails)}
    assert with_last_records(context, "dr", kept) == {TP, other}
    answers["dr", 0] = now
    assert with_last_records(context, "dr", kept) == {other}


def test_a_log_without_last_records_is_not_shown_to_be_the_same_one_by_having_none(probing):
    context, answers = probing
    context.compacted = {"t"}
    answers["dr"] = ProbedRecord(9, 1, 2)  # of a client, behind what the cleaner has removed
    kept = {"t": TopicKept("/kept", 0, {}, LIVE, "", topics_at_salvage(context, "primary", "dr", [TOPIC])["t"].tails)}
    assert with_last_records(context, "dr", kept) == set()


def test_a_marker_is_another_one_if_its_time_or_its_producer_is(probing):
    """At the end of a compacted log it is all that is compared: its offset and epoch are alike in a log that grew
    again."""
    context, answers = probing
    context.compacted = {"t"}

    def digest(stamp, producer):
        answers["dr"] = ProbedRecord(4, stamp, producer_id=producer, marker_epoch=0)
        return topics_at_salvage(context, "primary", "dr", [TOPIC])["t"].tails

    assert digest(1, 7) == digest(1, 7)
    assert len({digest(1, 7), digest(2, 7), digest(1, 8)}) == 3
