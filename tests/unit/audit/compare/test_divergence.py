"""Where the source lost what was mirrored: told by its leader epochs, or by what a mirror noted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.audit.compare.scope import replaced_tails, source_kept
from drkit.kafka.admin.logs.leader_epochs import EpochEnd
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.model.digests import RangeDigest
from drkit.model.link_state import SOURCE_TRUNCATED, Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store

AT = datetime(2026, 11, 22, 8, tzinfo=UTC)
LINK = LinkId("primary", "dr")
CUT, WHOLE, OLD, ZOMBIE, SILENT, SHORT = (TopicPartition("flights", number) for number in range(6))
RANGES = {
    tp: [RangeDigest(*tp, 1, 0, 120 if tp == SHORT else 100, 0, 1, 100, 7)]
    for tp in (CUT, WHOLE, OLD, ZOMBIE, SILENT, SHORT)
}


class Source:
    """Answers as a source's leaders would; the newest epoch of one partition lost 20 offsets, one log is another's."""

    def epoch_ends(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        assert set(at.values()) <= {3}
        known = {CUT: EpochEnd(3, 80), ZOMBIE: EpochEnd(2, 110)}
        return {tp: known.get(tp, EpochEnd(3, 130)) for tp in at if tp != SILENT}


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("sqlite:///:memory:")
    opened.put_watermarks(
        LINK,
        [Watermark(*tp, 1, 100, 100, 0, 130, 0, AT, leader_epoch=None if tp == OLD else 3) for tp in RANGES],
    )
    yield opened
    opened.close()


def problem(topic: str, partition: int | None, kind: str = SOURCE_TRUNCATED) -> Problem:
    return Problem(kind, topic, partition, "why", "what to do", halted=True, since=AT)


def kept(store: Store, *tps: TopicPartition) -> dict[TopicPartition, int]:
    return source_kept(LINK, store, Source(), {tp: RANGES[tp] for tp in tps})  # type: ignore[arg-type]  # all it asks


def test_leader_epochs_tell_how_far_the_source_is_whole(store: Store) -> None:
    assert kept(store, CUT, WHOLE) == {CUT: 80}


def test_where_they_cannot_tell_nothing_is_proven(store: Store) -> None:
    """No epoch is known, another log came back, no leader answers."""
    assert kept(store, OLD, ZOMBIE, SILENT, WHOLE) == {OLD: 0, ZOMBIE: 0, SILENT: 0}


def test_a_digest_beyond_the_watermark_is_not_proven_beyond_it(store: Store) -> None:
    """The mirror was killed between the two: of what is beyond no epoch is known."""
    assert kept(store, SHORT) == {SHORT: 100}


def test_what_the_mirror_noted_counts_where_epochs_no_longer_tell(store: Store) -> None:
    for each in (problem("flights", 1), problem("flights", 0), problem("other", 2), problem("flights", 5, "foreign")):
        store.put_problem(LINK, each)
    assert kept(store, CUT, WHOLE) == {CUT: 80, WHOLE: 0}


def test_a_partition_that_stands_still_is_proven_below_where_both_sides_differ(store: Store) -> None:
    foreign = replace(problem("flights", 1, "foreign_writer"), unsure_from=60)
    store.put_problem(LINK, foreign)
    assert kept(store, CUT, WHOLE) == {CUT: 80, WHOLE: 60}
    store.put_problem(LINK, replace(foreign, halted=False))
    assert kept(store, CUT, WHOLE) == {CUT: 80}


def a_record(offset: int | None, crc: int = 7, reason: str | None = None, *, outside: bool = False) -> ProbedRecord:
    return ProbedRecord(offset=offset, crc=crc, reason=reason, outside=outside)


class Log:
    """Gives the same answer about each place, at that place unless it says otherwise."""

    def __init__(self, answer: Callable[[int], ProbedRecord]) -> None:
        self.answer, self.asked = answer, set[LogPosition]()

    def probe_records(
        self, places: Iterable[LogPosition], *, seconds: float, bodies: bool = False
    ) -> dict[LogPosition, ProbedRecord]:
        assert seconds > 0
        assert not bodies
        self.asked |= set(places)
        return {place: self.answer(place.offset) for place in self.asked}


@pytest.mark.parametrize(
    ("answer", "replaced"),
    [
        (a_record, False),
        (lambda offset: a_record(offset, crc=8 if offset == 99 else 7), True),
        (lambda offset: a_record(offset, crc=8 if offset == 92 else 7), True),
        (lambda offset: a_record(offset + 1, crc=8), False),  # compacted away there, or a marker
        (lambda _offset: a_record(None, reason="no such offset", outside=True), False),  # retention took it
        (lambda _offset: a_record(None, reason="no leader"), True),
    ],
)
def test_the_last_records_with_a_digest_are_compared(answer: Callable[[int], ProbedRecord], *, replaced: bool) -> None:
    link = Link(LINK, (".*",))
    source, target = Log(answer), Log(a_record)
    found = replaced_tails(link, source, target, {WHOLE: RANGES[WHOLE], OLD: []})  # type: ignore[arg-type]  # as above
    assert found == ({WHOLE} if replaced else set())
    assert {place.offset for place in source.asked} == set(range(92, 100))


def test_a_partition_without_digests_needs_no_answer(store: Store) -> None:
    assert source_kept(LINK, store, Source(), {OLD: []}) == {}  # type: ignore[arg-type]  # as above
