"""Where a group that commits in transactions goes: never past missing output; what is done again is counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.failover.positions.positions import choose_positions
from drkit.failover.positions.transactional_positions import place_by_transactions
from drkit.failover.snapshot.past_positions import PastPosition
from drkit.failover.snapshot.point_in_time import TimeBasis, parse_moment
from drkit.failover.snapshot.selection import Selection
from drkit.lag.partition_lag import Doubts
from drkit.model.clock import iso
from drkit.model.groups import GroupTransaction, TransactionHistory
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from tests.unit.failover.plan.worlds import AT, Log, position, world

IN = TopicPartition("in", 0)
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def history(*transactions, begun=0, read=1_000, **more):
    """Transactions as outputs by partition; the n-th one commits offset 10 * n."""
    found = tuple(
        each
        if isinstance(each, GroupTransaction)
        else GroupTransaction(number, {("billing", IN): (10 * number, f"m{number}")}, each)
        for number, each in enumerate(transactions, start=1)
    )
    return TransactionHistory("w", AT, dict.fromkeys((A, B), begun), dict.fromkeys((A, B), read), found, **more)


def placed(seen, a, b=0, captured=10, group="billing"):
    return place_by_transactions(seen, position(captured, group=group, topic="in"), {A: a, B: b})


FIVE = ({A: (0, 1)}, {A: (3, 4)}, {A: (6, 7)}, {A: (9, 10)}, {A: (12, 13)})


@pytest.mark.parametrize(("mirrored", "offset"), [(2, 10), (3, 10), (5, 20), (8, 30), (9, 30), (14, 50), (15, 50)])
def test_after_the_last_one_whose_output_is_on_the_target(mirrored, offset):
    found = placed(history(*FIVE), mirrored)
    assert (found.offset, found.metadata, found.again, found.reason) == (offset, f"m{offset // 10}", 0, None)


def test_behind_what_was_captured_where_the_output_lags():
    assert placed(history(*FIVE), 5, captured=50).offset == 20


@pytest.mark.parametrize("mirrored", [4, 7])
def test_one_whose_output_arrived_in_part_is_processed_again(mirrored):
    found = placed(history(*FIVE), mirrored)
    assert found.again == 1
    assert found.reached == found.offset + 10
    assert "1 transaction is processed again" in found.reason


def test_one_output_partition_ahead_of_the_other():
    both = [{A: (n, n), B: (n, n)} for n in range(5)]
    found = placed(history(*both), 5, 2)
    assert (found.offset, found.again, found.reached) == (20, 3, 50)
    assert placed(history(*both), 5, 5).again == 0


def test_what_is_not_known_makes_the_number_unknown():
    unread = GroupTransaction(3, None, {A: (6, 7)})
    assert placed(history(*FIVE[:2], unread, *FIVE[3:]), 8).again is None, "its commit could not be read"
    assert placed(history(*FIVE[:2], unread, *FIVE[3:]), 5).again == 0, "it didn't reach the target"
    assert placed(history(*FIVE[:2], unread, *FIVE[3:]), 11).again == 0, "a later one did"
    undecided = GroupTransaction(3, {("billing", IN): (30, "")}, None)
    assert placed(history(*FIVE[:2], undecided), 5).again is None
    assert placed(history(*FIVE, read=13), 14).again is None, "mirrored beyond what was read"
    assert placed(history(*FIVE), 14, captured=60).again is None, "a later commit was captured"


def test_what_was_before_the_watch_or_was_dropped_must_be_there():
    for seen in (history(*FIVE, begun=9), history(*FIVE, dropped={A: 9})):
        found = placed(seen, 5, 9, captured=40)
        assert (found.offset, found.again) == (40, None)
        assert "is not known" in found.reason


def test_a_watch_that_stopped_long_before_the_capture_decides_nothing():
    late = replace(history(*FIVE), seen_at=AT - timedelta(minutes=10))
    found = placed(late, 5, captured=900)
    assert (found.offset, found.again) == (900, None)
    assert "has not seen them since" in found.reason


def test_a_plain_commit_counts_in_its_order():
    reset = GroupTransaction(3, {("billing", IN): (0, "reset")}, {})
    found = placed(history(*FIVE[:2], reset), 5, captured=20)
    assert (found.offset, found.metadata) == (0, "reset")


def test_other_groups_are_not_concerned():
    assert placed(history(*FIVE), 5, group="plain") is None


@pytest.mark.parametrize("unseen", ["silent", "unjudged"])
def test_a_lag_of_nothing_does_not_show_output_that_nobody_has_seen(unseen):
    """The application wrote output after the mirror's last look, to a partition that has no leader now."""
    log = Log("r" * 60)
    there = log.view()
    mark = replace(there.watermark, topic="a", source_through=8, source_end=8)
    live = replace(there, source_start=0, source_end=60)
    out = replace(there, topic="a", target_topic="a", watermark=mark, source_start=0, source_end=8)
    seen = history(*({A: outputs[A]} for outputs in FIVE[:3]))
    transactions = tuple(replace(each, offsets={("billing", live.tp): (60, "m")}) for each in seen.transactions)
    whole = replace(
        world([live, out], [position(60)], source_reachable=True), transactions=replace(seen, transactions=transactions)
    )
    (found,) = choose_positions(whole, Selection(), None)
    assert (found.source_offset, found.translation, found.transactional) == (60, Certainty.EXACT, False)

    first = replace(transactions[0], offsets={("billing", live.tp): (10, "m1")})
    why = "was it set back?"
    hidden = (
        replace(out, source_start=None, source_end=None, silent="broker 2 is down")
        if unseen == "silent"
        else replace(out, doubts=Doubts(unjudged=why, unsure=why))
    )
    views = {view.tp: view for view in (live, hidden)}
    blind = replace(whole, partitions=views, transactions=replace(seen, transactions=(first,)))
    assert blind.lag == 0
    (found,) = choose_positions(blind, Selection(), None)
    assert (found.source_offset, found.transactional, found.translation) == (10, True, Certainty.CONSERVATIVE)
    assert found.transactions_again is None
    assert ("it had committed 60 since" in found.reason, why in found.reason) == (True, unseen == "unjudged")

    (found,) = choose_positions(replace(blind, suspected=frozenset({"billing"}), transactions=None), Selection(), None)
    assert (found.source_offset, found.translation) == (60, Certainty.CONSERVATIVE)
    assert "how much of their output is on the target is not known" in found.reason


def test_a_position_says_what_it_rests_on():
    log = Log("r" * 60)
    there = log.view()
    out = replace(there, topic="a", target_topic="a", watermark=replace(there.watermark, topic="a", source_through=7))
    seen = TransactionHistory(
        "w",
        AT,
        {A: 0},
        {A: 1_000},
        tuple(
            GroupTransaction(n, {("billing", TopicPartition("t", 0)): (10 * n, f"m{n}")}, outputs)
            for n, outputs in enumerate(FIVE, start=1)
        ),
    )
    lost = replace(world([there, out], [position(10)], positions_live=False), transactions=seen)
    (found,) = choose_positions(lost, Selection(), None)
    assert (found.source_offset, found.target_offset, found.metadata) == (20, 20, "m2")
    assert (found.translation, found.transactional, found.transactions_again) == (Certainty.CONSERVATIVE, True, 1)
    assert (found.reread, found.skipped) == (10, 0)
    exact = replace(out, watermark=replace(out.watermark, source_through=8))
    (found,) = choose_positions(replace(lost, partitions={v.tp: v for v in (there, exact)}), Selection(), None)
    assert (found.source_offset, found.translation, found.reread, found.reason) == (30, Certainty.EXACT, 0, None)
    after, before = (parse_moment(iso(AT + timedelta(minutes=n)), now=AT + timedelta(hours=1)) for n in (30, 10))
    views = {v.tp: v for v in (replace(there, at_offset=None), exact)}
    captured_past = replace(lost, partitions=views, positions=(position(55),))
    (found,) = choose_positions(captured_past, Selection(), after)
    assert (found.target_offset, found.skipped, found.transactional, found.transactions_again) == (30, 0, True, None), (
        "a time doesn't put it past its output; it has committed 55 by transactions that aren't known"
    )
    committed = replace(after, basis=TimeBasis.COMMITS)
    key = ("billing", there.tp)
    for offset, target, certainty in ((50, 30, Certainty.EXACT), (20, 20, Certainty.EXACT)):
        past = {key: PastPosition(offset, "", Certainty.EXACT, None, AT)}
        (found,) = choose_positions(
            replace(captured_past, positions=(position(50),), past=past), Selection(), committed
        )
        assert (found.target_offset, found.translation, found.transactional) == (target, certainty, True)
    views[there.tp] = replace(there, at_offset=12)
    (found,) = choose_positions(replace(captured_past, partitions=views), Selection(), before)
    assert (found.target_offset, found.transactional, found.transactions_again) == (12, True, None)
    unwatched = replace(captured_past, transactions=None, suspected=frozenset({"billing"}))
    for at in (after, committed):
        past = {key: PastPosition(50, "", Certainty.EXACT, None, AT)}
        (found,) = choose_positions(replace(unwatched, past=past), Selection(), at)
        assert (found.translation, found.reread, found.transactional) == (Certainty.CONSERVATIVE, None, True)
    unsettled = replace(exact, target_end=exact.target_end + 1)
    (found,) = choose_positions(replace(lost, partitions={v.tp: v for v in (there, unsettled)}), Selection(), None)
    assert found.transactions_again is None, "the target holds more than is accounted for"


@pytest.mark.parametrize(("events", "doubtful"), [("rrh", True), ("rhrrh", True), ("rrr", False), ("rhrr", False)])
def test_the_first_output_to_a_topic_that_the_watch_does_not_follow_yet_is_a_doubt(events, doubtful):
    """The source died before its decision was read: nothing was said to be processed again, and its output was there
    twice."""
    there = Log("r" * 60).view()
    out = replace(there, topic="a", target_topic="a", watermark=replace(there.watermark, topic="a"))
    new = Log(events).view()
    new = replace(new, topic="new", target_topic="new", watermark=replace(new.watermark, topic="new"))
    commit = GroupTransaction(1, {("billing", TopicPartition("t", 0)): (10, "m")}, {A: (0, 1)})
    seen = TransactionHistory("w", AT, {A: 0}, {A: 1_000}, (commit,))
    lost = replace(world([there, out, new], [position(10)], positions_live=False), transactions=seen)
    (found,) = choose_positions(lost, Selection(), None)
    assert (found.source_offset, found.transactional) == (10, True)
    assert (found.translation, found.transactions_again) == (
        (Certainty.CONSERVATIVE, None) if doubtful else (Certainty.EXACT, 0)
    )
    assert ("new:0 has transactions" in str(found.reason)) is doubtful
    followed = replace(lost, transactions=replace(seen, begun={A: 0, new.tp: 0}, read={A: 1_000, new.tp: 1_000}))
    assert choose_positions(followed, Selection(), None)[0].translation is Certainty.EXACT
