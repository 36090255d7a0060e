"""The instant up to which every topic is complete, from hand-made tails."""

from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.failover.positions.consistent_cut import (
    Tails,
    beyond,
    consistent_cut,
    moment_of,
    streams_cut,
    transactions_cut,
)
from drkit.kafka.client.record_probe import Scanned, SeenBatch
from drkit.lag.partition_lag import Doubts
from drkit.model.clock import from_millis, to_millis
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition
from tests.unit.failover.plan.worlds import AT, Log, position, world

NOW = to_millis(AT)


def tail(newest, late=0):
    return Scanned(100, [SeenBatch(90, 99, newest - late, newest, late, None, False)], newest=newest)


def view(topic, *, missing=0, source_end=None):
    made = Log("r" * 10, through=10 - missing).view()
    mark = replace(made.watermark, topic=topic, observed_at=AT - timedelta(seconds=3))
    return replace(made, topic=topic, target_topic=topic, watermark=mark, source_end=source_end)


def cut_of(views, target=(), missing=()):
    seen = world(views, [])
    return consistent_cut(seen, Tails(dict(target), dict(missing)), list(seen.partitions))


A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_what_lags_most_decides_and_says_so():
    cut = cut_of([view("a", missing=2), view("b", missing=1)], {A: tail(NOW - 60_000), B: tail(NOW - 20_000)})
    assert cut.instant == from_millis(NOW - 60_000)
    assert [(limit.topic, limit.exact) for limit in cut.limits] == [("a", False), ("b", False)]
    assert "2 offsets are missing; the newest record on the target is stamped" in cut.limits[0].why
    assert moment_of(cut).millis == NOW - 60_000


def test_an_idle_topic_holds_nobody_back_only_since_its_last_look():
    idle, busy = view("a"), view("b", missing=1)
    cut = cut_of([idle, busy], {A: tail(NOW - 86_400_000), B: tail(NOW - 10_000)})
    assert cut.instant == from_millis(NOW - 10_000)
    assert cut_of([idle], {A: tail(NOW - 86_400_000)}).instant == AT - timedelta(seconds=3)


def test_what_may_lack_more_than_is_counted_is_limited_by_what_is_on_the_target():
    unjudged = replace(view("a", source_end=10), doubts=Doubts(unjudged="was it set back?"))
    for missing in ({}, {A: Scanned(10)}):
        cut = cut_of([unjudged], {A: tail(NOW - 60_000)}, missing)
        assert cut.instant == from_millis(NOW - 60_000)
        assert "0 offsets are missing or more (was it set back?)" in cut.limits[0].why
        assert not cut.limits[0].exact


def test_what_was_not_looked_at_is_no_reason_for_a_later_instant():
    """Records of the seconds that the look took, of a tail that could not be read, and of what may lack more than is
    counted were taken for mirrored."""
    looked = replace(world([view("a", source_end=10)], []), begun_at=AT - timedelta(seconds=9))
    for missing in ({}, {A: Scanned(10)}):
        cut = consistent_cut(looked, Tails({}, missing), [A])
        assert cut.instant == AT - timedelta(seconds=9)
    with pytest.raises(Refused, match="its tail on dr could not be read: not read in time"):
        cut_of([view("a")], {A: Scanned(90, reason="not read in time")})
    partly = replace(tail(NOW - 60_000, late=2_000), reason="only the first 4 MiB were read")
    cut = cut_of([view("a")], {A: partly})
    assert cut.instant == AT - timedelta(seconds=5)
    assert "only the first 4 MiB were read" in cut.limits[0].why
    unjudged = replace(view("a", missing=2, source_end=10), doubts=Doubts(unjudged="was it set back?"))
    for stamp, expected in ((NOW - 1_000, NOW - 60_000), (NOW - 90_000, NOW - 90_000)):
        cut = cut_of([unjudged], {A: tail(NOW - 60_000)}, {A: Scanned(10, [data(8, stamp)])})
        assert (cut.instant, cut.limits[0].exact) == (from_millis(expected), False)


def test_lateness_seen_in_the_tail_is_taken_off():
    cut = cut_of([view("a", missing=1)], {A: tail(NOW - 10_000, late=7_000)})
    assert cut.instant == from_millis(NOW - 17_000)
    assert "less the lateness of 7 s" in cut.limits[0].why


def test_what_is_missing_is_read_where_the_source_answers():
    late_one = Scanned(10, [SeenBatch(8, 9, NOW - 90_000, NOW - 1_000, 0, None, False)])
    cut = cut_of([view("a", missing=2, source_end=10)], {A: tail(NOW - 10_000)}, {A: late_one})
    assert cut.instant == from_millis(NOW - 90_000)
    assert cut.limits[0].exact
    for stamp, expected in ((NOW - 90_000, NOW - 90_000), (NOW - 5_000, NOW - 10_000)):
        partly = Scanned(10, [data(8, stamp)], reason="not read within 10 s")
        cut = cut_of([view("a", missing=2, source_end=10)], {A: tail(NOW - 10_000)}, {A: partly})
        assert (cut.instant, cut.limits[0].exact) == (from_millis(expected), False)


def test_a_transaction_that_is_still_open_on_the_source_holds_everybody_back():
    held = Scanned(12, [data(10, NOW - 70_000)])
    cut = cut_of([view("a", source_end=10), view("b")], {}, {A: held})
    assert cut.instant == from_millis(NOW - 70_000)
    assert "records held by an open transaction" in cut.limits[0].why


def test_it_is_refused_where_nothing_bounds_what_is_missing():
    with pytest.raises(Refused, match="a:0: 10 offsets are missing and none is on the target"):
        cut_of([view("a", missing=10)])
    with pytest.raises(Refused, match="nothing was recorded about it"):
        cut_of([replace(view("a"), watermark=None)])


def test_what_lies_beyond_is_counted_by_topic():
    seen = world([replace(view("a", missing=2), at_offset=5), view("b")], [])
    assert [(each.topic, each.on_target, each.missing) for each in beyond(seen, [A, B])] == [("a", 3, 2), ("b", 0, 0)]


def test_state_of_a_streams_application_beyond_the_cut_is_named():
    log = "wordcount-store-changelog"
    views = [replace(view(log), at_offset=4), replace(view("wordcount-x-repartition"), at_offset=1), view("b")]
    seen = world(views, [position(1, group="wordcount"), position(1, group="word")])
    (sentence,) = streams_cut(seen, list(seen.partitions))
    assert sentence.startswith(f"wordcount is a Streams application whose state goes beyond the cut: {log} (6 records)")
    assert streams_cut(world([view(log)], [position(1, group="wordcount")]), [TopicPartition(log, 0)]) == []


def data(base, stamp, producer=7):
    return SeenBatch(base, base, stamp, stamp, 0, producer, False)


def marker(base, stamp, producer=7):
    return SeenBatch(base, base, stamp, stamp, 0, producer, True)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([data(0, 10), data(1, 30), marker(2, 31)], [], [(["a:0"], ["a:0"])]),
        ([data(0, 10), marker(1, 31)], [data(0, 30), marker(1, 31)], [(["a:0"], ["b:0"])]),
        ([SeenBatch(0, 1, 10, 30, 0, 7, False), marker(2, 31)], [], [(["a:0"], ["a:0"])]),  # within one batch
        ([data(0, 10), marker(1, 31)], [data(0, 11), marker(1, 31)], []),  # whole, on the near side
        ([data(0, 10), marker(1, 12)], [data(0, 30), marker(1, 31)], []),  # two transactions
        ([data(0, 10), marker(1, 31)], [data(0, 40), marker(1, 41)], []),  # the second came after the first's end
        ([data(0, 10), marker(1, 31)], [data(0, 30, producer=8), marker(1, 31, producer=8)], []),
    ],
)
def test_transactions_on_both_sides_of_the_cut(a, b, expected):
    logs = {A: Scanned(9, a), B: Scanned(9, b)}
    cut = {tp: next((each.last_offset for each in logs[tp].batches if each.latest >= 20), 9) for tp in logs}
    found = transactions_cut(20, logs, cut)
    assert found == [
        f"a transaction of producer 7 is cut in two: records on {', '.join(below)} lie before the instant, "
        f"records on {', '.join(after)} from it on"
        for below, after in expected
    ]
