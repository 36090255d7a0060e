"""Each checker on a history by hand: one that holds, and one with exactly its anomaly."""

from dataclasses import replace

import pytest

from drkit.drill.judge.checkers import CHECKERS, WAY_BACK, WITNESSES, judge
from drkit.drill.judge.history import (
    Attempt,
    AttemptOutcome,
    ClientHistory,
    ConfirmedPosition,
    HistoryPart,
    Landed,
    LogEnd,
    Poll,
    RecordId,
    Returned,
    StatedLoss,
    StatedPosition,
)
from drkit.drill.judge.verdict import measure

DR_OFFSET = 100  # on dr, partition 0, the record of source offset n lies at 100 + n


def a(seq, *, key="k0", cluster="primary", partition=0, offset=None, outcome=AttemptOutcome.ACKED, txn=None):
    at = seq if offset is None else offset
    acked = outcome is AttemptOutcome.ACKED
    return Attempt(
        RecordId(key, seq), cluster, partition, float(seq), 1000 + seq, outcome, at if acked else None, seq + 0.5, txn
    )


def landed(seq, *, key="k0", partition=0, offset=None, digest=None):
    at = DR_OFFSET + seq if offset is None else offset
    return Landed(partition, at, RecordId(key, seq), 1000 + seq if digest is None else digest)


def polled(seq, cluster, *, session=None, assignment=1, partition=0, offset=None):
    at = offset if offset is not None else seq if cluster == "primary" else DR_OFFSET + seq
    return Poll(session or f"on-{cluster}", assignment, cluster, partition, at, RecordId("k0", seq), float(seq))


@pytest.fixture
def good():
    """Ten records acknowledged, eight mirrored, six read on the primary; then two more on dr.

    The primary confirmed that the group had read the first six. The failover stated that it continues with the fifth
    record (4 and 5 again); the tail of two is what an RPO excuses. Records 4 to 6 are a committed transaction; another
    one was aborted.
    """
    committed = dict.fromkeys((4, 5, 6), "producer-1-1")
    return ClientHistory(
        "primary",
        "dr",
        attempts=(
            *(a(n, txn=committed.get(n)) for n in range(10)),
            *(a(n, key="k9", outcome=AttemptOutcome.ABORTED, txn="producer-1-2") for n in (50, 51)),
            *(a(n, cluster="dr", offset=DR_OFFSET + n - 2) for n in (10, 11)),
        ),
        polls=(
            *(polled(n, "primary") for n in range(6)),
            *(polled(n, "dr") for n in range(4, 8)),
            polled(10, "dr", offset=DR_OFFSET + 8),
            polled(11, "dr", offset=DR_OFFSET + 9),
        ),
        positions=(ConfirmedPosition("primary", 0, 6, 3.5), ConfirmedPosition("dr", 0, DR_OFFSET + 4, 8.0)),
        landed=(*(landed(n) for n in range(8)), *(landed(n, offset=DR_OFFSET + n - 2) for n in (10, 11))),
        stated=(StatedPosition(0, DR_OFFSET + 4, 2, 3.9),),
        ends=(LogEnd(0, DR_OFFSET + 10, DR_OFFSET + 10),),
        stated_loss=StatedLoss(2, lower_bound=False, at=9.6),
    )


@pytest.mark.parametrize("name", sorted(CHECKERS))
def test_a_good_history_passes_every_check(good, name):
    finding = judge(name, good)
    assert (finding.held, finding.anomalies) == (True, 0)


def only(history, failing):
    """Exactly the checks named fail on this history."""
    assert {name for name in CHECKERS if judge(name, history).held is False} == set(failing)
    return judge(failing[0], history)


def test_lost_is_a_hole_below_what_was_mirrored(good):
    holed = replace(good, landed=tuple(one for one in good.landed if one.record.seq != 3))
    finding = only(holed, ["lost", "loss_beyond_plan"])
    assert finding.anomalies == 1
    assert (finding.witnesses[0].cluster, finding.witnesses[0].offset) == ("primary", 3)


def test_lost_is_also_what_the_target_itself_acknowledged(good):
    forgotten = replace(good, landed=tuple(one for one in good.landed if one.record.seq != 11))
    finding = only(forgotten, ["lost"])
    assert finding.witnesses[0].cluster == "dr"


def test_a_loss_above_the_stated_one_is_found(good):
    finding = only(replace(good, stated_loss=StatedLoss(1, lower_bound=False, at=9.6)), ["loss_beyond_plan"])
    assert (finding.anomalies, finding.witnesses[0].cluster, finding.witnesses[0].offset) == (1, "primary", 9)


def test_what_was_acknowledged_after_the_failover_began_is_not_part_of_its_statement(good):
    assert judge("loss_beyond_plan", replace(good, stated_loss=StatedLoss(1, lower_bound=False, at=9.0))).held is True


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        (None, "no failover stated"),
        (StatedLoss(0, lower_bound=True, at=9.6), "at least 0"),
        (StatedLoss(0, lower_bound=False, at=0.1), "nothing before the failover"),
    ],
)
def test_a_loss_that_nobody_stated_is_not_compared(good, stated, why):
    finding = judge("loss_beyond_plan", replace(good, stated_loss=stated))
    assert finding.held is None
    assert why in finding.reason


def test_a_send_without_an_answer_is_not_lost(good):
    unsure = replace(good, attempts=(*good.attempts, a(12, outcome=AttemptOutcome.UNKNOWN)))
    assert judge("lost", unsure).held is True


def test_a_partition_that_was_never_mirrored_is_all_tail(good):
    extra = tuple(a(n, key="k1", partition=1, offset=n) for n in range(3))
    assert judge("lost", replace(good, attempts=good.attempts + extra)).held is True


def test_duplicated(good):
    finding = only(replace(good, landed=(*good.landed, landed(7, offset=200))), ["duplicated"])
    assert finding.anomalies == 1
    assert (finding.witnesses[0].offset, str(finding.witnesses[0].record)) == (200, "k0#7")


def test_both_sides_written_is_an_acknowledgement_of_primary_between_two_of_dr(good):
    late = replace(a(8), acked_at=11.0)  # dr acknowledged at 10.5 and 11.5
    split = replace(good, attempts=tuple(late if one.record.seq == 8 else one for one in good.attempts))
    finding = only(split, ["both_sides_written"])
    assert (finding.anomalies, finding.witnesses[0].cluster, str(finding.witnesses[0].record)) == (1, "primary", "k0#8")


def test_going_home_is_no_split(good):
    home = replace(a(12, offset=20), acked_at=30.0)
    assert judge("both_sides_written", replace(good, attempts=(*good.attempts, home))).held is True


def test_a_position_that_moved_back(good):
    back = (
        *good.positions,
        ConfirmedPosition("dr", 0, DR_OFFSET + 7, 12.0),
        ConfirmedPosition("dr", 0, DR_OFFSET + 6, 13.0),
    )
    finding = only(replace(good, positions=back), ["position_moved_back"])
    assert (finding.anomalies, finding.witnesses[0].offset) == (1, DR_OFFSET + 6)
    assert finding.witnesses[0].text == f"lower than the earlier position {DR_OFFSET + 7}"


def test_an_offset_before_the_position_that_the_failover_stated(good):
    """However many records the failover stated to be read again: they lie behind its position."""
    early = replace(good, polls=(*good.polls, replace(polled(3, "dr", session="another"), at=20.0)))
    finding = only(early, ["reread_beyond_plan"])
    assert (finding.anomalies, finding.witnesses[0].cluster, finding.witnesses[0].offset) == (1, "dr", DR_OFFSET + 3)
    assert finding.witnesses[0].text == f"read after the failover, which stated the position {DR_OFFSET + 4}"


def test_more_records_again_than_the_failover_stated(good):
    fewer = replace(good, stated=(StatedPosition(0, DR_OFFSET + 4, 1, 3.9),))
    finding = only(fewer, ["reread_beyond_plan"])
    assert (finding.anomalies, str(finding.witnesses[0].record)) == (1, "k0#5")
    assert finding.witnesses[0].text == "read again, and the failover stated at most 1 such records"


def test_the_bound_is_that_of_each_partition(good):
    """Two records again on each of two partitions, of which only one was stated to have as many."""
    ids = [RecordId("k1", seq) for seq in range(2)]
    there = tuple(Poll("on-primary", 1, "primary", 1, seq, record, float(seq)) for seq, record in enumerate(ids))
    again = tuple(Poll("on-dr", 1, "dr", 1, 50 + seq, record, 4.0) for seq, record in enumerate(ids))
    both = replace(
        good,
        polls=(*good.polls, *there, *again),
        positions=(*good.positions, ConfirmedPosition("primary", 1, 2, 3.0)),
        stated=(*good.stated, StatedPosition(1, 50, 1, 3.9)),
    )
    finding = judge("reread_beyond_plan", both)
    assert [(one.partition, one.offset) for one in finding.witnesses] == [(1, 51)]


@pytest.mark.parametrize(
    "positions",
    [
        (ConfirmedPosition("primary", 0, 4, 3.5),),  # 4 and 5 were read, and not committed
        (ConfirmedPosition("primary", 0, 6, 30.0),),  # committed when the failover had ended: the group went home
    ],
    ids=["not committed", "committed later"],
)
def test_what_nobody_knew_as_read_when_the_failover_ended_is_not_read_again(good, positions):
    none = (StatedPosition(0, DR_OFFSET + 4, 0, 3.9),)
    assert judge("reread_beyond_plan", replace(good, stated=none)).held is False
    assert judge("reread_beyond_plan", replace(good, stated=none, positions=positions)).held is True


def test_a_record_that_is_given_twice_on_the_target_is_read_again_once(good):
    """A rebalance there is no matter of the failover's."""
    twice = tuple(polled(n, "dr", assignment=2) for n in (4, 5))
    assert judge("reread_beyond_plan", replace(good, polls=(*good.polls, *twice))).held is True


def test_what_was_read_on_the_target_before_the_failover_is_none_of_its_matter(good):
    before = (replace(polled(2, "dr", session="rehearsal"), at=1.0), *good.polls)
    assert judge("reread_beyond_plan", replace(good, polls=before)).held is True


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ((), "no failover stated a position of the group"),
        ((StatedPosition(0, DR_OFFSET + 4, None, 3.9),), "stated no bound of what is read again in partition 0"),
        ((StatedPosition(0, DR_OFFSET + 4, 2, 99.0),), "the group read nothing on dr after the failover"),
        ((StatedPosition(1, 0, 0, 3.9),), "the group read nothing on dr after the failover"),
    ],
)
def test_without_a_stated_position_or_bound_it_is_unknown_what_is_too_much(good, stated, reason):
    finding = judge("reread_beyond_plan", replace(good, stated=stated))
    assert (finding.held, finding.anomalies) == (None, None)
    assert reason in finding.reason


def test_an_offset_before_the_position_counts_where_no_bound_was_stated(good):
    unbounded = replace(good, stated=(StatedPosition(0, DR_OFFSET + 5, None, 3.9),))
    finding = judge("reread_beyond_plan", unbounded)
    assert [one.offset for one in finding.witnesses] == [DR_OFFSET + 4]


def test_a_last_stable_offset_that_stays_below_the_end_of_the_log(good):
    stuck = replace(good, ends=(LogEnd(0, DR_OFFSET + 6, DR_OFFSET + 10), LogEnd(1, 0, 0)))
    finding = only(stuck, ["stable_offset_stuck"])
    assert (finding.anomalies, finding.witnesses[0].cluster, finding.witnesses[0].offset) == (1, "dr", DR_OFFSET + 6)
    assert f"the log ends at {DR_OFFSET + 10}" in finding.witnesses[0].text


def test_where_nothing_is_transactional_or_no_end_is_known_no_marker_was_seen_to_be_there(good):
    assert judge("stable_offset_stuck", replace(good, ends=())).reason == "no end of a partition of dr is known"
    plain = tuple(replace(one, transaction=None) for one in good.attempts)
    assert judge("stable_offset_stuck", replace(good, attempts=plain)).reason == "nothing was written in a transaction"


def test_what_had_nothing_to_look_at_is_not_passed(good):
    alone = replace(good, attempts=tuple(one for one in good.attempts if one.cluster == "primary"), positions=())
    assert judge("both_sides_written", alone).reason == "dr acknowledged nothing"
    assert judge("position_moved_back", alone).reason == "no position of the group was confirmed"


def test_corrupted(good):
    changed = tuple(replace(one, digest=7) if one.record.seq == 5 else one for one in good.landed)
    assert only(replace(good, landed=changed), ["corrupted"]).witnesses[0].offset == DR_OFFSET + 5


def test_reordered_within_a_key(good):
    swap = {5: 6, 6: 5}
    swapped = tuple(
        replace(one, offset=DR_OFFSET + swap[one.record.seq]) if one.record.seq in swap else one for one in good.landed
    )
    finding = judge("reordered", replace(good, landed=swapped))
    assert (finding.held, finding.anomalies) == (False, 1)
    assert "same key" in finding.witnesses[0].text


def test_reordered_between_keys_of_a_partition():
    history = ClientHistory(
        "primary",
        "dr",
        attempts=(a(0, key="x", offset=0), a(0, key="y", offset=1)),
        landed=(landed(0, key="y", offset=0, digest=1000), landed(0, key="x", offset=1, digest=1000)),
    )
    finding = judge("reordered", history)
    assert finding.held is False
    assert "same partition" in finding.witnesses[0].text


def test_nonmonotonic_poll(good):
    back = replace(good, polls=(*good.polls, polled(5, "dr")))
    assert only(back, ["nonmonotonic_poll"]).anomalies == 1


def test_the_same_offset_twice_is_not_monotonic(good):
    assert judge("nonmonotonic_poll", replace(good, polls=(*good.polls, good.polls[-1]))).held is False


@pytest.mark.parametrize("again", [{"assignment": 2}, {"session": "another"}])
def test_a_new_assignment_may_go_back(good, again):
    assert judge("nonmonotonic_poll", replace(good, polls=(*good.polls, polled(5, "dr", **again)))).held is True


def test_skipped_is_a_record_between_what_was_read_on_both_sides(good):
    gap = replace(good, polls=tuple(p for p in good.polls if p.record.seq != 6))
    finding = only(gap, ["skipped_by_group"])
    assert finding.witnesses[0].offset == DR_OFFSET + 6


def test_skipped_is_found_by_the_position_alone():
    """The failover put the group at the end of a partition with two unread records; nothing more came."""
    history = ClientHistory(
        "primary",
        "dr",
        attempts=tuple(a(n) for n in range(4)),
        polls=(polled(0, "primary"), polled(1, "primary")),
        positions=(ConfirmedPosition("dr", 0, DR_OFFSET + 4, 9.0),),
        landed=tuple(landed(n) for n in range(4)),
    )
    assert judge("skipped_by_group", history).anomalies == 2


def test_unread_above_the_position_is_not_skipped(good):
    short = replace(good, polls=tuple(p for p in good.polls if not (p.cluster == "dr" and p.record.seq > 6)))
    assert judge("skipped_by_group", short).held is True


def test_skipped_is_unknown_where_the_group_never_read_on_the_target(good):
    absent = replace(good, polls=tuple(p for p in good.polls if p.cluster == "primary"), positions=())
    finding = judge("skipped_by_group", absent)
    assert finding.held is None
    assert "never read there" in finding.reason


@pytest.mark.parametrize("record", [None, RecordId("k0", 99), RecordId("other", 0)])
def test_foreign(good, record):
    odd = Landed(0, 300, record, 5)
    assert only(replace(good, landed=(*good.landed, odd)), ["foreign"]).anomalies == 1


ABORTED = RecordId("k9", 50)


def test_a_record_of_an_aborted_transaction_that_the_group_was_given(good):
    read = Poll("on-dr", 1, "dr", 0, DR_OFFSET + 20, ABORTED, 20.0)
    finding = only(replace(good, polls=(*good.polls, read)), ["aborted_read"])
    assert (finding.anomalies, finding.witnesses[0].cluster, finding.witnesses[0].offset) == (1, "dr", DR_OFFSET + 20)


def test_a_record_of_an_aborted_transaction_that_is_committed_on_the_target(good):
    """Nobody has read it yet."""
    dirty = Landed(0, DR_OFFSET + 20, ABORTED, 1050)
    finding = only(replace(good, landed=(*good.landed, dirty)), ["dirty_commit"])
    assert (finding.anomalies, finding.witnesses[0].offset) == (1, DR_OFFSET + 20)


def test_a_torn_transaction_is_one_anomaly_and_the_tail_does_not_excuse_it(good):
    """Its other records and all after them are there as an RPO allows: nothing is `lost`."""
    torn = replace(good, landed=tuple(one for one in good.landed if one.record.seq < 6))
    finding = judge("torn_transaction", torn)
    assert (finding.held, finding.anomalies) == (False, 1)
    witness = finding.witnesses[0]
    assert (witness.cluster, witness.offset, str(witness.record)) == ("primary", 6, "k0#6")
    assert witness.text == "of transaction producer-1-1 dr lacks 1 of 3 records"


@pytest.mark.parametrize("missing", [{4, 5, 6}, set()], ids=["none of it", "all of it"])
def test_a_transaction_that_is_there_as_a_whole_or_not_at_all_is_not_torn(good, missing):
    landed_ = tuple(one for one in good.landed if one.record.seq not in missing)
    assert judge("torn_transaction", replace(good, landed=landed_)).held is True


def test_a_transaction_whose_commit_got_no_answer_is_neither_torn_nor_dirty(good):
    unsure = tuple(
        replace(one, outcome=AttemptOutcome.UNKNOWN) if one.transaction == "producer-1-1" else one
        for one in good.attempts
    )
    half = replace(good, attempts=unsure, landed=tuple(one for one in good.landed if one.record.seq != 6))
    assert judge("torn_transaction", half).reason == "no transaction was committed"
    assert judge("dirty_commit", half).held is True


def test_where_nothing_was_aborted_no_abort_was_seen_to_be_kept_from_readers(good):
    never = tuple(one for one in good.attempts if one.outcome is not AttemptOutcome.ABORTED)
    for name in ("aborted_read", "dirty_commit"):
        assert judge(name, replace(good, attempts=never)).reason == "no transaction was aborted"


@pytest.mark.parametrize(("name", "part"), [(n, p) for n, c in CHECKERS.items() for p in sorted(c.needs)])
def test_a_missing_part_is_unknown_never_passed(good, name, part):
    finding = judge(name, replace(good, incomplete={part: "the disk was full"}))
    assert (finding.held, finding.anomalies, finding.reason) == (None, None, "the disk was full")


def test_a_part_that_could_only_hide_anomalies_does_not_excuse_those_found(good):
    bad = replace(good, landed=(*good.landed, landed(7, offset=200)), incomplete={HistoryPart.LANDED: "broke off"})
    assert judge("duplicated", bad).held is False


def test_a_part_that_could_forge_anomalies_leaves_it_unknown(good):
    half = replace(good, attempts=good.attempts[:3], incomplete={HistoryPart.ATTEMPTS: "the producer was killed"})
    assert judge("foreign", half).held is None


@pytest.mark.parametrize("name", sorted(CHECKERS))
def test_nothing_at_all_passes_nothing(name):
    assert judge(name, ClientHistory("primary", "dr")).held is None


def test_all_anomalies_are_counted_and_some_are_shown(good):
    many = tuple(landed(7, offset=200 + n) for n in range(WITNESSES + 5))
    finding = judge("duplicated", replace(good, landed=good.landed + many))
    assert finding.anomalies == WITNESSES + 5
    assert len(finding.witnesses) == WITNESSES


@pytest.mark.parametrize(
    ("name", "missing", "reason"),
    [
        ("lost", "attempts", "primary acknowledged nothing"),
        ("duplicated", "landed", "nothing is on dr"),
        ("corrupted", "landed", "nothing is on dr"),
        ("reordered", "landed", "nothing is on dr"),
        ("foreign", "landed", "nothing is on dr"),
        ("nonmonotonic_poll", "polls", "the group read nothing"),
    ],
)
def test_a_check_that_looked_at_nothing_is_unknown(good, name, missing, reason):
    finding = judge(name, replace(good, **{missing: ()}))
    assert (finding.held, finding.reason) == (None, reason)


def test_where_nothing_was_acknowledged_nothing_is_shown_to_be_kept(good):
    unsure = tuple(a(n, outcome=AttemptOutcome.UNKNOWN) for n in range(5))
    assert judge("lost", replace(good, attempts=unsure)).held is None


# -- a source that was brought back ----------------------------------------------------------------------------------

RETURNED_AT = 30.0


def back(history, *, without=(), more=(), positions=None):
    """What dr holds was brought back to primary, from offset 0 on; one more record was written and mirrored since.

    `without`: the numbers of records that the way back left out; `more`: what else is on primary.
    """
    since = replace(a(12, offset=10), sent_at=31.0, acked_at=31.5)
    there = [*history.landed, landed(12, offset=DR_OFFSET + 10)]
    rows = [replace(one, offset=number) for number, one in enumerate(there)]
    brought = tuple(one for one in rows if one.record.seq not in without)
    read = replace(polled(12, "primary", session="home", offset=10), at=31.7)
    return replace(
        history,
        attempts=(*history.attempts, since),
        polls=(*history.polls, read),
        landed=tuple(there),
        positions=(*history.positions, *(positions or (ConfirmedPosition("primary", 0, 10, 30.5),))),
        returned=Returned(RETURNED_AT, (*brought, *more), (LogEnd(0, 11, 11),)),
    )


@pytest.mark.parametrize("name", sorted(CHECKERS))
def test_a_way_back_that_brings_all_passes_every_check(good, name):
    """The tail that only the old primary had is not on it any more: that was lost in the failover."""
    assert judge(name, back(good)).held is True


def test_what_the_way_back_left_out_is_lost_and_counted(good):
    """Of the source, of the target, and of the source since; the target holds all of them."""
    holed = back(good, without=(3, 11, 12))
    finding = only(holed, ["lost"])
    assert [(one.cluster, str(one.record)) for one in finding.witnesses] == [
        ("primary", "k0#3"),
        ("dr", "k0#11"),
        ("primary", "k0#12"),
    ]
    assert finding.witnesses[0].text == "acknowledged by primary and missing on primary, which was brought back from dr"
    measured = measure(holed, disaster_at=9.5, moved=True)
    assert measured.rpo_records == measure(back(good), disaster_at=9.5, moved=True).rpo_records + 3 == 5


def test_what_a_source_acknowledged_since_and_nobody_has_is_lost(good):
    gone = replace(a(13, offset=11), acked_at=32.0)
    finding = only(replace(back(good), attempts=(*back(good).attempts, gone)), ["lost"])
    assert str(finding.witnesses[0].record) == "k0#13"


def test_what_the_way_back_copied_twice_or_changed_or_nobody_sent(good):
    twice = only(back(good, more=[landed(5, offset=20)]), ["duplicated"])
    assert (twice.anomalies, twice.witnesses[0].cluster, twice.witnesses[0].offset) == (1, "primary", 20)
    changed = only(back(good, without=(5,), more=[landed(5, offset=5, digest=7)]), ["corrupted"])
    assert (changed.witnesses[0].cluster, changed.witnesses[0].offset) == ("primary", 5)
    odd = only(back(good, more=[Landed(0, 20, None, 5)]), ["foreign"])
    assert (odd.witnesses[0].cluster, odd.witnesses[0].offset) == ("primary", 20)
    dirty = only(back(good, more=[Landed(0, 20, ABORTED, 1050)]), ["dirty_commit"])
    assert dirty.witnesses[0].cluster == "primary"


def test_another_order_on_the_source_than_on_the_target(good):
    """Two keys of one partition: neither is out of order within its key."""
    two = [
        landed(0, key="x", offset=DR_OFFSET + 20, digest=1000),
        landed(0, key="y", offset=DR_OFFSET + 21, digest=1000),
    ]
    sent = [a(0, key=key, cluster="dr", offset=one.offset) for key, one in zip("xy", two, strict=True)]
    there = [replace(two[1], offset=20), replace(two[0], offset=21)]
    home = back(good, more=there)
    swapped = replace(home, attempts=(*home.attempts, *sent), landed=(*home.landed, *two))
    finding = judge("reordered", swapped)
    assert (finding.anomalies, finding.witnesses[0].cluster, finding.witnesses[0].offset) == (1, "primary", 21)
    assert f"offset {DR_OFFSET + 20} on dr comes after" in finding.witnesses[0].text


def test_a_group_that_a_failback_put_behind_what_it_has_not_read(good):
    """It stopped on dr before record 11; and old positions on primary say nothing of its new log."""
    short = replace(good, polls=tuple(one for one in good.polls if one.record.seq != 11))
    finding = only(back(short), ["skipped_by_group"])
    assert (finding.anomalies, finding.witnesses[0].cluster, finding.witnesses[0].offset) == (1, "primary", 9)
    before = (ConfirmedPosition("primary", 0, 10, 20.0), ConfirmedPosition("primary", 0, 9, 30.5))
    read = replace(polled(11, "primary", offset=9, session="home"), at=31.6)
    home = back(short, positions=before)
    assert judge("skipped_by_group", home).held is False, "12 was read, and 11 before it was not"
    assert judge("skipped_by_group", replace(home, polls=(*home.polls[:-1], read, home.polls[-1]))).held is True
    assert judge("skipped_by_group", replace(home, polls=home.polls[:-1])).held is True


def test_a_marker_that_is_missing_on_the_source_that_was_brought_back(good):
    stuck = back(good)
    stuck = replace(stuck, returned=replace(stuck.returned, ends=(LogEnd(0, 4, 11),)))
    finding = only(stuck, ["stable_offset_stuck"])
    assert (finding.witnesses[0].cluster, finding.witnesses[0].offset) == ("primary", 4)


@pytest.mark.parametrize("name", sorted(WAY_BACK))
def test_a_source_that_could_not_be_read_leaves_its_checks_unknown(good, name):
    unread = replace(back(good), returned=Returned(RETURNED_AT, incomplete={HistoryPart.LANDED: "no answer"}))
    finding = judge(name, unread)
    assert finding.held is None
    assert name == "stable_offset_stuck" or finding.reason == "no answer"
    assert measure(unread, disaster_at=9.5, moved=True).rpo_records is None


def test_a_tail_that_was_lost_in_the_failover_is_no_hole_below_what_the_new_log_has_at_its_offsets(good):
    """Records 8 and 9 were only on the old primary; its new log has later records at higher offsets."""
    home = back(good)
    assert judge("lost", home).held is True
    low = replace(home, attempts=(*home.attempts[:-1], replace(home.attempts[-1], offset=2)))
    assert judge("reordered", low).held is True
    alone = replace(low, returned=None)
    assert judge("reordered", alone).held is False
    assert judge("lost", replace(home, returned=None)).held is False
