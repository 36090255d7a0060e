"""What a link's recovery point and state are."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from drkit.lag.problems_now import LinkRecord, ProblemsNow, _unwatched
from drkit.model.offsets import WaitingRecords, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.observe.cluster_log_ends import ClusterLogEnds
from drkit.observe.link_status import PartitionStatus
from drkit.observe.status import _not_looked_at, _not_yet_mirrored, _partition, _recovery_point, _state, _unheard
from drkit.store.workers import WorkerNote

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
TP = TopicPartition("t", 0)
ENDS = ClusterLogEnds(end={TP: 10})
KNOWN = PartitionStatus("t", "t", 0, 0, 10, 10, 0, 10, 0, 3, 1.0)


def test_one_partition_that_is_not_known_makes_it_unknown_with_the_reason():
    unknown = replace(KNOWN, partition=1, lag_records=None, lag_seconds=None, lag_reason="nobody looked")
    assert _recovery_point([KNOWN, KNOWN], ENDS, {}, AT).records == 6
    point = _recovery_point([KNOWN, unknown], ClusterLogEnds(), {}, AT)
    assert (point.records, point.seconds, point.reason) == (
        None,
        None,
        "how much is missing isn't known of t:1: nobody looked",
    )
    assert _recovery_point([], ClusterLogEnds(), {}, AT).reason == "nothing was mirrored yet"


def test_what_an_open_transaction_holds_back_counts():
    mark = Watermark("t", 0, 1, 10, 10, 0, 10, 0, AT - timedelta(seconds=7))
    point = _recovery_point([KNOWN], replace(ENDS, held={TP: 5}), {TP: mark}, AT)
    assert (point.records, point.seconds, point.lower_bound) == (8, 7.0, False)
    assert "5 offsets of them stand behind open transactions" in (point.reason or "")


def held(since: datetime | None, *, at_most: bool = False) -> Watermark:
    """A look a second ago, with 5 offsets behind an open transaction."""
    mark = Watermark("t", 0, 1, 10, 10, 0, 10, 0, AT - timedelta(seconds=1))
    return replace(mark, waiting=WaitingRecords(15, since, at_most))


def test_what_a_transaction_holds_back_is_as_old_as_its_first_sight():
    """It showed the time since the mirror's last look, about a second, however long the transaction was open."""
    mark = held(AT - timedelta(minutes=10))
    idle = replace(KNOWN, lag_records=0, lag_seconds=0.0)
    point = _recovery_point([idle], replace(ENDS, held={TP: 5}), {TP: mark}, AT)
    assert (point.records, point.seconds) == (5, 600.0)
    assert _recovery_point([idle], ENDS, {TP: mark}, AT).seconds == 0.0, "nothing is behind it any more"
    decided = replace(KNOWN, lag_records=5)
    assert _recovery_point([decided], ENDS, {TP: mark}, AT).seconds == 600.0, "it is committed, and isn't copied yet"


def test_of_a_source_that_is_gone_what_was_held_back_counts_and_grows_older():
    mark, gone = held(AT - timedelta(minutes=10)), ClusterLogEnds(reason="no broker")
    idle = replace(KNOWN, lag_records=0, lag_seconds=1.0)
    point = _recovery_point([idle], gone, {TP: mark}, AT)
    assert (point.records, point.seconds, point.lower_bound) == (5, 600.0, True)
    assert "5 offsets of them stand behind open transactions" in (point.reason or "")
    assert _recovery_point([idle], gone, {TP: mark}, AT + timedelta(hours=1)).seconds == 4200.0


def test_where_no_mirror_looked_when_it_began_the_reason_says_what_its_age_rests_on():
    idle, ends = replace(KNOWN, lag_records=0, lag_seconds=0.0), replace(ENDS, held={TP: 5})
    at_most = _recovery_point([idle], ends, {TP: held(AT - timedelta(hours=1), at_most=True)}, AT)
    assert at_most.seconds == 3600.0
    assert "the age of what waits in t:0 is the most that it can be" in (at_most.reason or "")
    unseen = _recovery_point([idle], ends, {TP: held(None, at_most=True)}, AT)
    assert (unseen.records, unseen.seconds) == (5, None)
    assert "since when records of t:0 wait behind a transaction isn't known" in (unseen.reason or "")


def test_what_an_open_transaction_holds_back_where_no_mirror_looked_has_no_known_age():
    """Nobody saw since when it is open: 0 s would be the age of the mirrored partitions."""
    idle = replace(KNOWN, lag_records=0, lag_seconds=0.0)
    held = replace(ENDS, held={TopicPartition("new", 0): 5})
    point = _recovery_point([idle], held, {}, AT)
    assert (point.records, point.seconds) == (5, None)
    assert "no mirror has recorded anything of new:0: how long its records have been waiting" in (point.reason or "")


def test_a_topic_without_a_watermark_says_why_the_age_is_not_known():
    new, link = TopicPartition("new", 0), Link(LinkId("primary", "dr"), (".*",))
    ends = ClusterLogEnds(start={TP: 0, new: 0}, end={TP: 10, new: 4})
    unwatched = _not_yet_mirrored(link, new, ends, ClusterLogEnds())
    point = _recovery_point([KNOWN, unwatched], ends, {}, AT)
    assert (point.records, point.seconds) == (7, None)
    assert "no mirror has recorded anything of new:0" in (point.reason or "")
    empty = _not_yet_mirrored(link, new, replace(ends, end={TP: 10, new: 0}), ClusterLogEnds())
    assert (empty.lag_records, empty.lag_seconds, empty.lag_reason) == (0, 0.0, None)


def test_a_source_that_does_not_answer_makes_it_a_lower_bound():
    point = _recovery_point([KNOWN], ClusterLogEnds(silent={TP: "it has no leader"}), {}, AT)
    assert (point.records, point.lower_bound) == (3, True)
    assert point.reason == (
        "the source does not answer for 1 partition (t:0: it has no leader): "
        "what came since the last look isn't counted"
    )
    point = _recovery_point([KNOWN], ClusterLogEnds(reason="no broker"), {}, AT)
    assert (point.records, point.lower_bound, point.reason) == (3, True, "the source does not answer: no broker")


def test_a_mirror_that_runs_beside_a_silent_cluster_is_not_said_to_mirror():
    state, reason = _state(None, [], ["primary"], running=True, known=True)
    assert (state, "primary can't be read" in (reason or "")) == ("degraded", True)
    assert _state(None, [], [], running=True, known=True) == ("mirroring", None)
    assert _state(None, [], ["primary"], running=False, known=True)[0] == "stopped"


def test_a_mirror_that_fell_silent_is_told_from_one_that_was_stopped():
    note = WorkerNote("host:7:1:token", True, True, 1, AT, AT + timedelta(seconds=10))
    assert _unheard([note], AT) is None
    assert _unheard([], AT) is None, "one that stops removes its note"
    silent = _unheard([replace(note, seen_at=AT - timedelta(hours=1)), note], AT + timedelta(seconds=34)) or ""
    assert silent.startswith("worker host:7 was last heard of 34 s ago and did not end: ")
    assert _state(None, [], [], silent, running=False, known=True) == ("stopped", silent)


def test_partitions_that_a_mirror_at_work_has_long_not_looked_at_are_named():
    late = Watermark("t", 0, 1, 10, 10, 0, 10, 0, AT - timedelta(seconds=31))
    fresh = replace(late, partition=1, observed_at=AT - timedelta(seconds=29))
    ends = ClusterLogEnds(end={TP: 10, fresh.tp: 10})
    assert "t:0 for 31 s" in (_not_looked_at({TP: late, fresh.tp: fresh}, ends, AT) or "")
    assert _not_looked_at({fresh.tp: fresh}, ends, AT) is None
    assert _not_looked_at({TP: late}, ClusterLogEnds(), AT) is None, "the source doesn't have it any more"


def test_a_check_in_the_future_is_not_a_recent_one():
    """The clock of the mirror's host is ten minutes ahead: nobody knows how long ago it was."""
    ahead = Watermark("t", 0, 1, 10, 10, 0, 10, 0, AT + timedelta(minutes=10))
    slightly = replace(ahead, partition=1, observed_at=AT + timedelta(seconds=29))
    ends = ClusterLogEnds(end={TP: 10, slightly.tp: 10})
    said = _not_looked_at({TP: ahead, slightly.tp: slightly}, ends, AT) or ""
    assert said.startswith("the mirror's last check is in the future by this machine's clock")
    assert said.endswith("(by 600 s for t:0)")
    assert _not_looked_at({slightly.tp: slightly}, ends, AT) is None

    link = Link(LinkId("primary", "dr"), (".*",))
    record = LinkRecord(link, None, {TP: ahead}, {}, running=True, flowing=True)
    assert [_unwatched(record, mark, AT) for mark in (ahead, slightly)] == [True, False]

    translator = SimpleNamespace(mirrored=lambda _: None, first=lambda _: None, floor=lambda *_: None)
    for end, seconds in ((10, 0.0), (12, None)):
        source = ClusterLogEnds(start={TP: 0}, end={TP: end})
        found = _partition(
            link, None, ahead, source, ClusterLogEnds(), translator, ProblemsNow([]), at=AT, running=True
        )
        assert (found.lag_records, found.lag_seconds) == (end - 10, seconds)
        point = _recovery_point([found], source, {TP: ahead}, AT)
        assert (point.records, point.seconds) == (end - 10, seconds)
        assert ("in the future" in (point.reason or "")) == (seconds is None)
    behind = replace(ahead, observed_at=AT, behind_since=AT + timedelta(minutes=10))  # another host's stamp
    source = ClusterLogEnds(start={TP: 0}, end={TP: 12})
    found = _partition(link, None, behind, source, ClusterLogEnds(), translator, ProblemsNow([]), at=AT, running=True)
    assert (found.lag_records, found.lag_seconds) == (2, None), "not 0 s: since when it is behind isn't known"
    behind = _recovery_point([KNOWN], ClusterLogEnds(held={TP: 5}), {TP: ahead}, AT)
    assert (behind.records, behind.seconds) == (8, None)


def test_once_a_link_is_failed_over_its_loss_grows_no_older():
    for minutes in (1, 60):
        at = AT + timedelta(minutes=minutes)
        late = replace(KNOWN, lag_seconds=5 + 60.0 * minutes)
        assert _recovery_point([late], ClusterLogEnds(), {}, at, AT).seconds == 5.0
    assert _recovery_point([KNOWN], ClusterLogEnds(), {}, AT + timedelta(minutes=1), AT).seconds == 0.0
