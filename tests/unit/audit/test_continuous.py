"""What a continuous audit keeps: ranges cut into lots, the stream's offsets, the sum as it is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.audit import reconcile as reconciling
from drkit.audit.continuous import STATE_FILE, STREAM, keep_progress, load_progress
from drkit.audit.watermark_stream import between, from_anywhere, position
from drkit.model.audit import Counts
from drkit.model.clock import now
from drkit.model.continuous import Closed, Progress, Reconciled, slices
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.topology import Link, LinkId

RANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 50), st.integers(0, 40)),
    unique_by=lambda each: each[:2],
    max_size=6,
).map(lambda found: [Closed(topic, number, 0, first, first + size, 1) for topic, number, first, size in found])


@given(RANGES, st.integers(1, 30))
def test_lots_hold_every_offset_once_in_order_and_no_more_than_they_may(ranges, most):
    lots = slices(ranges, most)

    assert all(0 < sum(each.until - each.first for each in lot) <= most for lot in lots)
    assert all(len({each[:2] for each in lot}) == len(lot) for lot in lots)
    for each in ranges:
        pieces = [piece for lot in lots for piece in lot if piece[:2] == each[:2]]
        assert [offset for piece in pieces for offset in range(piece.first, piece.until)] == [
            *range(each.first, each.until)
        ]


LOOKS = st.lists(
    st.dictionaries(st.tuples(st.sampled_from(["t/a", "u"]), st.integers(0, 1), st.just(3)), st.integers(0, 20)),
    min_size=1,
    max_size=6,
)


def test_a_topic_that_was_deleted_and_comes_again_begins_anew():
    first = position({("t", 0, 0): 5, ("u", 0, 0): 7}, 10, None)
    gone = position({("u", 0, 0): 7}, 20, first)
    back = position({("t", 0, 0): 3, ("u", 0, 0): 7}, 30, gone)

    assert between(first, gone) == []
    assert between(gone, back) == [Closed("t", 0, 0, 0, 3, 30)]


@given(LOOKS, st.sets(st.integers(0, 5)))
def test_the_streams_offsets_close_every_source_offset_once_whenever_it_is_restarted(looks, restarts):
    last, closed, highest = {"at": 0, "through": {}}, [], {}
    memory = None
    seen: dict[tuple[str, int, int], int] = {}
    for at, look in enumerate(looks, 1):
        seen |= look  # the store forgets nothing
        if at in restarts:
            memory = last  # what Spark's checkpoint says
        memory = position(seen, at, memory)
        closed += between(last, memory)
        last = memory
        for name, through in look.items():
            highest[name] = max(through, highest.get(name, 0))
    for (topic, partition, epoch), through in highest.items():
        mine = [each for each in closed if each[:3] == (topic, partition, epoch)]
        assert [offset for each in mine for offset in range(each.first, each.until)] == [*range(through)]


def test_nothing_new_makes_no_batch():
    first = position({("t", 0, 0): 5}, 10, None)

    assert position({("t", 0, 0): 5}, 20, first) is first


def test_a_relative_store_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert from_anywhere("sqlite:///drkit.db?timeout=3") == f"sqlite:///{tmp_path.resolve()}/drkit.db?timeout=3"
    for url in ("sqlite:////var/drkit.db", "cassandra://u:p@h:9042/drkit?dc=dr"):
        assert from_anywhere(url) == url


def test_a_range_of_a_topic_that_was_deleted_since_is_unknown_and_stops_nothing(monkeypatch):
    def observe(request, store, config):  # noqa: ARG001 - as observe_scope has it
        raise ConfigError(f"the link has no such topic: {len(request.topics)}")

    monkeypatch.setattr(reconciling, "observe_scope", observe)
    ranges = [Closed(topic, 0, 0, 0, 10, 1) for topic in ("t", "u")]
    link = Link(LinkId("a", "b"), topics=(".*",), groups=())

    found = reconciling.reconcile(ranges, link, None, None, None)

    assert [(each.closed, each.problem, each.deviates) for each in found] == [
        (each, "the link has no such topic: 1", False) for each in ranges
    ]


def progress() -> Progress:
    fresh = Progress(run="audit-1", link="a->b", started_at="2026-11-20T04:02:59Z")
    closed = Closed("t", 0, 0, 0, 10, 1)
    lost = Reconciled(closed, "t", Counts(source_records=10, matched=9, lost=1))
    taken = Reconciled(closed._replace(topic="u"), "u", problem="gone")
    return fresh.added(0, [lost, taken], now(), 1.5)


def test_the_sum_is_read_back_as_it_was_kept(tmp_path):
    kept = progress()
    keep_progress(tmp_path, kept)

    found = load_progress(tmp_path, "a->b")

    assert found == kept
    assert (found.verdict, found.ranges, found.alerts, found.unknown, found.batch) == ("deviated", 2, 1, 1, 0)
    assert found.counts == Counts(source_records=10, matched=9, lost=1)
    assert found.through == {"t:0": 10, "u:0": 10}
    with pytest.raises(Refused, match="checkpoint of a->b, not of c->d"):
        load_progress(tmp_path, "c->d")


def test_a_checkpoint_without_its_sum_is_not_counted_on(tmp_path):
    assert load_progress(tmp_path, "a->b") is None
    (tmp_path / STREAM / "offsets").mkdir(parents=True)
    with pytest.raises(DrkitError, match=f"{STATE_FILE} is missing"):
        load_progress(tmp_path, "a->b")
    (tmp_path / STATE_FILE).write_text('{"format": "else"}')
    with pytest.raises(DrkitError, match="is not a continuous audit's progress"):
        load_progress(tmp_path, "a->b")


def test_what_the_target_removed_is_no_longer_clean_although_it_is_no_loss_of_the_mirrors():
    removed = Reconciled(Closed("t", 0, 0, 5, 10, 1), "t", Counts(target_retired=2), gone=2)

    assert removed.deviates
    assert removed.lost == 2
    assert str(removed) == "t:0 source offsets 5 to 9: 2 gone from the target"
